"""The API over HTTP: authentication, timeouts, errors, tables, streams."""

import asyncio
import json
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from edgeai.localcluster.api.server import ClientTimeouts, Server, serve
from edgeai.localcluster.errors import StateError
from edgeai.localcluster.objects import errors
from edgeai.localcluster.objects.containers import LogQuery
from edgeai.localcluster.objects.resources import (
    CONFIGMAPS,
    CUSTOMRESOURCEDEFINITIONS,
    PODS,
    Object,
)
from edgeai.localcluster.objects.store import Store
from edgeai.localcluster.state import write_kubeconfig
from tests.edgeai.localcluster.conftest import (
    TOKEN,
    Client,
    configmap,
    pod,
    widget,
    widget_crd,
)
from tests.edgeai.localcluster.running import patch
from tests.support.clock import Clock
from tests.support.waiting import PATIENCE_S, async_eventually

CONFIGMAPS_PATH = "/api/v1/namespaces/default/configmaps"
WIDGETS_PATH = "/apis/edgeai.io/v1alpha1/namespaces/default/widgets"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


# Who gets in


@pytest.mark.parametrize("authorization", ["", "Bearer wrong", f"Basic {TOKEN}", "Bearer"])
async def test_without_the_token_nothing_is_shown(client: Client, authorization: str) -> None:
    answer = await client("GET", CONFIGMAPS_PATH, Authorization=authorization)
    assert (answer.status, answer.body["reason"]) == (401, "Unauthorized")


async def test_the_token_may_stand_in_the_path(client: Client) -> None:
    answer = await client("GET", f"/{TOKEN}{CONFIGMAPS_PATH}", Authorization="")
    assert answer.body["kind"] == "ConfigMapList"


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/version"])
async def test_health_and_version_are_public(client: Client, path: str) -> None:
    assert (await client("GET", path, Authorization="")).status == 200


async def test_only_loopback_is_served(store: Store) -> None:
    with pytest.raises(StateError, match="not a loopback address"):
        await serve(store, token=TOKEN, host="0.0.0.0")


# Timeouts


