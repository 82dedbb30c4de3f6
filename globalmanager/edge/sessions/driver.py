"""Runs one session with a node: connects the Sans-I/O CloudSession to a WebSocket and a clock.

Every send has a deadline. After it the driver aborts the connection, because neither keepalive nor
close() ends a connection whose peer does not read and whose send buffer is full.
"""

import asyncio
import contextvars
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, Protocol

import msgspec
from websockets.exceptions import ConnectionClosed
from websockets.protocol import OPEN

from common import wire
from common.logs import get_logger
from common.ratelimit import TokenBucket
from common.session import WINDOW, Timing
from common.tasks import TaskGroup
from edgeai.ids import NodeName, TaskKey
from globalmanager.edge.metrics import EdgeMetrics
from globalmanager.edge.sessions.cloud_session import CloudSession, Desired, EdgeSynced, TaskAcked
from globalmanager.edge.sessions.connection import SessionConnection
from globalmanager.edge.sessions.flag import Flag
from globalmanager.traces import NO_TRACES, TaskTraces

log = get_logger(__name__)

# Acknowledgements that wait to be sent. At this number the session stops reading. A peer that
# respects the window of reports never reaches this number.
MAX_ANSWERS: Final = 16 * WINDOW
# The timers of all sessions fire at multiples of this part of beat_s: with 15 s each 0.2 s.
_SLOT: Final = 1 / 75
# Shortest time between two ticks. A beat may have to wait for a message that is being sent. Without
# this minimum, the timer would fire without a pause during that wait.
_MIN_TICK_S: Final = 0.1
FRAME_BYTES: Final = 16 * 1024  # a frame of this size costs as much as a beat
_BEAT: Final = wire.encode(wire.Beat())[0]


class DriverTiming(msgspec.Struct, frozen=True, kw_only=True):
    """The times of a session, in seconds."""

    session: Timing = Timing()
    send_s: float = 10.0
    """Longest time until the network has taken one message."""
    close_s: float = 1.0
    """Longest time until the peer has answered a close frame."""
    frames_per_s: float = 500.0
    """Frames of one node that are read per second. So a node that sends without pause takes a small
    share of the event loop from the other sessions, also when it opens one session after another. A
    frame of more than FRAME_BYTES counts several times. An acknowledgement of a frame that this
    side has sent does not count."""
    frames_burst: int = 1000
    """Frames that are read at once after a pause. A Hello of the largest size costs 256."""


def frame_rate(timing: DriverTiming) -> TokenBucket:
    return TokenBucket(
        qps=timing.frames_per_s, burst=timing.frames_burst, max_wait_s=math.inf, part="session"
    )


class SessionOwner(Protocol):
    def on_hello(self, session: "SessionDriver") -> None:
        """The Hello of the session has arrived: call its `welcome` or `close`."""

    def on_report(self, session: "SessionDriver", report: wire.Report) -> bool:
        """Returns: False when the session must read no message until its `resume`"""


