"""A GlobalManager for tests: a real WebSocket server that runs the cloud's end of the session."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from http import HTTPStatus

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from common import wire
from edgeai.ids import TaskKey
from globalmanager.edge.sessions.cloud_session import CloudSession, Desired, EdgeSynced, TaskAcked
from tests.localcontroller.builders import TIMING, report_of
from tests.support.waiting import async_eventually


class Cloud:
    """The desired set, and all that edges sent. `port` stays the same over stop and start."""

    def __init__(self) -> None:
        self.desired: dict[TaskKey, Desired] = {}
        self.epoch = 1
        self.refuse: dict[str, str] = {}  # worker -> why its reports are refused
        self.answers: list[
            tuple[int, dict[str, str]]
        ] = []  # status and headers for the next handshakes
        self.acknowledges = True
        self.requests: list[Mapping[str, str]] = []  # headers of handshakes
        self.hellos: list[wire.Hello] = []
        self.held: list[TaskAcked] = []
        self.reports: list[wire.Report] = []
        self.synced = 0
        self.sockets: list[ServerConnection] = []
        self.sessions: list[CloudSession] = []
        self.greeting: bytes | str | None = None  # sent instead of Welcome
        self.on_request: Callable[[], None] = lambda: (
            None
        )  # called before the answer to a handshake
        self.tls: ssl.SSLContext | None = None  # from the next start on
        self.rejects = False  # 401 to every handshake
        self.port = 0
        self._server: Server | None = None

    @property
    def url(self) -> str:
        return f"{'ws' if self.tls is None else 'wss'}://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = await serve(
            self._on_connection,
            "127.0.0.1",
            self.port,
            subprotocols=[Subprotocol(wire.SUBPROTOCOL)],
            process_request=self._on_request,
            compression=None,
            ping_interval=None,
            close_timeout=1,
            ssl=self.tls,
        )
        self.port = next(iter(self._server.sockets)).getsockname()[1]

    async def stop(self) -> None:
        """Stop as by SIGKILL, without close frames."""
        if self._server is not None:
            self.cut()
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    def cut(self) -> None:
        for socket in self.sockets:
            socket.transport.abort()
        self.sockets.clear()

    def _on_request(self, connection: ServerConnection, request: Request) -> Response | None:
        self.requests.append(dict(request.headers.raw_items()))
        self.on_request()
        if self.rejects:
            return connection.respond(HTTPStatus.UNAUTHORIZED, "")
        if not self.answers:
            return None
        status, headers = self.answers.pop(0)
        response = connection.respond(HTTPStatus(status), "")
        response.headers.update(headers)
        return response

    async def _on_connection(self, socket: ServerConnection) -> None:
        session = CloudSession(now=_now(), timing=TIMING)
        self.sockets.append(socket)
        self.sessions.append(session)
        with contextlib.suppress(ConnectionClosed):
            async for data in socket:
                assert isinstance(data, bytes)
                for event in session.receive(data, _now()):
                    self._on_event(session, event)
                await self._flush(socket, session)
                if session.closed is not None:
                    await socket.close(session.closed.code, session.closed.reason)

    def _on_event(self, session: CloudSession, event: object) -> None:
        match event:
            case wire.Hello():
                self.hellos.append(event)
                session.welcome(epoch=self.epoch, session="s-1", desired=self.desired)
            case EdgeSynced():
                self.synced += 1
            case TaskAcked():
                self.held.append(event)
            case wire.Report():
                self.reports.append(event)
                if self.acknowledges:
                    refused = self.refuse.get(event.worker, "")
                    session.acknowledge(event.seq, refusal=refused)

    async def _flush(self, socket: ServerConnection, session: CloudSession) -> None:
        data = session.data_to_send(_now())
        if self.greeting is not None:
            data = [self.greeting] if isinstance(self.greeting, bytes) else []
            if isinstance(self.greeting, str):
                await socket.send(self.greeting)
        for message in data:
            await socket.send(message)

    # ---- for tests ------------------------------------------------------------------------------

    async def desire(self, key: TaskKey, task: Desired | None) -> None:
        """Change the desired set, and send the change to the live session."""
        if task is None:
            self.desired.pop(key, None)
        else:
            self.desired[key] = task
        if self.sockets:
            self.sessions[-1].desire(key, task)
            await self._flush(self.sockets[-1], self.sessions[-1])

    async def until_synced(self, count: int = 1) -> None:
        await async_eventually(f"Synced number {count}", lambda: self.synced >= count)

    async def until_reported(self, worker: str, **expected: object) -> wire.ReportBody:
        """The first report of `worker` whose status or task info are as expected."""

        def found() -> wire.ReportBody | None:
            bodies = [report_of(r.body) for r in self.reports if r.worker == worker]
            return next((body for body in bodies if _matches(body, expected)), None)

        return await async_eventually(f"a report of {worker} with {expected}", found)


def _matches(body: wire.ReportBody, expected: Mapping[str, object]) -> bool:
    facts = {"status": body.status, "reason": body.reason, **body.task_info}
    return all(facts.get(name) == value for name, value in expected.items())


def _now() -> float:
    return asyncio.get_running_loop().time()


@contextlib.asynccontextmanager
async def running_cloud(tls: ssl.SSLContext | None = None) -> AsyncIterator[Cloud]:
    cloud = Cloud()
    cloud.tls = tls
    await cloud.start()
    try:
        yield cloud
    finally:
        await cloud.stop()
