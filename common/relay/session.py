"""One end of a relay connection: streams, credit, liveness. Sans-I/O, as common.session.

The side that `opens` (the LocalController) numbers the streams. The other side answers each Open
with `accept` or `reset`. A stream exists at one end until both directions have ended there, or
until a Reset. Frames of streams that this side has ended already are ignored, because they were on
the way. A peer that sends more than its credit breaks the protocol. Events are the peer's frames of
streams, and Closed. A Credit is one only where the stream had no credit before.

Credit bounds the bytes that wait at the receiver. Each stream begins with INITIAL_CREDIT. The
window of a stream whose receiver keeps up doubles up to MAX_WINDOW while the shared Budget has
room. So thousands of idle streams cost little, and one bulk transfer gets a large window.
"""

import msgspec

from common.relay import frames
from common.relay.frames import INITIAL_CREDIT, MAX_DATA_BYTES, MAX_WINDOW, Refusal, Target
from common.session import Channel, Closed, Timing
from common.wire import Beat, Close
from edgeai.errors import ProtocolError
from edgeai.ids import Uid, WorkerName


class Budget:
    """Bytes of window beyond INITIAL_CREDIT that all streams of a process may have together."""

    def __init__(self, limit_bytes: int) -> None:
        self._left_bytes = limit_bytes

    def take(self, size: int) -> bool:
        if size > self._left_bytes:
            return False
        self._left_bytes -= size
        return True

    def give_back(self, size: int) -> None:
        self._left_bytes += size


class _Stream:
    """The state of one stream at this end, in bytes."""

    __slots__ = ("consumed", "credit", "is_ended", "is_open", "peer_credit", "peer_ended", "window")

    def __init__(self) -> None:
        self.is_open = False
        self.credit = INITIAL_CREDIT  # this side may send
        self.peer_credit = INITIAL_CREDIT  # the peer may send
        self.window = INITIAL_CREDIT  # the most that `peer_credit` may become
        self.consumed = 0  # consumed bytes that no Credit has given back yet
        self.is_ended = False
        self.peer_ended = False