class SessionDriver:
    """The session of one node over one connection. The driver is the inbox's Sender.

    Args:
        frames: the rate of the node's frames, which all sessions of the node share
        release: of the LocalController, as it tells
        certificate_end: as in Claim
    """

    def __init__(
        self,
        *,
        node: NodeName,
        session_id: str,
        websocket: SessionConnection,
        owner: SessionOwner,
        timing: DriverTiming,
        frames: TokenBucket,
        metrics: EdgeMetrics,
        traces: TaskTraces = NO_TRACES,
        release: str = "",
        certificate_end: int = 0,
    ) -> None:
        self.release = release
        self.certificate_end = certificate_end
        self._traces = traces
        self.node = node
        self.session_id = session_id
        self.ledger_id = ""  # identity of the node's ledger; "" until the Hello
        self.replaces: frozenset[str] = frozenset()  # see Sender; set before the Welcome
        self.synced = False  # the node has acknowledged its whole desired set in this session
        self.opened_at: datetime | None = None  # None until the Hello
        self.last_report_at: datetime | None = None
        self._websocket = websocket
        self._owner = owner
        self._timing = timing
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._session = CloudSession(now=self._loop.time(), timing=timing.session)
        self._slot_s = timing.session.beat_s * _SLOT
        # task whose last change the node has not acknowledged -> the change, and its time
        self._unacknowledged: dict[TaskKey, tuple[Desired | None, float]] = {}
        self._wake = Flag(is_set=True)  # set: the writer has something to do
        self._is_writing = True  # the writer has messages that it has not sent yet
        self._may_read = Flag(is_set=True)  # set: the inbox has room
        self._frames = frames
        self._reads_again_at = 0.0  # when the rate of frames allows the next one
        self._is_awaiting = False  # the reader waits for a message, so a message is read at once
        self._answers = 0  # acknowledgements that the writer has not taken yet
        # set: fewer than MAX_ANSWERS acknowledgements wait
        self._answers_taken = Flag(is_set=True)

    @property
    def is_live(self) -> bool:
        return self._session.closed is None

    @property
    def protocol_version(self) -> int:
        return self._session.version

    @property
    def task_versions(self) -> Mapping[TaskKey, wire.TaskVersion]:
        """The tasks that the node holds, according to its Hello and its acknowledgements."""
        return self._session.task_versions

    @property
    def unacknowledged_since(self) -> float:
        """Loop time of the oldest change that the node has not acknowledged; infinite for none."""
        return min((since for _task, since in self._unacknowledged.values()), default=math.inf)

    def is_on(self, websocket: SessionConnection) -> bool:
        return self._websocket is websocket

    async def run(self) -> None:
        self._set_timer()
        try:
            async with TaskGroup() as tasks:
                writer = tasks.create_task(self._write(), name=f"edge writer {self.node}")
                await self._read()
                writer.cancel()
        finally:
            self.close(wire.Close.GOING_AWAY, "connection ended")
            self._timer.cancel()

    def welcome(self, *, epoch: int, desired: Mapping[TaskKey, Desired]) -> None:
        """Answer the Hello and send the node's desired set."""
        for key, task in desired.items():
            self._note_change(key, task)
        self._session.welcome(epoch=epoch, session=self.session_id, desired=desired)
        self._wake.set()
        self._timer.cancel()  # it is set for the end of a handshake that never completes
        self._set_timer()

    def desire(self, key: TaskKey, task: Desired | None) -> None:
        """Change one task of the node's desired set; None: the node must not hold the task."""
        self._note_change(key, task)
        self._session.desire(key, task)
        self._wake.set()

    def acknowledge(self, seq: int, *, refusal: str = "") -> None:
        """Acknowledge a report. Args: refusal: why the inbox refused it"""
        if not self.is_live:
            return
        self._session.acknowledge(seq, refusal=refusal)
        self._wake.set()
        self._answers += 1
        if self._answers >= MAX_ANSWERS:
            self._answers_taken.clear()

    def resume(self) -> None:
        """Read messages again, because the inbox has room."""
        self._may_read.set()

    def close(self, code: int, reason: str) -> None:
        """End the session and then the connection. Only the first call sets code and reason."""
        if self.is_live:
            self._session.close(code, reason)
        self._after_session()

    # ---- reading ----

    async def _read(self) -> None:
        """Pass the messages of the queue to the session until the connection is closed."""
        context = contextvars.copy_context()  # its logs name the node and the session
        self._websocket.reader = lambda message: context.run(self._read_at_once, message)
        try:
            while True:
                self._is_awaiting = True
                message = await self._websocket.recv()
                self._is_awaiting = False
                await self._may_read.wait()
                await self._answers_taken.wait()
                wait_s = self._reads_again_at - self._loop.time()
                if wait_s > 0 and await self._is_closed_within(wait_s):
                    break  # the node sends again what is not acknowledged
                self._receive(message)
        except ConnectionClosed:
            pass
        finally:
            self._websocket.reader = None
        code, reason = self._websocket.close_code, self._websocket.close_reason
        self.close(code or wire.Close.GOING_AWAY, reason or "connection closed by the peer")

    def _read_at_once(self, message: bytes) -> bool:
        """Pass a message that has just arrived to the session, without the queue.

        Returns: False when the message must wait in the queue
        """
        may_read = self._is_awaiting and self._may_read.is_set() and self._answers_taken.is_set()
        if not may_read or self._loop.time() < self._reads_again_at:
            return False
        try:
            self._receive(message)
        except Exception:  # a bug in one session ends this session alone
            log.exception("session failed", node=self.node)
            # Messages that arrived together with this one come next, and would be taken.
            self.close(wire.Close.GOING_AWAY, "session failed")
            self._websocket.transport.abort()
        return True

    async def _is_closed_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._websocket.wait_closed()
        except TimeoutError:
            return False
        return True

    def _receive(self, message: str | bytes) -> None:
        self._metrics.messages_in.inc()
        if isinstance(message, str):
            self.close(wire.Close.PROTOCOL, "text message; frames are binary")
            return
        now = self._loop.time()
        events = self._session.receive(message, now)
        for event in events:
            self._on_event(event)
        # A beat or a report gives the writer nothing to do until the report's acknowledgement.
        if not self.is_live or not all(isinstance(event, wire.Report) for event in events):
            self._after_session()
        # This side bounds how many frames it sends, and each of them has one acknowledgement.
        if events and all(isinstance(event, TaskAcked | EdgeSynced) for event in events):
            return
        self._reads_again_at = now + self._frames.reserve(now, max(1.0, len(message) / FRAME_BYTES))

    def _on_event(self, event: msgspec.Struct) -> None:
        match event:
            case wire.Report():
                if not self._owner.on_report(self, event):
                    self._may_read.clear()
            case TaskAcked():
                self._on_task_acked(event)
            case EdgeSynced():
                self.synced = True
            case wire.Hello():
                self.ledger_id = event.instance
                self._owner.on_hello(self)

    def _after_session(self) -> None:
        """Wake the writer, because the session may have a message to send or may be closed."""
        self._wake.set()
        if not self.is_live:
            self._may_read.set()
            self._answers_taken.set()

    def _on_task_acked(self, ack: TaskAcked) -> None:
        if ack.refusal:
            self._metrics.assignments_refused.inc()
            log.warning("node refused a task", node=self.node, task=ack.key, reason=ack.refusal)
        if ack.version is not None:
            self._traces.held(self.node, ack.key, ack.uid, ack.version)
        change = self._unacknowledged.get(ack.key)
        if change is None or version_of(change[0]) != ack.version:
            return  # the node has acknowledged a version that is older than the newest
        del self._unacknowledged[ack.key]
        if not ack.refusal:
            self._metrics.assign_to_ack_s.observe(self._loop.time() - change[1])

    def _note_change(self, key: TaskKey, task: Desired | None) -> None:
        """Remember when the task changed, to measure the time until its acknowledgement."""
        edge = self.task_versions.get(key)
        if (edge.version if edge else None) != version_of(task):
            self._unacknowledged[key] = (task, self._loop.time())
            if task is not None:
                self._traces.wanted(self.node, key, task.uid, task.version)
        else:
            self._unacknowledged.pop(key, None)

    # ---- time ----

    def _set_timer(self) -> None:
        """Call `_on_timer` at the next tick, or one slot earlier, together with the timers of other
        sessions. To wake up for each session alone costs more than the tick itself.
        """
        at = math.floor(self._session.next_tick() / self._slot_s) * self._slot_s
        at = max(at, self._loop.time() + _MIN_TICK_S)
        self._timer = self._loop.call_at(at, self._on_timer)

    def _on_timer(self) -> None:
        now = self._loop.time()
        if not self._may_read.is_set():
            # This side does not read now, so the silence of the peer proves nothing. The session
            # gets a beat as if the peer had sent one. The driver still notices a dead peer, because
            # sending beats to a dead peer fails.
            self._session.receive(_BEAT, now)
        self._session.tick(now, early_s=self._slot_s)
        if not self._write_at_once():
            self._after_session()
        if self.is_live:
            self._set_timer()

    # ---- writing ----

    async def _write(self) -> None:
        while self.is_live:
            self._wake.clear()
            messages = self._take_messages()
            if self._may_send_at_once(messages):
                self._send_at_once(messages)
            else:
                for message in messages:
                    await self._send(message)
            self._is_writing = False
            await self._wake.wait()
            self._is_writing = True
        await self._close_websocket()

    def _write_at_once(self) -> bool:
        """Send what the session wants to send, without the writer: a beat costs little so.

        Returns: False when only the writer may send now, because a message is under way or the peer
            has not read the last one
        """
        if self._is_writing or not self._may_send_at_once():
            return False
        self._send_at_once(self._take_messages())
        return self.is_live

    def _may_send_at_once(self, messages: Sequence[bytes] = ()) -> bool:
        """Whether the network takes these messages at once. Large ones have a deadline each."""
        websocket = self._websocket
        is_idle = websocket.state is OPEN and not websocket.transport.get_write_buffer_size()
        return self.is_live and is_idle and sum(map(len, messages)) <= FRAME_BYTES

    def _send_at_once(self, messages: Sequence[bytes]) -> None:
        """Send all messages together: a worker's acknowledgements mostly come in groups. The event
        loop gives all of them to the system in one call, which else costs more than all else about
        an acknowledgement.
        """
        if not messages:
            return
        for message in messages:
            self._websocket.protocol.send_binary(message)
        self._websocket.send_data()
        self._metrics.messages_out.inc(len(messages))

    def _take_messages(self) -> list[bytes]:
        """The encoded messages that the session wants to send now."""
        self._answers = 0
        self._answers_taken.set()
        try:
            data = self._session.data_to_send(self._loop.time())
            self._traces.sent(self.node, self._session.assigns_in_flight())
            return data
        except ValueError as error:  # the desired set has more tasks than one Synced can name
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
        """The code and the reason of the close of the session; 0 while it lives."""
        closed = self._session.closed
        return (0, "") if closed is None else (closed.code, closed.reason)


def version_of(task: Desired | None) -> int | None:
    return None if task is None else task.version


def close_reason(text: str) -> str:
    """`text`, shortened to the length that a close frame can carry."""
    return text.encode()[: wire.MAX_REASON_BYTES].decode(errors="ignore")
