"""The part of a session that both ends share: framing, liveness, closing. Sans-I/O.

A session takes the messages of one WebSocket and the time, and gives back events and messages;
it never touches a socket, a clock or a log. CloudSession and EdgeSession are its two ends.
The driver passes every message to `receive`, calls `tick` no later than `next_tick`, sends what
`data_to_send` returns, and ends the connection when an event is Closed.
"""

import abc
from typing import Final

import msgspec

from common import wire
from common.errors import ProtocolError

WINDOW: Final = 64  # frames that one side may leave unacknowledged


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Deadlines of a session, seconds on a monotonic clock."""

    opening_s: float = 10.0
    """From the connection to a complete Hello/Welcome; a peer that stalls is cut."""
    beat_s: float = 15.0
    """Longest time between two frames that this side sends. KubeEdge uses the same interval."""
    silence_s: float = 40.0
    """A peer that sends nothing for so long is gone. Two lost beats on a bad line are no harm."""


class Closed(msgspec.Struct, frozen=True):
    """The session is over; the driver closes the connection with `code`. The last event."""

    code: int
    reason: str


class Session(abc.ABC):
    """One end of one connection. `now` is monotonic seconds throughout."""

    def __init__(self, *, now: float, timing: Timing) -> None:
        self._timing = timing
        self._assembler = wire.Assembler()
        self._out: list[bytes] = []
        self._opened_at = self._last_received = self._last_sent = now
        self.is_open = False  # Hello and Welcome were exchanged
        self.version = 0  # protocol version agreed on; 0 before that
        self.closed: Closed | None = None

    def receive(self, data: bytes, now: float) -> list[msgspec.Struct]:
        """Events caused by one message. Never raises: a bad message closes the session."""
        if self.closed is not None:
            return []
        self._last_received = now
        try:
            frame = self._assembler.feed(data)
            return [] if frame is None else self._handle(frame)
        except ProtocolError as error:
            return [self.close(error.code, str(error))]

    def tick(self, now: float) -> list[msgspec.Struct]:
        """Events of the time alone. A silent peer ends the session; an idle side sends a Beat."""
        if self.closed is not None:
            return []
        if not self.is_open and now >= self._opened_at + self._timing.opening_s:
            return [self.close(wire.Close.TIMEOUT, "no handshake in time")]
        if now >= self._last_received + self._timing.silence_s:
            return [self.close(wire.Close.TIMEOUT, "peer is silent")]
        if self.is_open and not self._out and now >= self._last_sent + self._timing.beat_s:
            self._send(wire.Beat())
        return []

    def next_tick(self) -> float:
        """Latest time of the next call of `tick`."""
        silence = self._last_received + self._timing.silence_s
        if not self.is_open:
            return min(silence, self._opened_at + self._timing.opening_s)
        return min(silence, self._last_sent + self._timing.beat_s)

    def data_to_send(self, now: float) -> list[bytes]:
        """Messages to write, oldest first; each is handed out once."""
        self._flush()
        out, self._out = self._out, []
        if out:
            self._last_sent = now
        return out

    def close(self, code: int, reason: str) -> Closed:
        """End the session from this side; idempotent, the first reason stays."""
        if self.closed is None:
            self.closed = Closed(code, reason)
            self._out.clear()
        return self.closed

    def acknowledge(self, seq: int, *, refused: str = "") -> None:
        """Say that what the peer sent as `seq` is durable here, or why it never will be."""
        self._send(wire.Ack(seq, refused[:1024]))

    def _send(self, frame: wire.AnyFrame) -> None:
        if self.closed is None:
            self._out.extend(wire.encode(frame))

    def _unexpected(self, frame: wire.AnyFrame) -> ProtocolError:
        when = "an open session" if self.is_open else "the handshake"
        return ProtocolError(wire.Close.PROTOCOL, f"unexpected {type(frame).__name__} in {when}")

    @abc.abstractmethod
    def _handle(self, frame: wire.AnyFrame) -> list[msgspec.Struct]:
        """Events of one frame. Raises: ProtocolError"""

    @abc.abstractmethod
    def _flush(self) -> None:
        """Send the frames that the window allows now."""