@asynccontextmanager
async def connection(url: str, sent: str) -> AsyncIterator[asyncio.StreamReader]:
    """The reader of a connection on which only `sent` is written."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    writer.write(sent.encode())
    try:
        yield reader
    finally:
        writer.close()


@pytest.fixture
async def impatient(store: Store) -> AsyncIterator[str]:
    """URL of a server with short timeouts."""
    timeouts = ClientTimeouts(idle_s=0.05, body_s=0.05, linger_s=0.05)
    server = await serve(store, token=TOKEN, timeouts=timeouts)
    yield server.url
    await server.close()


IDLE: dict[str, str] = {
    "silence": "",
    "half a head": "GET /api",
    "after an answer": f"GET /{TOKEN}/api/v1/namespaces HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("case", IDLE)
async def test_a_connection_without_a_request_is_closed(impatient: str, case: str) -> None:
    async with connection(impatient, IDLE[case]) as reader:
        answered = await asyncio.wait_for(reader.read(), PATIENCE_S)  # to the end of the connection
    assert answered[:15] == (b"HTTP/1.1 200 OK" if case == "after an answer" else b"")


async def test_a_body_that_does_not_come_is_a_408_and_the_end(impatient: str) -> None:
    head = f"POST /{TOKEN}{CONFIGMAPS_PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"
    async with connection(impatient, head + "{") as reader:
        answered = await asyncio.wait_for(reader.read(), PATIENCE_S)
    assert answered.startswith(b"HTTP/1.1 408 ")
    assert b"did not arrive" in answered


async def test_a_quiet_watch_outlives_an_idle_connection(impatient: str, store: Store) -> None:
    path = f"/{TOKEN}{CONFIGMAPS_PATH}?watch=1"
    head = f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"
    async with connection(impatient, head) as watch, connection(impatient, "") as idle:
        await asyncio.wait_for(watch.readuntil(b"\r\n\r\n"), PATIENCE_S)
        assert await asyncio.wait_for(idle.read(), PATIENCE_S) == b""
        store.create(CONFIGMAPS, configmap())
        answered = await asyncio.wait_for(watch.readuntil(b"}\n"), PATIENCE_S)
    assert b'"ADDED"' in answered


async def test_a_port_that_is_taken_is_named(store: Store, api: Server) -> None:
    port = int(api.url.rpartition(":")[2])
    with pytest.raises(StateError, match=f"cannot listen on 127.0.0.1:{port}"):
        await serve(store, token=TOKEN, port=port)


def test_the_kubeconfig_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("old")
    path.chmod(0o644)
    write_kubeconfig(path, url="http://127.0.0.1:1", token="abc")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    config = json.loads(path.read_text())
    assert config["users"][0]["user"]["token"] == "abc"
    assert os.listdir(tmp_path) == ["kubeconfig"]


# Paths, bodies, refusals


REFUSED: dict[str, tuple[str, str, Any, str, int, str]] = {
    "no such path": ("GET", "/nowhere", None, "application/json", 404, "NotFound"),
    "exec": (
        "POST",
        "/api/v1/namespaces/default/pods/one/exec",
        b"",
        "application/json",
        404,
        "NotFound",
    ),
    "method on discovery": ("POST", "/apis", {}, "application/json", 405, "MethodNotAllowed"),
    "deep JSON": (
        "POST",
        CONFIGMAPS_PATH,
        b"[" * 100_000,
        "application/json",
        400,
        "BadRequest",
    ),
    "no text": ("POST", CONFIGMAPS_PATH, b"\xff", "application/json", 400, "BadRequest"),
    "YAML": (
        "POST",
        CONFIGMAPS_PATH,
        b"metadata: {name: a}",
        "application/yaml",
        415,
        "UnsupportedMediaType",
    ),
    "protobuf": (
        "POST",
        CONFIGMAPS_PATH,
        b"k8s\x00\x0a\x0b\x0a\x02v1\x12\x09ConfigMap",
        "application/vnd.kubernetes.protobuf",
        415,
        "UnsupportedMediaType",
    ),
    "limit": ("GET", f"{CONFIGMAPS_PATH}?limit=-1", None, "application/json", 400, "BadRequest"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_refusal(client: Client, case: str) -> None:
    method, path, body, content_type, code, reason = REFUSED[case]
    answer = await client(method, path, body, content_type=content_type)
    assert (answer.status, answer.body["code"], answer.body["reason"]) == (code, code, reason)
    assert answer.body["kind"] == "Status"


async def test_a_full_disk_is_a_507_and_reads_go_on(tmp_path: Path) -> None:
    store = Store(tmp_path / "small.db", max_bytes=200_000)
    server = await serve(store, token=TOKEN)
    async with aiohttp.ClientSession() as session:
        client = Client(session, server.url)
        big = {**configmap(), "data": {"a": "x" * 300_000}}
        answer = await client("POST", CONFIGMAPS_PATH, big)
        assert (answer.status, answer.body["reason"]) == (507, "InsufficientStorage")
        assert (await client("GET", CONFIGMAPS_PATH)).body["items"] == []
    await server.close()
    store.close()


# Tables


async def test_a_date_is_shown_as_an_age(client: Client, store: Store, clock: Clock) -> None:
    age = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
    store.create(CUSTOMRESOURCEDEFINITIONS, widget_crd(additionalPrinterColumns=[age]))
    await client("POST", WIDGETS_PATH, widget())
    clock.now_s += 330
    table = (await client("GET", WIDGETS_PATH, Accept=TABLE)).body
    assert [row["cells"] for row in table["rows"]] == [["one", "5m"]]


async def test_a_malformed_object_does_not_hide_the_others(client: Client, store: Store) -> None:
    store.create(PODS, pod("good"))
    store.create(PODS, pod("odd"))
    strange = {"status": {"containerStatuses": "none"}}
    patch(store, PODS, "default", "odd", strange, subresource="status")
    table = await client("GET", "/api/v1/namespaces/default/pods", Accept=TABLE)
    assert [row["cells"][:3] for row in table.body["rows"]] == [
        ["good", "0/1", "Pending"],
        ["odd", "<invalid>", "<invalid>"],
    ]


POD_STATES: dict[str, tuple[Object, str]] = {
    "phase": ({"phase": "Running"}, "Running"),
    "reason": ({"phase": "Failed", "reason": "Evicted"}, "Evicted"),
    "waiting": (
        {"containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]},
        "CrashLoopBackOff",
    ),
    "completed": (
        {"containerStatuses": [{"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]},
        "Completed",
    ),
    "exit code": (
        {"containerStatuses": [{"state": {"terminated": {"exitCode": 3}}}]},
        "ExitCode:3",
    ),
    "init": (
        {
            "initContainerStatuses": [
                {"state": {"terminated": {"exitCode": 0}}},
                {"state": {"running": {}}},
            ]
        },
        "Init:1/2",
    ),
    "init fails": (
        {"initContainerStatuses": [{"state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]},
        "Init:Error",
    ),
}


@pytest.mark.parametrize("case", POD_STATES)
async def test_the_table_says_how_a_pod_is(client: Client, store: Store, case: str) -> None:
    status, word = POD_STATES[case]
    store.create(PODS, pod())
    patch(store, PODS, "default", "one", {"status": status}, subresource="status")
    table = await client("GET", "/api/v1/namespaces/default/pods/one", Accept=TABLE)
    assert table.body["rows"][0]["cells"][2] == word


# Streams


@asynccontextmanager
async def watching(client: Client, query: str, **headers: str) -> AsyncIterator[Any]:
    """Open a watch of ConfigMaps. Yields a function that reads the next event; None: the end."""
    sent = {"Authorization": f"Bearer {TOKEN}"} | headers
    url = f"{client.url}{CONFIGMAPS_PATH}?watch=1&{query}"
    async with client.session.get(url, headers=sent) as response:

        async def read() -> Any:
            line = await asyncio.wait_for(response.content.readline(), PATIENCE_S)
            return msgspec.json.decode(line) if line else None

        yield read


async def test_a_bookmark_says_where_to_resume(client: Client, store: Store) -> None:
    version = store.resource_version
    store.create(PODS, pod())  # another resource moves the version on
    query = f"allowWatchBookmarks=true&resourceVersion={version}"
    async with watching(client, query) as read:
        bookmark = await read()
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["kind"] == "ConfigMap"
    assert bookmark["object"]["metadata"]["resourceVersion"] == str(store.resource_version)


async def test_a_watch_from_before_the_history_is_told_to_list(
    client: Client, tmp_path: Path
) -> None:
    store = Store(tmp_path / "small.db", history=1)
    server = await serve(store, token=TOKEN)
    version = store.resource_version
    for name in "abc":
        store.create(CONFIGMAPS, configmap(name))
    other = Client(client.session, server.url)
    async with watching(other, f"resourceVersion={version}") as read:
        event = await read()
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
    assert event["object"]["reason"] == "Expired"
    await server.close()
    store.close()


async def test_closing_the_server_ends_its_watches(store: Store) -> None:
    server = await serve(store, token=TOKEN)
    async with (
        aiohttp.ClientSession() as session,
        watching(Client(session, server.url), "") as read,
    ):
        await asyncio.wait_for(server.close(), PATIENCE_S)
        assert await read() is None


async def test_a_client_that_goes_away_leaves_nothing_behind(client: Client, store: Store) -> None:
    async with watching(client, "") as read:
        store.create(CONFIGMAPS, configmap("a"))
        await read()
    await async_eventually("the end of the watch", lambda: not store.watches)


async def test_logs_come_from_the_registered_source(
    client: Client, store: Store, api: Server
) -> None:
    asked: list[LogQuery] = []

    async def source(query: LogQuery) -> AsyncIterator[bytes]:
        asked.append(query)
        yield b"first\n"
        yield b"second\n"

    api.api.log_source = source
    created = store.create(PODS, pod())
    path = "/api/v1/namespaces/default/pods/one/log"
    query = "?tailLines=5&previous=true&timestamps=true"
    answer = await client("GET", path + query)
    assert (answer.status, answer.body) == (200, "first\nsecond\n")
    assert asked == [
        LogQuery(
            namespace="default",
            pod="one",
            uid=created["metadata"]["uid"],
            container="main",
            previous=True,
            tail_lines=5,
            timestamps=True,
        )
    ]


async def test_logs_of_several_containers_need_a_choice(client: Client, store: Store) -> None:
    containers = [{"name": name, "image": "x:1"} for name in ("a", "b")]
    store.create(PODS, pod(containers=containers))
    path = "/api/v1/namespaces/default/pods/one/log"
    assert "choose one of: ['a', 'b']" in (await client("GET", path)).body["message"]
    assert (await client("GET", f"{path}?container=c")).status == 400
    assert (await client("GET", f"{path}?container=a")).status == 404  # nothing runs it


async def test_a_source_may_refuse(client: Client, store: Store, api: Server) -> None:
    async def refuse(query: LogQuery) -> AsyncIterator[bytes]:
        raise errors.BadRequest(f"container {query.container} is waiting to start")
        yield b""  # type: ignore[unreachable]

    api.api.log_source = refuse
    store.create(PODS, pod())
    answer = await client("GET", "/api/v1/namespaces/default/pods/one/log")
    assert (answer.status, answer.body["message"]) == (400, "container main is waiting to start")
