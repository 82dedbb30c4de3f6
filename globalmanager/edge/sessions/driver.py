"""Drives one CloudSession over one WebSocket: bytes, time and closing.

Made by Sessions for each authenticated connection; `run` lasts as long as the connection. What a
Hello and a report mean is decided by Sessions. Every send has a deadline: a peer that does not
read is cut off, because neither keepalive nor close() ends a connection with a full buffer.
"""

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

import msgspec
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from common import wire
from common.cloud_session import (
    CloudSession,
    Desired,
    EdgeSynced,
    HelloReceived,
    Reported,
    TaskAcked,
)
from common.ids import NodeName, TaskKey
from common.logs import get_logger
from common.session import WINDOW, Timing
from common.tasks import TaskGroup
from globalmanager.edge.metrics import EdgeMetrics

log = get_logger(__name__)

MAX_REASON_BYTES: Final = 123  # of a close frame, RFC 6455 §5.5
# Acknowledgements that wait to be sent. A peer that keeps to the window never has so many.
MAX_ANSWERS: Final = 16 * WINDOW
_MIN_TICK_S: Final = 0.1  # a due beat may wait behind a send under way; then do not spin
_BEAT: Final = wire.encode(wire.Beat())[0]


class DriverTiming(msgspec.Struct, frozen=True, kw_only=True):
    session: Timing = Timing()
    send_s: float = 10.0
    """One message must be taken by the peer's buffers within this time."""
    close_s: float = 1.0
    """The peer has so long to answer a close."""


