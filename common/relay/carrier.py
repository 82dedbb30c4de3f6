"""Joins a RelaySession to its WebSocket, and each of its streams to a TCP connection.

Both ends of the relay use Carrier. `run` lasts as long as the WebSocket. A slow or dead TCP
connection costs its own stream alone: its credit runs out, and after `stall_s` the stream ends.
While the WebSocket takes no more bytes, no TCP connection is read, so little waits in this process.
"""

import asyncio
import contextlib
import math
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec
from websockets.asyncio.connection import Connection
from websockets.exceptions import ConnectionClosed

from common import wire
from common.logs import get_logger
from common.ratelimit import TokenBucket
from common.relay.frames import (
    MAX_DATA_BYTES,
    Credit,
    Data,
    End,
    Open,
    Opened,
    Refusal,
    Reset,
    Target,
)
from common.relay.session import RelaySession
from common.relay.stream_socket import StreamSocket
from common.tasks import TaskGroup
from edgeai.errors import EdgeAIError
from edgeai.ids import Uid, WorkerName

log = get_logger(__name__)

MAX_QUEUED_BYTES: Final = 256 * 1024
"""Bytes that wait for the WebSocket. While there are more, TCP connections are hardly read."""
CROWDED_READ_BYTES: Final = 4096
"""Most bytes that a read takes while so many bytes wait. After such a read the connection waits."""
UNSENT_BYTES: Final = 128 * 1024
"""Bytes that the kernel takes before it has sent those before. More delays small requests."""
MIN_TICK_S: Final = 0.1  # between two looks; a beat may wait for a message that is being sent
_TCP_NOTSENT_LOWAT: Final = 25  # of Linux; Python's socket module does not name it


class CarrierTiming(msgspec.Struct, frozen=True, kw_only=True):
    """Deadlines, seconds."""

    open_s: float = 15.0
    """Longest time until a new stream is connected to its target."""
    send_s: float = 10.0
    """Longest time until the network has taken one message."""
    stall_s: float = 60.0
    """Longest time in which a TCP connection takes no byte although bytes wait for it."""
    idle_s: float = 900.0
    """Longest time in which a stream carries no byte in either direction."""
    look_s: float = 5.0
    """Period of the looks at these two deadlines."""


class StreamRefused(EdgeAIError):
    """The peer, or this side, refuses a stream."""

    def __init__(self, refusal: Refusal, reason: str) -> None:
        self.refusal, self.reason = refusal, reason
        super().__init__(f"{refusal}: {reason}")


