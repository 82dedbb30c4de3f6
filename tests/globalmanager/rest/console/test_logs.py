"""The log of a container, read live with the rights of the person who looks."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from edgeai.kube.client import KubeClient
from edgeai.kube.sender import ClientSettings
from globalmanager.rest.access import KubernetesAccess
from globalmanager.rest.console.actions import CallersApi
from globalmanager.rest.console.logs import LogLimits, containers_of
from globalmanager.tokenreviews import TokenReviews
from tests.globalmanager.rest.authority import Authority
from tests.globalmanager.rest.cluster import RestSide
from tests.globalmanager.rest.console.conftest import BEN, Browser
from tests.globalmanager.rest.console.test_events import JOB, REF, pod
from tests.globalmanager.scripted_api import ScriptedApi
from tests.support.waiting import async_eventually

LOG = "/jobs/pytorchjobs.kubeflow.org/a/digits/logs"
POD = {
    **pod("digits-0"),
    "spec": {"containers": [{"name": "pytorch"}], "initContainers": [{"name": "init"}]},
}
STREAM = {"Accept": "text/event-stream"}


class LogApi:
    """Answers requests for logs. Lines that a test adds come later."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str], str]] = []  # (path, query, token)
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()
        self.status, self.open = 200, 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        token = request.headers["Authorization"]
        self.asked.append((request.path, dict(request.query), token))
        if self.status != 200:
            body = {"kind": "Status", "message": "not for you", "reason": "Forbidden"}
            return web.json_response({**body, "code": self.status}, status=self.status)
        response = web.StreamResponse()
        await response.prepare(request)
        self.open += 1
        try:
            while line := await self.lines.get():
                await response.write(line)
        except ConnectionError:
            pass
        finally:
            self.open -= 1
        return response


@pytest.fixture
def log_api(authority: Authority) -> LogApi:
    api = LogApi()
    authority.others = api.answer
    return api


@pytest.fixture
async def guarded(
    authority: Authority, scripted: ScriptedApi, scripted_client: KubeClient
) -> AsyncIterator[RestSide]:
    del authority, scripted
    callers = scripted_client.for_callers(ClientSettings())
    access = KubernetesAccess(TokenReviews(scripted_client))
    async with callers, RestSide(access, callers_api=CallersApi(callers)).running() as world:
        world.cluster.objects, world.cluster.pods_of[REF] = [JOB], [POD]
        yield world


def put(api: LogApi, *lines: str) -> None:
    for line in lines:
        api.lines.put_nowait(f"2026-01-02T03:04:05Z {line}\n".encode())


async def events_of(browser: Browser, path: str, until: str) -> str:
    """What the stream sends until a text comes."""
    url, text = browser.world.url + path, ""
    async with browser.client.get(url, headers=STREAM) as response:
        assert response.status == 200, await response.text()
        while until not in text:
            data = await response.content.readany()
            assert data, text
            text += data.decode()
    return text


async def test_a_log_comes_live_with_the_callers_own_token(
    browser: Browser, log_api: LogApi
) -> None:
    await browser.log_in("ann's")
    put(log_api, "epoch 1", "<b>\u202e")
    reading = asyncio.create_task(events_of(browser, f"{LOG}?pod=digits-0", "epoch 2"))
    await async_eventually("a request", lambda: log_api.open == 1)
    put(log_api, "epoch 2")
    text = await reading
    assert "event: line\ndata: 2026-01-02T03:04:05Z epoch 1\n" in text
    assert "\u202e" not in text
    [(path, query, token)] = log_api.asked
    assert (path, token) == ("/api/v1/namespaces/a/pods/digits-0/log", "Bearer ann's")
    assert (query["container"], query["follow"], query["tailLines"]) == ("pytorch", "true", "500")

    def is_left() -> bool:
        put(log_api, "nobody reads this")
        return log_api.open == 0

    await async_eventually("the end of the request", is_left)


async def test_the_previous_attempt_is_another_log_and_ends(
    browser: Browser, log_api: LogApi
) -> None:
    await browser.log_in("ann's")
    put(log_api, "Traceback")
    log_api.lines.put_nowait(b"")
    path = f"{LOG}?pod=digits-0&container=init&previous=1"
    text = await events_of(browser, path, "event: end")
    assert text.index("Traceback") < text.index("The log ends here.")
    [(_, query, _)] = log_api.asked
    assert (query["container"], query["previous"], "follow" in query) == ("init", "true", False)
    page = (await browser.get(path)).text
    assert f'data-source="{path.replace("&", "&amp;")}"' in page
    assert page.count('aria-current="page"') == 2  # container and attempt
    assert len(log_api.asked) == 1  # the page itself asks for nothing


