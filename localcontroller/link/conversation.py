"""One connection to the GlobalManager: socket, session and ledger, joined.

The link creates a Conversation for each connection. A Conversation moves frames between the socket,
the session (the protocol) and the ledger (the durable state). It makes no decision about tasks or
workers, and acknowledges a frame after its commit. While the ledger cannot commit, the frames wait
in their order, it tries the commit again, and the GlobalManager waits for the acknowledgement. A
new view of the ledger wakes it to send reports (docs/architecture.md, "The way of a status").
"""

import asyncio
import contextlib
from typing import Final, NoReturn, Protocol

import msgspec
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, WebSocketException

from common import wire
from common.clock import loop_time
from common.logs import get_logger
from common.session import Closed, Timing
from common.tasks import TaskGroup, wait_at_most
from edgeai.errors import EdgeAIError, Overloaded, ProtocolError, Unavailable
from localcontroller.ledger.ledger import CloudFrame, Ledger
from localcontroller.ledger.outbox import ReportAcked
from localcontroller.link.edge_session import EdgeSession
from localcontroller.traces import NO_TRACES, TaskTraces

log = get_logger(__name__)

SEND_S: Final = 10.0
CLOSE_S: Final = 1.0
RETRY_COMMIT_S: Final = 2.0
MAX_INBOX: Final = 512  # frames; the windows of both sides are far smaller
MAX_BATCH: Final = 64
MAX_CLOSE_REASON_BYTES: Final = 123  # a close frame carries no longer reason (RFC 6455 §5.5.1)
ABNORMAL: Final = 1006  # the connection ended without a close frame (RFC 6455 §7.4.1)


class SessionEnded(EdgeAIError):
    """The session is over; `code` is the close code of the side that ended it."""

    def __init__(self, code: int, reason: str) -> None:
        self.code, self.reason = code, reason
        super().__init__(f"session ended: {reason or 'no reason given'} ({code})")


class Listener(Protocol):
    """Receives the events of a conversation."""

    def on_welcomed(self, welcome: wire.Welcome) -> None: ...

    def on_synced(self) -> None:
        """The ledger holds the whole desired set of the GlobalManager."""

    def on_report_settled(self, report: ReportAcked) -> None: ...