class Carrier:
    """Args:
    on_wanted: called with each stream that the peer wants; calls `accept` or `refuse`, now or later
    frames: rate of the frames that are read; None: without limit
    max_empty_s: the carrier closes the connection after this time without a stream
    """

    def __init__(
        self,
        websocket: Connection,
        session: RelaySession,
        *,
        timing: CarrierTiming = CarrierTiming(),  # noqa: B008 - frozen
        on_wanted: Callable[["Carrier", Open], None] | None = None,
        frames: TokenBucket | None = None,
        max_empty_s: float = math.inf,
    ) -> None:
        self._websocket = websocket
        self._session = session
        self._timing = timing
        self._on_wanted = on_wanted
        self._frames = frames
        self._max_empty_s = max_empty_s
        self._sockets: dict[int, StreamSocket] = {}
        self._opening: dict[int, asyncio.Future[None]] = {}
        # What came on a new stream before `join`: the Service may speak first.
        self._early: dict[int, list[msgspec.Struct]] = {}
        self._queue: deque[bytes] = deque()  # messages for the WebSocket
        self._queued_bytes = 0
        self.sent_bytes = self.received_bytes = 0  # of the messages on the WebSocket
        self._backlog: deque[StreamSocket] = deque()  # paused until less is queued
        self._wake = asyncio.Event()  # set: the writer has something to do
        self.now = asyncio.get_running_loop().time
        self._used_at = self.now()  # the last time when there was a stream

    def __len__(self) -> int:
        return len(self._session)

    async def run(self) -> None:
        """Carry bytes until the WebSocket ends."""
        _limit_unsent(self._websocket)
        try:
            async with TaskGroup() as tasks:
                tasks.create_task(self._write(), name="relay writer")
                deadlines = tasks.create_task(self._look(), name="relay deadlines")
                await self._read()
                self.close(wire.Close.GOING_AWAY, "connection ended")
                deadlines.cancel()
        finally:
            self.close(wire.Close.GOING_AWAY, "the process stops")
            self._websocket.transport.abort()

    @property
    def is_live(self) -> bool:
        return self._session.closed is None

    def is_on(self, websocket: Connection) -> bool:
        return self._websocket is websocket

    def close(self, code: int, reason: str) -> None:
        """End all streams and then the WebSocket. Only the first call sets code and reason."""
        self._session.close(code, reason)
        for connection in list(self._sockets.values()):
            connection.abort()
        self._sockets.clear()
        for future in self._opening.values():
            if not future.done():
                future.set_exception(StreamRefused(Refusal.BROKEN, "the relay has ended"))
        self._wake.set()

    # ---- streams, for the owner -----------------------------------------------------------------

    async def open(self, uid: Uid, worker: WorkerName, target: Target) -> int:
        """Open a stream, and wait until it is connected to its target. Raises: StreamRefused"""
        if not self.is_live:
            raise StreamRefused(Refusal.BROKEN, "the relay has ended")
        stream = self._session.open(uid, worker, target)
        if stream is None:
            raise StreamRefused(Refusal.BUSY, f"the node has {len(self)} streams")
        future = self._opening[stream] = asyncio.get_running_loop().create_future()
        self._sent()
        try:
            async with asyncio.timeout(self._timing.open_s):
                await future
        except TimeoutError:
            raise StreamRefused(Refusal.TIMEOUT, "no answer from the GlobalManager") from None
        finally:
            del self._opening[stream]
            if future.cancelled() or not future.done():
                self.refuse(stream, Refusal.TIMEOUT, "nobody waits for the stream")
        return stream

    def join(self, stream: int, connection: StreamSocket, *, first: bytes = b"") -> None:
        """Join an open stream to a TCP connection. Args: first: bytes that were read before"""
        if not self._session.knows(stream):
            connection.abort()
            return
        self._sockets[stream] = connection
        connection.attach(self, stream, first=first)
        for event in self._early.pop(stream, ()):
            self._on_event(event)

    def accept(self, stream: int, connection: StreamSocket) -> None:
        """Tell the peer that its stream is connected, and carry its bytes."""
        self._session.accept(stream)
        self._sent()
        self.join(stream, connection)

    def refuse(self, stream: int, refusal: Refusal, reason: str) -> None:
        """End a stream in both directions."""
        self._session.reset(stream, refusal, reason)
        self._sent()
        self._early.pop(stream, None)
        connection = self._sockets.pop(stream, None)
        if connection is not None:
            connection.abort()

    # ---- called by StreamSocket -----------------------------------------------------------------

    @property
    def is_crowded(self) -> bool:
        return self._queued_bytes > MAX_QUEUED_BYTES

    def knows(self, stream: int) -> bool:
        return self._session.knows(stream)

    def credit(self, stream: int) -> int:
        return self._session.credit(stream)

    def readable(self, stream: int) -> int:
        """Most bytes that the next read may take."""
        limit = CROWDED_READ_BYTES if self.is_crowded else MAX_DATA_BYTES
        return min(self._session.credit(stream), limit)

    def send(self, stream: int, data: bytes) -> None:
        self._session.send(stream, data)
        self._sent()

    def end(self, stream: int) -> None:
        self._session.end(stream)
        self._sent()

    def consumed(self, stream: int, size: int) -> None:
        self._session.consumed(stream, size)
        self._sent()

    def resume_later(self, connection: StreamSocket) -> None:
        self._backlog.append(connection)

    def lost(self, stream: int) -> None:
        """The TCP connection of a stream has ended."""
        self._sockets.pop(stream, None)
        self._session.reset(stream, Refusal.BROKEN, "the connection ended")
        self._sent()

    # ---- the WebSocket --------------------------------------------------------------------------

    def _sent(self) -> None:
        """Queue the messages of the session."""
        now = self.now()
        messages = self._session.data_to_send(now)
        if messages:
            self._queue.extend(messages)
            self._queued_bytes += sum(map(len, messages))
            self._wake.set()

    async def _read(self) -> None:
        try:
            while self.is_live:
                message = await self._websocket.recv(decode=False)
                self._receive(message)
                if self._frames is not None:
                    wait_s = self._frames.reserve(self.now())
                    if wait_s > 0:
                        await asyncio.sleep(wait_s)
        except ConnectionClosed:
            pass

    def _receive(self, message: bytes) -> None:
        self.received_bytes += len(message)
        for event in self._session.receive(message, self.now()):
            self._on_event(event)
        self._sent()
        if not self.is_live:
            self._wake.set()

    def _on_event(self, event: msgspec.Struct) -> None:
        match event:
            case Open():
                if self._on_wanted is not None:
                    self._on_wanted(self, event)
            case Opened(stream):
                future = self._opening.get(stream)
                if future is not None and not future.done():
                    self._early[stream] = []
                    future.set_result(None)
            case Reset(stream, refusal, reason):
                self._on_reset(stream, StreamRefused(refusal, reason))
            case Data(stream) | Credit(stream) | End(stream):
                self._on_stream(stream, event)

    def _on_stream(self, stream: int, event: msgspec.Struct) -> None:
        if stream in self._early:
            self._early[stream].append(event)
        connection = self._sockets.get(stream)
        if connection is None:
            return
        match event:
            case Data(_, data):
                connection.write(data)
            case Credit():
                connection.flush()
            case End():
                connection.write_eof()

    def _on_reset(self, stream: int, refusal: StreamRefused) -> None:
        self._early.pop(stream, None)
        connection = self._sockets.pop(stream, None)
        if connection is not None:
            connection.abort()
        future = self._opening.get(stream)
        if future is not None and not future.done():
            future.set_exception(refusal)

    async def _write(self) -> None:
        try:
            while self.is_live or self._queue:
                self._wake.clear()
                while self._queue:
                    await self._send(self._queue.popleft())
                if not self.is_live:
                    break
                await self._wake.wait()
            closed = self._session.closed
            if closed is not None:
                await self._websocket.close(closed.code, closed.reason[:100])
        except ConnectionClosed:
            pass
        except TimeoutError:
            log.warning("peer of the relay does not read, connection aborted")
        finally:
            self._websocket.transport.abort()

    async def _send(self, message: bytes) -> None:
        async with asyncio.timeout(self._timing.send_s):
            await self._websocket.send(message)
        self._queued_bytes -= len(message)
        self.sent_bytes += len(message)
        while self._backlog and not self.is_crowded:
            self._backlog.popleft().flush()

    async def _look(self) -> None:
        """Keep the connection alive, and end streams that are beyond a deadline."""
        looked_at = self.now()
        while self.is_live:
            until_tick_s = max(MIN_TICK_S, self._session.next_tick() - self.now())
            await asyncio.sleep(min(self._timing.look_s, until_tick_s))
            now = self.now()
            self._session.tick(now)
            self._sent()
            if now >= looked_at + self._timing.look_s:
                looked_at = now
                self._end_overdue(now)
        self._wake.set()

    def _end_overdue(self, now: float) -> None:
        if len(self._session):
            self._used_at = now
        elif now >= self._used_at + self._max_empty_s:
            self.close(wire.Close.NORMAL, "nobody needs the relay")
        for stream, connection in list(self._sockets.items()):
            if connection.stall_s(now) >= self._timing.stall_s:
                self.refuse(stream, Refusal.TIMEOUT, "the receiver takes no bytes")
            elif connection.silence_s(now) >= self._timing.idle_s:
                self.refuse(stream, Refusal.TIMEOUT, "no byte in either direction")


def _limit_unsent(websocket: Connection) -> None:
    socket_ = websocket.transport.get_extra_info("socket")
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(socket_.fileno())) as duplicate:
        duplicate.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, UNSENT_BYTES)