async def test_who_may_not_read_a_log_is_told_so_and_sees_none(
    browser: Browser, log_api: LogApi, guarded: RestSide
) -> None:
    log_api.status = 403
    await browser.log_in("ann's")
    text = await events_of(browser, f"{LOG}?pod=digits-0", "event: end")
    assert "You may not read this log: ask for the right get pods/log" in text
    other = Browser(guarded)
    async with other.client:
        await other.log_in("ben's")  # may list neither the job nor its pods
        assert (await other.get(f"{LOG}?pod=digits-0")).status == 404
    assert len(log_api.asked) == 1


async def test_who_has_a_token_that_the_cluster_no_longer_accepts_is_told_to_log_in(
    browser: Browser, log_api: LogApi
) -> None:
    log_api.status = 401
    await browser.log_in("ann's")
    text = await events_of(browser, f"{LOG}?pod=digits-0", "event: end")
    assert "Your token is no longer valid: log in again." in text
    assert "kubeconfig" not in text


async def test_a_line_is_shown_as_a_terminal_shows_it_at_last(
    browser: Browser, log_api: LogApi
) -> None:
    await browser.log_in("ann's")
    bar = "\r".join(f"{number:3}% {'#' * number}" for number in range(101))
    put(log_api, bar, f"{bar}\x1b[K\r", "\x1b[1;31mred\x1b[0m [31m]", "")
    log_api.lines.put_nowait(b"")
    text = await events_of(browser, f"{LOG}?pod=digits-0", "event: end")
    assert text.count(f"data: 2026-01-02T03:04:05Z 100% {'#' * 100}\n") == 2
    assert "Z red [31m]\n" in text
    assert " 99%" not in text


@pytest.mark.parametrize("name", ["", "other", "../secrets/x", "digits-0/log?x="])
async def test_only_pods_of_the_job_have_a_log_there(
    browser: Browser, log_api: LogApi, name: str
) -> None:
    await browser.log_in("ann's")
    for headers in ({}, STREAM):
        assert (await browser.get(f"{LOG}?pod={name}", **headers)).status == 404
    assert log_api.asked == []


async def test_who_may_list_jobs_and_no_pods_gets_no_log(
    browser: Browser, log_api: LogApi, authority: Authority, guarded: RestSide
) -> None:
    authority.rights_of[BEN["username"]] = [
        {"verb": "list", "namespace": "a", "resource": "pytorchjobs"}
    ]
    await browser.log_in("ben's")
    path = f"{LOG}?pod=digits-0&namespace=a"
    assert (await browser.get(path, **STREAM)).status == 404
    assert log_api.asked == []


async def test_one_user_reads_a_bounded_number_of_logs(
    browser: Browser, log_api: LogApi, guarded: RestSide
) -> None:
    guarded.console._logs._limits = LogLimits(streams_of_one=1)
    await browser.log_in("ann's")
    put(log_api, "x")
    reading = asyncio.create_task(events_of(browser, f"{LOG}?pod=digits-0", "never"))
    await async_eventually("a request", lambda: log_api.open == 1)
    assert (await browser.get(f"{LOG}?pod=digits-0", **STREAM)).status == 429
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    await async_eventually("room again", lambda: not guarded.console._logs._of_tenant)


@pytest.mark.parametrize(
    "piece", [b"w" * 999 + b"\n", b"w" * 999, b"\n"], ids=["lines", "no line end", "blank lines"]
)
async def test_a_fast_container_is_read_no_faster_than_its_page(
    browser: Browser, authority: Authority, guarded: RestSide, piece: bytes
) -> None:
    sent, before = 0, -1

    async def write(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            while True:
                await response.write(piece * (65536 // len(piece)))
                sent += 65536
        return response

    authority.others = write
    guarded.console._logs._limits = LogLimits(waiting=3, pause_s=60.0, line_chars=10)
    await browser.log_in("ann's")
    url, data = f"{browser.world.url}{LOG}?pod=digits-0", b""
    most = 32 << 20  # the buffers of the sockets, and a few pieces
    async with browser.client.get(url, headers=STREAM) as response:
        while not sent or before < sent < most:
            before = sent
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    while True:
                        data += await response.content.readany()
    assert data.count(b"event: line") <= 4
    assert b"w" * 11 not in data
    assert sent < most


@pytest.mark.parametrize(
    "odd", [{}, {"spec": 7, "status": []}, {"spec": {"containers": [7, {"name": ""}]}}]
)
def test_a_pod_of_any_form_has_containers(odd: Any) -> None:
    assert containers_of(odd) == []
    assert containers_of(POD) == ["pytorch", "init"]
