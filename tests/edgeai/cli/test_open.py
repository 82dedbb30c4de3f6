"""`edgeai open` on a cluster: whose token, which pod, and what is said when it cannot be."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
import yaml
from aiohttp import web

from edgeai.cli.api import Object
from edgeai.cli.console import login_address, open_in_cluster
from edgeai.errors import EdgeAIError
from tests.globalmanager.scripted_api import ScriptedApi, serve_scripted
from tests.support.kubeconfig import write_kubeconfig
from tests.support.waiting import async_eventually

NAMESPACE: Final = "edgeai-system"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
PORT: Final = 7001


def pod(name: str, *, ready: bool = True, **metadata: str) -> Object:
    ports = [{"name": "edge", "containerPort": 9000}, {"name": "http", "containerPort": PORT}]
    known = {"name": name, "namespace": NAMESPACE, "uid": f"uid of {name}", "resourceVersion": "1"}
    return {
        "metadata": {**known, **metadata},
        "spec": {"containers": [{"name": "globalmanager", "ports": ports}]},
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
    }


class Console:
    """What a GlobalManager serves, as far as `edgeai open` needs it."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.status = 200
        self.port = 0
        self.carried = 0  # connections that are open

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        app = web.Application()
        app.router.add_post("/login/code", self._code)
        app.router.add_get("/large", self._large)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = runner.addresses[0][1]
        try:
            yield
        finally:
            await runner.cleanup()

    async def _code(self, request: web.Request) -> web.Response:
        self.tokens.append(request.headers["Authorization"])
        return web.Response(text="a-code", status=self.status, headers={"Location": "/login"})

    async def _large(self, _request: web.Request) -> web.Response:
        return web.Response(body=b"x" * 3_000_000)

    async def kubelet(self, request: web.Request) -> web.StreamResponse:
        """pods/portforward, as a kubelet serves it: each channel begins with the port's number."""
        socket = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await socket.prepare(request)
        for channel in (0, 1):
            await socket.send_bytes(bytes([channel]) + PORT.to_bytes(2, "little"))
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)

        async def back() -> None:
            while data := await reader.read(65536):
                await socket.send_bytes(b"\0" + data)
            await socket.close()

        task = asyncio.create_task(back())
        self.carried += 1
        try:
            async for message in socket:
                writer.write(message.data[1:])
        finally:
            self.carried -= 1
            task.cancel()
            writer.close()
            await writer.wait_closed()
        return socket


class Opened:
    """`edgeai open` under way."""

    def __init__(self) -> None:
        self.addresses: list[str] = []
        self.said: list[str] = []

    async def url(self) -> str:
        """Of the port of this machine, once it is told."""
        await async_eventually("the address", lambda: bool(self.addresses), timeout_s=20)
        return self.addresses[0].partition("/login")[0]


Answers = Callable[[web.Request], Awaitable[web.StreamResponse]]


@pytest.fixture
async def api() -> AsyncIterator[ScriptedApi]:
    async with serve_scripted() as api:
        yield api


@pytest.fixture
async def console() -> AsyncIterator[Console]:
    console = Console()
    async with console.serving():
        yield console


@pytest.fixture
async def opening(
    api: ScriptedApi, tmp_path: Path
) -> AsyncIterator[Callable[..., "asyncio.Task[None]"]]:
    """Starts `edgeai open`."""
    tasks = []
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", api.url)

    def start(
        opened: Opened, account: str = "", port: int = 0, file: Path = kubeconfig
    ) -> "asyncio.Task[None]":
        work = open_in_cluster(
            *(file, NAMESPACE),
            context="",
            account=account,
            port=port,
            show=opened.addresses.append,
            say=opened.said.append,
        )
        tasks.append(asyncio.create_task(work))
        return tasks[-1]

    yield start
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


Opening = Callable[..., "asyncio.Task[None]"]


async def test_the_token_of_the_kubeconfig_logs_in_through_a_ready_pod(
    api: ScriptedApi, console: Console, opening: Opening
) -> None:
    api.lists = [
        api.listing(
            pod("gm-0", ready=False),
            pod("gm-1", deletionTimestamp="2026-01-01T00:00:00Z"),
            pod("gm-2"),
            version=1,
        )
    ]
    api.others = [console.kubelet]
    opened = Opened()
    opening(opened)
    url = await opened.url()
    assert opened.addresses == [f"{url}/login?code=a-code"]
    assert url.startswith("http://127.0.0.1:")
    assert console.tokens == ["Bearer letmein"]
    (forwarded,) = api.paths("other")
    assert forwarded.path_qs == f"{PODS}/gm-2/portforward?ports={PORT}"


async def test_what_is_carried_arrives_whole(
    api: ScriptedApi, console: Console, opening: Opening
) -> None:
    api.lists = [api.listing(pod("gm"), version=1)]
    api.others = [console.kubelet]
    opened = Opened()
    opening(opened)
    url = await opened.url()
    async with aiohttp.ClientSession() as session, session.get(f"{url}/large") as response:
        assert await response.read() == b"x" * 3_000_000
    assert opened.said == []


async def test_another_pod_takes_over_from_one_that_is_gone(
    api: ScriptedApi, console: Console, opening: Opening
) -> None:
    api.lists = [api.listing(pod("gm-0"), version=1), api.listing(pod("gm-1"), version=2)]
    api.others = [console.kubelet, api.failure(404, "NotFound", 'pods "gm-0" not found')]
    api.others.append(console.kubelet)
    opened = Opened()
    opening(opened)
    url = await opened.url()
    async with aiohttp.ClientSession() as session, session.get(f"{url}/large") as response:
        assert response.status == 200
    assert [each.path.split("/")[-2] for each in api.paths("other")] == ["gm-0", "gm-0", "gm-1"]
    assert opened.said == []