class SessionDriver:
    """One connection of one node. Also the inbox's Sender.

    Args:
        on_hello: the edge introduced itself; called within `run`, it calls `welcome` or `close`
        on_report: takes in a report, within `run`; False: call it no more until `resume`
    """

    def __init__(
        self,
        *,
        node: NodeName,
        session_id: str,
        websocket: ServerConnection,
        on_hello: Callable[["SessionDriver"], None],
        on_report: Callable[["SessionDriver", wire.Report], bool],
        timing: DriverTiming,
        metrics: EdgeMetrics,
    ) -> None:
        self.node = node
        self.session_id = session_id
        self.ledger_id = ""  # of the node's ledger; known from Hello on
        self.synced = False  # the node has held its whole desired set since it connected
        self.last_report_at: datetime | None = None
        self._websocket = websocket
        self._on_hello = on_hello
        self._on_report = on_report
        self._timing = timing
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._session = CloudSession(now=self._loop.time(), timing=timing.session)
        # Changes of the desired set that the node has not acknowledged: what, and since when.
        self._asked_at: dict[TaskKey, tuple[Desired | None, float]] = {}
        self._wake = asyncio.Event()  # the writer has something to do
        self._may_read = asyncio.Event()  # the inbox has room
        self._may_read.set()
        self._answers = 0  # acknowledgements that the writer has not taken yet
        self._answers_taken = asyncio.Event()  # fewer than MAX_ANSWERS wait
        self._answers_taken.set()

    @property
    def is_live(self) -> bool:
        return self._session.closed is None

    @property
    def protocol_version(self) -> int:
        return self._session.version

    @property
    def held(self) -> Mapping[TaskKey, wire.Held]:
        """What the edge is known to hold."""
        return self._session.held

    def is_on(self, websocket: ServerConnection) -> bool:
        return self._websocket is websocket

    async def run(self) -> None:
        """Serve until the connection is over."""
        self._timer = self._loop.call_at(self._session.next_tick(), self._on_timer)
        try:
            async with TaskGroup() as tasks:
                writer = tasks.create_task(self._write(), name=f"edge writer {self.node}")
                await self._read()
                writer.cancel()
        finally:
            self.close(wire.Close.GOING_AWAY, "connection ended")
            self._timer.cancel()

    def welcome(self, *, epoch: int, desired: Mapping[TaskKey, Desired]) -> None:
        for key, task in desired.items():
            self._note_asked(key, task)
        self._session.welcome(epoch=epoch, session=self.session_id, desired=desired)
        self._wake.set()

    def desire(self, key: TaskKey, task: Desired | None) -> None:
        """The node must hold this now instead; None: not at all."""
        self._note_asked(key, task)
        self._session.desire(key, task)
        self._wake.set()

    def acknowledge(self, seq: int, *, refused: str = "") -> None:
        if not self.is_live:
            return
        self._session.acknowledge(seq, refused=refused)
        self._wake.set()
        self._answers += 1
        if self._answers >= MAX_ANSWERS:
            self._answers_taken.clear()

    def resume(self) -> None:
        self._may_read.set()

    def close(self, code: int, reason: str) -> None:
        """End the session; the connection follows. The first reason stays."""
        if self.is_live:
            self._session.close(code, reason)
        self._after_session()

    # ---- reading ----

    async def _read(self) -> None:
        """Take messages until the connection is closed; a closed session ignores them."""
        try:
            while True:
                await self._may_read.wait()
                await self._answers_taken.wait()
                self._receive(await self._websocket.recv())
        except ConnectionClosed:
            code, reason = self._websocket.close_code, self._websocket.close_reason
            self.close(code or wire.Close.GOING_AWAY, reason or "connection closed by the peer")

    def _receive(self, message: str | bytes) -> None:
        self._metrics.messages_in.inc()
        if isinstance(message, str):
            self.close(wire.Close.PROTOCOL, "text message; frames are binary")
            return
        for event in self._session.receive(message, self._loop.time()):
            self._on_event(event)
        self._after_session()

    def _on_event(self, event: msgspec.Struct) -> None:
        match event:
            case Reported(report):
                if not self._on_report(self, report):
                    self._may_read.clear()
            case TaskAcked():
                self._on_task_acked(event)
            case EdgeSynced():
                self.synced = True
            case HelloReceived():
                self.ledger_id = event.instance
                self._on_hello(self)

    def _after_session(self) -> None:
        """The session may have something to send, or be over."""
        self._wake.set()
        if not self.is_live:
            self._may_read.set()
            self._answers_taken.set()

    def _on_task_acked(self, ack: TaskAcked) -> None:
        if ack.refused:
            self._metrics.assignments_refused.inc()
            log.warning("node refused a task", node=self.node, task=ack.key, reason=ack.refused)
        asked = self._asked_at.get(ack.key)
        if asked is None or version_of(asked[0]) != ack.version:
            return  # an older version than the newest that was sent
        del self._asked_at[ack.key]
        if not ack.refused:
            self._metrics.assign_to_ack_s.observe(self._loop.time() - asked[1])

    def _note_asked(self, key: TaskKey, task: Desired | None) -> None:
        held = self.held.get(key)
        if (held.version if held else None) != version_of(task):
            self._asked_at[key] = (task, self._loop.time())
        else:
            self._asked_at.pop(key, None)

    # ---- time ----

    def _on_timer(self) -> None:
        now = self._loop.time()
        if not self._may_read.is_set():
            # We do not read now, so the peer's silence proves nothing: count as if it had sent a
            # beat. A dead peer is still found, because it does not take our beats.
            self._session.receive(_BEAT, now)
        self._session.tick(now)
        self._after_session()
        if self.is_live:
            at = max(self._session.next_tick(), now + _MIN_TICK_S)
            self._timer = self._loop.call_at(at, self._on_timer)

    # ---- writing ----

    async def _write(self) -> None:
        while self.is_live:
            self._wake.clear()
            for message in self._encoded():
                await self._send(message)
            await self._wake.wait()
        await self._close_websocket()

    def _encoded(self) -> list[bytes]:
        self._answers = 0
        self._answers_taken.set()
        try:
            return self._session.data_to_send(self._loop.time())
        except ValueError as error:  # more tasks than one Synced can name
            log.error("node cannot be served", node=self.node, problem=str(error))
            self.close(wire.Close.TOO_BIG, "desired set too large")
            return []

    async def _send(self, message: bytes) -> None:
        if not self.is_live:
            return
        try:
            async with asyncio.timeout(self._timing.send_s):
                await self._websocket.send(message)
            self._metrics.messages_out.inc()
        except TimeoutError:
            log.warning("peer does not read, connection aborted", node=self.node)
            self.close(wire.Close.TIMEOUT, "peer does not read")
            self._websocket.transport.abort()
        except ConnectionClosed:
            self.close(wire.Close.GOING_AWAY, "connection closed by the peer")

    async def _close_websocket(self) -> None:
        closed = self._session.closed
        if closed is None:
            return
        try:
            async with asyncio.timeout(self._timing.close_s):
                await self._websocket.close(closed.code, close_reason(closed.reason))
        except TimeoutError:
            pass
        finally:
            self._websocket.transport.abort()

    @property
    def ended_as(self) -> tuple[int, str]:
        """Close code and reason; code 0 while the session lives."""
        closed = self._session.closed
        return (0, "") if closed is None else (closed.code, closed.reason)


def version_of(task: Desired | None) -> int | None:
    return None if task is None else task.version


def close_reason(text: str) -> str:
    """`text`, cut to what a close frame can carry."""
    return text.encode()[:MAX_REASON_BYTES].decode(errors="ignore")
