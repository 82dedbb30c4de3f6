"""One cloud side, one whole LocalController and one target, joined by real sockets."""

import asyncio
import base64
import contextlib
import hashlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from common import wire
from edgeai.ids import TaskKey, Uid, WorkerName
from edgeai.worker.environment import Address, LCServer
from globalmanager.contract import Assignment, ServicePort
from localcontroller import app
from localcontroller.settings import Settings
from tests.globalmanager.edge.world import A, EdgeSide, token
from tests.support.waiting import async_eventually

SECRET = "5" * 64
SERVICE = "digits-cloud"
HOST = f"{SERVICE}.default"
WORKER = WorkerName("digits-edge")
UID = Uid("uid-digits")
KEY = TaskKey("jointinferenceservices.edgeai.io/default/digits")

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Sends all bytes back, and ends when the peer has ended."""
    while data := await reader.read(64 * 1024):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


async def one_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """An HTTP server that answers with the request, as it came."""
    head = await reader.readuntil(b"\r\n\r\n")
    size = next(
        (int(line[15:]) for line in head.lower().split(b"\r\n") if line[:15] == b"content-length:"),
        0,
    )
    body = head + await reader.readexactly(size)
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    await writer.drain()


class RelayWorld:
    """`cloud` is the GlobalManager's edge side; the LocalController of node A is whole."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.cloud = EdgeSide(directory / "tokens", **options)
        self._directory = directory
        # An address and a port of its own: another process may take a port that was free just now,
        # and a LocalController with default settings takes port 9100 of all addresses.
        self.host = f"127.{1 + secrets.randbelow(62)}.{secrets.randbelow(250)}.1"
        self.port = 20_000 + secrets.randbelow(10_000)
        self.target_port = 0
        self.accepted = 0  # connections to the target
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def open_targets(self) -> int:
        """Number of connections that the target holds."""
        return len(self._writers)

    @contextlib.asynccontextmanager
    async def running(
        self, handler: Handler = echo, *, target_port: int = 0
    ) -> AsyncIterator["RelayWorld"]:
        """Args: target_port: of a target that runs already; 0: a target with `handler`"""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.accepted += 1
            self._writers.add(writer)
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await handler(reader, writer)
            self._writers.discard(writer)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        self.target_port = target_port or server.sockets[0].getsockname()[1]
        try:
            async with self.cloud.running(), self._edge():
                self.assign()
                await self.assigned()
                yield self
        finally:
            server.close()
            for writer in self._writers:
                writer.transport.abort()

    def assign(
        self,
        key: TaskKey = KEY,
        uid: Uid = UID,
        *,
        worker: WorkerName = WORKER,
        secret: str = SECRET,
        targets: tuple[ServicePort, ...] | None = None,
    ) -> None:
        """Give the node a task whose worker may reach the target."""
        namespace, name = key.split("/")[1:]
        grant = wire.WorkerGrant(hashlib.sha256(secret.encode()).hexdigest())
        body = wire.AssignmentBody(namespace=namespace, name=name, workers={worker: grant})
        named = (ServicePort(SERVICE, self.target_port),) if targets is None else targets
        assignment = Assignment(key, uid, 1, body, targets=frozenset(named))
        self.cloud.statuses.by_uid.setdefault(uid, {})
        self.cloud.desired.assign(key, {A: assignment})
        for service, *_ in named:
            self.cloud.services[uid, namespace, service] = "127.0.0.1"

    async def assigned(self) -> None:
        def is_held() -> bool | None:
            sessions = list(self.cloud.sessions.snapshot())
            return any(each.synced and each.held == each.desired for each in sessions) or None

        await async_eventually("the node holds its tasks", is_held)

    @contextlib.asynccontextmanager
    async def _edge(self) -> AsyncIterator[None]:
        (self._directory / "token").write_text(token(A))
        settings = Settings(
            node_name=A,
            global_manager=self.cloud.url.rstrip("/"),
            edge_plaintext="allow",
            state_dir=self._directory / "state",
            worker_address=f"{self.host}:{self.port}",
            status_address="127.0.0.1:0",
            token_file=self._directory / "token",
            credentials_dir=self._directory / "keys",
            reconnect_min_s=0.05,
            reconnect_max_s=0.2,
        )
        stop = asyncio.Event()
        running = asyncio.create_task(app.run(settings, stop), name="LocalController")
        try:
            yield
        finally:
            stop.set()
            await running

    @property
    def proxy_url(self) -> str:
        """As HTTP_PROXY of a worker has it."""
        return f"http://{WORKER}:{SECRET}@{self.host}:{self.port}"

    @property
    def lc_server(self) -> LCServer:
        return LCServer(Address(self.host, self.port), f"/w/{SECRET}")

    # ---- a worker -------------------------------------------------------------------------------

    async def ask(
        self, head: str, *, worker: str = WORKER, secret: str = SECRET
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Send the head of a request to the proxy, as this worker."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        host = "" if "\r\nHost:" in head else "\r\nHost: any"
        writer.write(f"{head}{host}\r\n{authorization(worker, secret)}\r\n\r\n".encode())
        return reader, writer

    async def connect(
        self, host: str = HOST, port: int | None = None, **who: str
    ) -> tuple[int, asyncio.StreamReader, asyncio.StreamWriter]:
        """CONNECT to a target. Returns: the status, and the connection after the head"""
        at = f"{host}:{port or self.target_port}"
        reader, writer = await self.ask(f"CONNECT {at} HTTP/1.1\r\nHost: {at}", **who)
        return await status_of(reader), reader, writer


def authorization(worker: str, secret: str) -> str:
    return "Proxy-Authorization: Basic " + base64.b64encode(f"{worker}:{secret}".encode()).decode()


async def status_of(reader: asyncio.StreamReader) -> int:
    head = await reader.readuntil(b"\r\n\r\n")
    return int(head.split(b" ")[1])


async def message_of(reader: asyncio.StreamReader) -> str:
    """The text of an error of the proxy."""
    return str(msgspec.json.decode(await reader.read(), type=dict[str, Any])["message"])
