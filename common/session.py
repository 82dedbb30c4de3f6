"""The part of a session that both ends share: frames, liveness, closing.

A Channel takes the messages of one WebSocket and the time, and returns events and messages. It uses
no socket, no clock and no log (sans-I/O). The caller passes every message to `receive`, calls
`tick` at `next_tick` or earlier, sends the messages of `data_to_send`, and ends the connection
after the event Closed. A Session is a Channel with the frames of common.wire. Its two ends are
CloudSession of the GlobalManager (globalmanager/edge/sessions) and EdgeSession of the
LocalController (localcontroller/link). The other Channel is RelaySession (common/relay).
"""

import abc
from typing import Any, Final

import msgspec

from common import wire
from edgeai.errors import ProtocolError

WINDOW: Final = 64  # most frames of one side that wait for their acknowledgement


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Deadlines of a session, seconds on a monotonic clock."""

    opening_s: float = 10.0
    """Longest time from the connection to the end of the handshake (Hello and Welcome)."""
    beat_s: float = 15.0
    """Longest time between two frames that this side sends. KubeEdge uses the same interval."""
    silence_s: float = 40.0
    """Longest time without a frame from the peer. After this time the peer counts as gone. The
    default allows two lost beats in a row."""


class Closed(msgspec.Struct, frozen=True):
    """The last event of a session. The caller then closes the connection with `code`."""

    code: int
    reason: str


class Channel(abc.ABC):
    """One end of a connection. Every `now` is in seconds of a monotonic clock."""

    def __init__(self, *, now: float, timing: Timing) -> None:
        self._timing = timing
        self._out: list[bytes] = []
        self._opened_at = self._last_received = self._last_sent = now
        self.is_open = False  # the handshake (Hello and Welcome) is complete
        self.version = 0  # protocol version of this session; 0: not known yet
        self.closed: Closed | None = None

    def receive(self, data: bytes, now: float) -> list[msgspec.Struct]:
        """Take one message. Returns: its events. A bad message only closes the session."""
        if self.closed is not None:
            return []
        self._last_received = now
        try:
            frame = self._decode(data)
            return [] if frame is None else self._handle(frame)
        except ProtocolError as error:
            return [self.close(error.code, str(error))]

    def tick(self, now: float, *, early_s: float = 0.0) -> list[msgspec.Struct]:
        """Close the session of a silent peer; send a Beat if this side is idle. Returns: events

        Args: early_s: a Beat that is due within this time is sent now
        """
        if self.closed is not None:
            return []
        if not self.is_open and now >= self._opened_at + self._timing.opening_s:
            return [self.close(wire.Close.TIMEOUT, "no handshake in time")]
        if now >= self._last_received + self._timing.silence_s:
            return [self.close(wire.Close.TIMEOUT, "peer is silent")]
        beat_at = self._last_sent + self._timing.beat_s
        if self.is_open and not self._out and now + early_s >= beat_at:
            self._send(wire.Beat())
        return []

    def next_tick(self) -> float:
        """The latest time at which the caller must call `tick` again."""
        silence = self._last_received + self._timing.silence_s
        if not self.is_open:
            return min(silence, self._opened_at + self._timing.opening_s)
        return min(silence, self._last_sent + self._timing.beat_s)

    def data_to_send(self, now: float) -> list[bytes]:
        """The messages to send now, oldest first. Each message is returned once."""
        self._flush(now)
        out, self._out = self._out, []
        if out:
            self._last_sent = now
        return out

    def close(self, code: int, reason: str) -> Closed:
        """End the session from this side. Later calls return the result of the first call."""
        if self.closed is None:
            self.closed = Closed(code, reason)
            self._out.clear()
        return self.closed

    def _send(self, frame: wire.Frame) -> None:
        if self.closed is None:
            self._out.extend(self._encode(frame))

    @abc.abstractmethod
    def _decode(self, data: bytes) -> wire.Frame | None:
        """The frame that is now complete; None: parts are missing. Raises: ProtocolError"""

    @abc.abstractmethod
    def _encode(self, frame: Any) -> list[bytes]:
        """The messages of one frame."""

    @abc.abstractmethod
    def _handle(self, frame: Any) -> list[msgspec.Struct]:
        """Handle one frame. Returns: its events. Raises: ProtocolError"""

    @abc.abstractmethod
    def _flush(self, now: float) -> None:
        """Send the frames that the window allows now."""


class Session(Channel):
    """One end of a session."""

    def __init__(self, *, now: float, timing: Timing) -> None:
        super().__init__(now=now, timing=timing)
        self._assembler = wire.Assembler()

    def acknowledge(self, seq: int, *, refusal: str = "") -> None:
        """Tell the peer that this side holds frame `seq` durably, or why this side refuses it."""
        self._send(wire.Ack(seq, refusal[:1024]))

    def _decode(self, data: bytes) -> wire.Frame | None:
        return self._assembler.feed(data)

    def _encode(self, frame: wire.AnyFrame) -> list[bytes]:
        return wire.encode(frame)

    def _unexpected(self, frame: wire.AnyFrame) -> ProtocolError:
        when = "an open session" if self.is_open else "the handshake"
        return ProtocolError(wire.Close.PROTOCOL, f"unexpected {type(frame).__name__} in {when}")