class Conversation:
    """One connection from its handshake to its end: the loops around one session.

    Args:
        send_s: limit for sending one message; a peer that does not read exceeds this limit
        retry_commit_s: delay from a failed commit to the next try
    """

    def __init__(
        self,
        ws: ClientConnection,
        ledger: Ledger,
        listener: Listener,
        *,
        timing: Timing,
        send_s: float = SEND_S,
        retry_commit_s: float = RETRY_COMMIT_S,
        traces: TaskTraces = NO_TRACES,
    ) -> None:
        self._traces = traces
        self._ws = ws
        self._ledger = ledger
        self._listener = listener
        self._send_s = send_s
        self._retry_commit_s = retry_commit_s
        self._view = ledger.view
        self._session = EdgeSession(
            now=loop_time(),
            timing=timing,
            instance=self._view.ledger_id,
            tasks=self._view.task_versions,
            epoch=self._view.epoch,
        )
        self._inbox: asyncio.Queue[CloudFrame] = asyncio.Queue(MAX_INBOX)
        self._outgoing = asyncio.Event()  # the session may have something to send
        self._last_revision = 0  # revision of the newest report that the session got

    async def run(self) -> NoReturn:
        """Run until a side ends the session. Raises: SessionEnded, ProtocolError, Unavailable, …"""
        try:
            async with TaskGroup() as group:
                group.create_task(self._receive(), name="link-receive")
                group.create_task(self._commit(), name="link-commit")
                group.create_task(self._send(), name="link-send")
                group.create_task(self._watch_ledger(), name="link-ledger")
        except BaseExceptionGroup as problems:
            raise problems.exceptions[0] from problems
        raise AssertionError("unreachable: every loop ends by an exception")

    async def close(self) -> None:
        """Close the connection, and wait at most 2 * CLOSE_S for the peer."""
        closed = self._session.close(wire.Close.GOING_AWAY, "LocalController goes away")
        reason = closed.reason.encode()[:MAX_CLOSE_REASON_BYTES].decode(errors="ignore")
        with contextlib.suppress(TimeoutError, WebSocketException, OSError):
            async with asyncio.timeout(2 * CLOSE_S):
                await self._ws.close(closed.code, reason)
        # ws.close() waits for the write buffer, which a stalled peer keeps full.
        self._ws.transport.abort()

    # ---- receive --------------------------------------------------------------------------------

    async def _receive(self) -> None:
        while True:
            try:
                data = await self._ws.recv()
            except ConnectionClosed as error:
                raise _session_ended(error) from error
            if isinstance(data, str):
                self._session.close(wire.Close.PROTOCOL, "text message")
                raise ProtocolError(wire.Close.PROTOCOL, "GlobalManager sent a text message")
            await self._handle(self._session.receive(data, loop_time()))
            self._outgoing.set()

    async def _handle(self, events: list[msgspec.Struct]) -> None:
        for event in events:
            match event:
                case wire.Welcome():
                    await self._ledger.remember_epoch(event.epoch)
                    self._listener.on_welcomed(event)
                case Closed():
                    raise SessionEnded(event.code, event.reason)
                case wire.Assign() | wire.Withdraw() | wire.Synced() | ReportAcked():
                    self._enqueue(event)

    def _enqueue(self, frame: CloudFrame) -> None:
        if isinstance(frame, wire.Assign):
            self._traces.arrived(frame)
        try:
            self._inbox.put_nowait(frame)
        except asyncio.QueueFull:
            self._session.close(wire.Close.PROTOCOL, "more frames than the window allows")
            raise ProtocolError(wire.Close.PROTOCOL, "GlobalManager ignores its window") from None

    # ---- commit ---------------------------------------------------------------------------------

    async def _commit(self) -> None:
        while True:
            frames = [await self._inbox.get()]
            while len(frames) < MAX_BATCH and not self._inbox.empty():
                frames.append(self._inbox.get_nowait())
            refusals = await self._apply(frames)
            self._acknowledge(frames, refusals)

    async def _apply(self, frames: list[CloudFrame]) -> list[str]:
        """Commit `frames`, with retries. Returns: for each frame a refusal; "": applied."""
        while True:
            try:
                return await self._ledger.apply(frames)
            except Unavailable as error:
                log.warning("cannot commit", frames=len(frames), reason=str(error))
            except EdgeAIError as error:
                if len(frames) == 1:
                    return [str(error)]
                return [refusal for frame in frames for refusal in await self._apply([frame])]
            await asyncio.sleep(self._retry_commit_s)

    def _acknowledge(self, frames: list[CloudFrame], refusals: list[str]) -> None:
        for frame, refusal in zip(frames, refusals, strict=True):
            if isinstance(frame, ReportAcked):
                self._listener.on_report_settled(frame)
                continue
            if refusal:
                log.error("frame refused", frame=type(frame).__name__, reason=refusal)
            if isinstance(frame, wire.Assign):
                self._traces.settled(frame, refusal)
            self._session.acknowledge(frame.seq, refusal=refusal)
            if isinstance(frame, wire.Synced):
                self._listener.on_synced()
        self._outgoing.set()

    # ---- send -----------------------------------------------------------------------------------

    async def _watch_ledger(self) -> None:
        view = self._view
        while view.ledger_id == self._view.ledger_id:
            view = await self._ledger.change_since(view)
            self._outgoing.set()
        # Hello carries the ledger's identity, so a new ledger needs a new session.
        raise Unavailable("the ledger was replaced; a new session tells the GlobalManager")

    async def _send(self) -> None:
        while True:
            self._outgoing.clear()
            await self._offer_reports()
            for event in self._session.tick(loop_time()):
                if isinstance(event, Closed):
                    raise SessionEnded(event.code, event.reason)
            for data in self._session.data_to_send(loop_time()):
                await self._write(data)
            await wait_at_most(max(0.0, self._session.next_tick() - loop_time()), self._outgoing)

    async def _offer_reports(self) -> None:
        """Give the session the unacknowledged reports that are new to it."""
        if not self._session.is_open or self._ledger.view.revision <= self._last_revision:
            return
        try:
            reports = await self._ledger.reports(after=self._last_revision)
        except Overloaded:
            return  # the ledger is busy with changes, and each change calls this again
        for report in reports:
            self._session.report(report)
            self._last_revision = report.revision

    async def _write(self, data: bytes) -> None:
        try:
            async with asyncio.timeout(self._send_s):
                await self._ws.send(data)
        except TimeoutError as error:
            # Only abort() ends a connection whose write buffer is full: keepalive and close() wait.
            self._ws.transport.abort()
            reason = f"nothing could be sent for {self._send_s:g} s"
            raise SessionEnded(wire.Close.TIMEOUT, reason) from error


def _session_ended(error: ConnectionClosed) -> SessionEnded:
    if error.rcvd is not None:
        return SessionEnded(error.rcvd.code, error.rcvd.reason)
    return SessionEnded(ABNORMAL, str(error))