class RelaySession(Channel):
    """Args: opens: whether this side does; max_streams: an Open beyond it is answered with BUSY"""

    def __init__(
        self, *, now: float, timing: Timing, opens: bool, budget: Budget, max_streams: int
    ) -> None:
        super().__init__(now=now, timing=timing)
        self.is_open = True  # the subprotocol names the version, so there is no handshake
        self.version = 1
        self._opens = opens
        self._budget = budget
        self._max_streams = max_streams
        self._streams: dict[int, _Stream] = {}
        self._last_stream = 0

    def __len__(self) -> int:
        return len(self._streams)

    def close(self, code: int, reason: str) -> Closed:
        for stream in list(self._streams):
            self._forget(stream)
        return super().close(code, reason)

    # ---- called by the owner of this end --------------------------------------------------------

    def open(self, uid: Uid, worker: WorkerName, target: Target) -> int | None:
        """Ask the peer for a new stream. Returns: its number; None: there are too many streams"""
        if len(self._streams) >= self._max_streams:
            return None
        self._last_stream += 1
        self._streams[self._last_stream] = _Stream()
        self._send(frames.Open(self._last_stream, uid, worker, target))
        return self._last_stream

    def knows(self, stream: int) -> bool:
        """Whether the stream has not ended yet."""
        return stream in self._streams

    def accept(self, stream: int) -> None:
        """Tell the peer that the stream is connected to its target."""
        state = self._streams.get(stream)
        if state is not None:
            state.is_open = True
            self._send(frames.Opened(stream))

    def credit(self, stream: int) -> int:
        """The number of bytes that `send` takes now."""
        state = self._streams.get(stream)
        return state.credit if state is not None and state.is_open and not state.is_ended else 0

    def send(self, stream: int, data: bytes) -> None:
        """Send bytes, at most `credit`."""
        state = self._streams[stream]
        if len(data) > self.credit(stream):
            raise ValueError(f"{len(data)} bytes, credit {self.credit(stream)}")
        state.credit -= len(data)
        for start in range(0, len(data), MAX_DATA_BYTES):
            self._send(frames.Data(stream, data[start : start + MAX_DATA_BYTES]))

    def consumed(self, stream: int, size: int) -> None:
        """Note that bytes of the peer have left this process, and give credit for them."""
        state = self._streams.get(stream)
        if state is None or state.peer_ended:
            return
        state.consumed += size
        if 2 * state.consumed < state.window:
            return
        growth = min(state.window, MAX_WINDOW - state.window)
        if growth and self._budget.take(growth):
            state.window += growth
        else:
            growth = 0
        credit, state.consumed = state.consumed + growth, 0
        state.peer_credit += credit
        self._send(frames.Credit(stream, credit))

    def end(self, stream: int) -> None:
        """Send no more bytes on the stream."""
        state = self._streams.get(stream)
        if state is None or state.is_ended:
            return
        state.is_ended = True
        self._send(frames.End(stream))
        self._forget_if_over(stream, state)

    def reset(self, stream: int, refusal: Refusal, reason: str = "") -> None:
        """End the stream in both directions."""
        if self._forget(stream):
            self._send(frames.Reset(stream, refusal, reason[:1024]))

    # ---- frames of the peer ---------------------------------------------------------------------

    def _handle(self, frame: frames.AnyFrame) -> list[msgspec.Struct]:
        if isinstance(frame, Beat):
            return []
        if isinstance(frame, frames.Open):
            return self._on_open(frame)
        if frame.stream > self._last_stream:
            raise ProtocolError(Close.PROTOCOL, f"stream {frame.stream} was never opened")
        state = self._streams.get(frame.stream)
        return [] if state is None else self._on_stream(frame, state)

    def _on_open(self, frame: frames.Open) -> list[msgspec.Struct]:
        if self._opens or frame.stream != self._last_stream + 1:
            raise _broken(frame)
        self._last_stream = frame.stream
        if len(self._streams) >= self._max_streams:
            reason = f"the node has {len(self._streams)} streams"
            self._send(frames.Reset(frame.stream, Refusal.BUSY, reason))
            return []
        self._streams[frame.stream] = _Stream()
        return [frame]

    def _on_stream(self, frame: frames.StreamFrame, state: _Stream) -> list[msgspec.Struct]:
        match frame:
            case frames.Data():
                if state.peer_ended or not state.is_open or len(frame.data) > state.peer_credit:
                    raise _broken(frame)
                state.peer_credit -= len(frame.data)
            case frames.Credit():
                had_credit = state.credit > 0
                state.credit += frame.size
                if state.credit > MAX_WINDOW:
                    raise _broken(frame)
                return [] if had_credit else [frame]
            case frames.Opened():
                if not self._opens or state.is_open:
                    raise _broken(frame)
                state.is_open = True
            case frames.End():
                if state.peer_ended or not state.is_open:
                    raise _broken(frame)
                state.peer_ended = True
                self._forget_if_over(frame.stream, state)
            case frames.Reset():
                self._forget(frame.stream)
        return [frame]

    # ---- the end of a stream --------------------------------------------------------------------

    def _forget_if_over(self, stream: int, state: _Stream) -> None:
        if state.is_ended and state.peer_ended:
            self._forget(stream)

    def _forget(self, stream: int) -> bool:
        """Returns: whether the stream was known"""
        state = self._streams.pop(stream, None)
        if state is None:
            return False
        self._budget.give_back(state.window - INITIAL_CREDIT)
        return True

    # ---- the parts that Channel wants -----------------------------------------------------------

    def _decode(self, data: bytes) -> frames.AnyFrame:
        return frames.decode(data)

    def _encode(self, frame: frames.AnyFrame) -> list[bytes]:
        return [frames.encode(frame)]

    def _flush(self, _now: float) -> None:
        """Nothing waits here: credit bounds what `send` takes."""


def _broken(frame: frames.StreamFrame | frames.Open) -> ProtocolError:
    problem = f"{type(frame).__name__} of stream {frame.stream} is not allowed now"
    return ProtocolError(Close.PROTOCOL, problem)