async def test_a_service_account_logs_in_where_it_is_named(
    api: ScriptedApi, console: Console, opening: Opening
) -> None:
    api.lists = [api.listing(pod("gm"), version=1)]
    api.others = [api.json({"status": {"token": "of-the-viewer"}}), console.kubelet]
    opened = Opened()
    opening(opened, account="team/viewer")
    await opened.url()
    assert console.tokens == ["Bearer of-the-viewer"]
    asked = api.paths("other")[0]
    assert asked.path == "/api/v1/namespaces/team/serviceaccounts/viewer/token"


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        (404, r"disabled \(--console off\)"),
        (303, "does not accept the token"),
        (418, "does not give a login code: HTTP Error 418"),
    ],
)
async def test_a_console_that_gives_no_code_is_told(
    api: ScriptedApi, console: Console, opening: Opening, status: int, problem: str
) -> None:
    """A console sends whom it does not know to its page of the login."""
    api.lists = [api.listing(pod("gm"), version=1)]
    api.others = [console.kubelet]
    console.status = status
    with pytest.raises(EdgeAIError, match=problem):
        await opening(Opened())


@pytest.mark.parametrize("pods", [[], [pod("gm", ready=False)]])
async def test_no_ready_pod_is_told(api: ScriptedApi, opening: Opening, pods: list[Any]) -> None:
    api.lists = [api.listing(*pods, version=1)]
    with pytest.raises(EdgeAIError, match=r"Deployment edgeai-system/globalmanager: .*doctor"):
        await opening(Opened())


async def test_a_right_that_is_missing_is_told(api: ScriptedApi, opening: Opening) -> None:
    problem = 'pods "gm" is forbidden: User "u" cannot get resource "pods/portforward"'
    api.lists = [api.listing(pod("gm"), version=1)]
    api.others = [api.failure(403, "Forbidden", problem)]
    opened = Opened()
    with pytest.raises(EdgeAIError):
        await opening(opened)
    assert any("cannot get resource" in line and "administrator" in line for line in opened.said)


@pytest.mark.parametrize("user", [{}, {"username": "ann", "password": "secret"}])
async def test_a_kubeconfig_without_a_token_asks_for_a_service_account(
    api: ScriptedApi, opening: Opening, tmp_path: Path, user: dict[str, str]
) -> None:
    file = write_kubeconfig(tmp_path / "without", api.url)
    content = yaml.safe_load(file.read_text())
    content["users"][0]["user"] = user
    file.write_text(yaml.safe_dump(content))
    with pytest.raises(EdgeAIError, match=f"{file} .*--service-account NAMESPACE/NAME"):
        await opening(Opened(), file=file)


@pytest.mark.parametrize("account", ["viewer", "team/", "/viewer", "team/a/b", "team/../x"])
async def test_an_account_of_another_form_is_refused(opening: Opening, account: str) -> None:
    with pytest.raises(EdgeAIError, match="NAMESPACE/NAME, like default/viewer"):
        await opening(Opened(), account=account)


async def test_a_port_that_is_taken_is_told(
    api: ScriptedApi, console: Console, opening: Opening
) -> None:
    api.lists = [api.listing(pod("gm"), version=1)]
    with pytest.raises(EdgeAIError, match=f"port {console.port} of this machine: .*--port"):
        await opening(Opened(), port=console.port)


async def test_a_connection_that_the_pod_ends_ends_here_too(
    api: ScriptedApi, console: Console, opening: Opening
) -> None:
    api.lists = [api.listing(pod("gm"), version=1)]
    api.others = [console.kubelet]
    opened = Opened()
    opening(opened)
    port = int((await opened.url()).rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /large HTTP/1.1\r\nHost: console\r\nConnection: close\r\n\r\n")
    async with asyncio.timeout(5):
        assert (await reader.read()).endswith(b"x")
    writer.close()
    await writer.wait_closed()
    assert opened.said == []


async def test_a_connection_that_the_browser_ends_leaves_nothing_behind(
    api: ScriptedApi, console: Console, opening: Opening
) -> None:
    api.lists = [api.listing(pod("gm"), version=1)]
    api.others = [console.kubelet]
    opened = Opened()
    opening(opened)
    port = int((await opened.url()).rpartition(":")[2])
    await async_eventually("no connection", lambda: console.carried == 0)
    _reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await async_eventually("a connection", lambda: console.carried == 1)
    writer.close()
    await writer.wait_closed()
    await async_eventually("no connection", lambda: console.carried == 0)
    assert opened.said == []


async def test_the_same_problem_is_told_once_and_cannot_write_to_the_terminal(
    api: ScriptedApi, console: Console, opening: Opening
) -> None:
    api.lists = [api.listing(pod("gm"), version=1)]
    api.others = [console.kubelet, api.failure(403, "Forbidden", "not\x1b[2J you")]
    opened = Opened()
    opening(opened)
    port = int((await opened.url()).rpartition(":")[2])
    for _ in range(2):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
    (said,) = opened.said
    assert ("you" in said, "\x1b" in said) == (True, False)


async def test_the_token_goes_to_no_proxy(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    await asyncio.to_thread(login_address, f"http://127.0.0.1:{console.port}", "secret")
    assert console.tokens == ["Bearer secret"]
