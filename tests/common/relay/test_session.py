"""The two ends of a relay connection without sockets: order, credit, ends, and peers that lie."""

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.relay import frames
from common.relay.frames import INITIAL_CREDIT, MAX_DATA_BYTES, MAX_WINDOW, Refusal, Target
from common.relay.session import Budget, RelaySession
from common.session import Timing
from common.wire import Beat, Close
from edgeai.ids import Uid, WorkerName

TIMING = Timing(opening_s=5.0, beat_s=5.0, silence_s=10.0)
TARGET = Target("digits-cloud.default", 5000)
JOB, WORKER = Uid("uid"), WorkerName("digits-edge")


class Pair:
    """Both ends. `settle` carries all messages, and keeps the events of each end."""

    def __init__(self, *, budget_bytes: int = 1 << 30, max_streams: int = 4) -> None:
        self.budget = Budget(budget_bytes)
        self.edge = self._end(opens=True, max_streams=max_streams)
        self.cloud = self._end(opens=False, max_streams=max_streams)
        self.events: dict[RelaySession, list[msgspec.Struct]] = {self.edge: [], self.cloud: []}

    def _end(self, *, opens: bool, max_streams: int) -> RelaySession:
        return RelaySession(
            now=0.0, timing=TIMING, opens=opens, budget=self.budget, max_streams=max_streams
        )

    def settle(self) -> None:
        while True:
            out = [(self.cloud, each) for each in self.edge.data_to_send(0.0)]
            out += [(self.edge, each) for each in self.cloud.data_to_send(0.0)]
            if not out:
                return
            for end, message in out:
                self.events[end] += end.receive(message, 0.0)

    def opened(self) -> int:
        stream = self.edge.open(JOB, WORKER, TARGET)
        assert stream is not None
        self.settle()
        self.cloud.accept(stream)
        self.settle()
        self.take(self.cloud), self.take(self.edge)
        return stream

    def take(self, end: RelaySession) -> list[msgspec.Struct]:
        self.events[end], taken = [], self.events[end]
        return taken


def test_a_stream_from_open_to_both_ends() -> None:
    pair = Pair()
    stream = pair.edge.open(JOB, WORKER, TARGET)
    assert stream == 1
    pair.settle()
    assert pair.take(pair.cloud) == [frames.Open(1, JOB, WORKER, TARGET)]
    assert pair.edge.credit(1) == 0, "nothing is sent before the target is connected"
    pair.cloud.accept(1)
    pair.settle()
    assert pair.take(pair.edge) == [frames.Opened(1)]
    pair.edge.send(1, b"question")
    pair.edge.end(1)
    pair.settle()
    assert pair.take(pair.cloud) == [frames.Data(1, b"question"), frames.End(1)]
    pair.cloud.send(1, b"answer")
    pair.cloud.end(1)
    pair.settle()
    assert pair.take(pair.edge) == [frames.Data(1, b"answer"), frames.End(1)]
    assert (len(pair.edge), len(pair.cloud)) == (0, 0)


def test_a_receiver_that_does_not_consume_gets_the_first_credit_and_no_more() -> None:
    pair = Pair()
    stream = pair.opened()
    pair.edge.send(stream, bytes(INITIAL_CREDIT))
    pair.settle()
    assert pair.edge.credit(stream) == 0
    with pytest.raises(ValueError, match="credit 0"):
        pair.edge.send(stream, b"x")


def test_a_stream_that_is_consumed_gets_a_growing_window() -> None:
    pair = Pair()
    stream = pair.opened()
    windows = []
    for _ in range(12):
        size = pair.edge.credit(stream)
        windows.append(size)
        pair.edge.send(stream, bytes(size))
        pair.settle()
        pair.cloud.consumed(stream, size)
        pair.settle()
    assert windows[:3] == [INITIAL_CREDIT, 2 * INITIAL_CREDIT, 4 * INITIAL_CREDIT]
    assert windows[-1] == MAX_WINDOW
    assert pair.edge.credit(stream) == MAX_WINDOW


def test_windows_grow_only_while_the_budget_lasts_and_give_it_back() -> None:
    pair = Pair(budget_bytes=INITIAL_CREDIT)
    first, second = pair.opened(), pair.opened()
    for stream, expected in ((first, 2 * INITIAL_CREDIT), (second, INITIAL_CREDIT)):
        for _ in range(3):
            size = pair.edge.credit(stream)
            pair.edge.send(stream, bytes(size))
            pair.settle()
            pair.cloud.consumed(stream, size)
            pair.settle()
        assert pair.edge.credit(stream) == expected
    pair.cloud.reset(first, Refusal.BROKEN)
    pair.settle()
    assert pair.budget.take(INITIAL_CREDIT)


def test_credit_that_comes_to_a_stream_without_any_is_told() -> None:
    pair = Pair()
    stream = pair.opened()
    pair.edge.send(stream, bytes(INITIAL_CREDIT))
    pair.settle()
    pair.cloud.consumed(stream, INITIAL_CREDIT)
    pair.settle()
    (event,) = pair.take(pair.edge)
    assert isinstance(event, frames.Credit)
    assert event.stream == stream


def test_a_reset_ends_both_directions_and_tells_why() -> None:
    pair = Pair()
    stream = pair.opened()
    pair.cloud.reset(stream, Refusal.TIMEOUT, "too slow")
    pair.edge.send(stream, b"on the way")
    pair.settle()
    assert pair.take(pair.edge) == [frames.Reset(stream, Refusal.TIMEOUT, "too slow")]
    assert pair.take(pair.cloud) == [], "what was on the way is dropped"
    assert pair.cloud.closed is None


def test_more_streams_than_allowed() -> None:
    pair = Pair(max_streams=2)
    pair.opened(), pair.opened()
    assert pair.edge.open(JOB, WORKER, TARGET) is None
    greedy = RelaySession(now=0.0, timing=TIMING, opens=True, budget=pair.budget, max_streams=9)
    cloud = RelaySession(now=0.0, timing=TIMING, opens=False, budget=pair.budget, max_streams=2)
    for _ in range(3):
        greedy.open(JOB, WORKER, TARGET)
    events = [e for m in greedy.data_to_send(0.0) for e in cloud.receive(m, 0.0)]
    assert len(events) == 2
    answers = [e for m in cloud.data_to_send(0.0) for e in greedy.receive(m, 0.0)]
    assert answers == [frames.Reset(3, Refusal.BUSY, "the node has 2 streams")]


LIES = {
    "a stream that was never opened": [frames.Data(7, b"x")],
    "a stream number twice": [frames.Open(1, JOB, WORKER, TARGET)] * 2,
    "a gap in the numbers": [frames.Open(2, JOB, WORKER, TARGET)],
    "data before the stream is accepted": [
        frames.Open(1, JOB, WORKER, TARGET),
        frames.Data(1, b"x"),
    ],
    "the end before the stream is accepted": [
        frames.Open(1, JOB, WORKER, TARGET),
        frames.End(1),
    ],
    "Opened from the side that opens": [
        frames.Open(1, JOB, WORKER, TARGET),
        frames.Opened(1),
    ],
    "more credit than the largest window": [
        frames.Open(1, JOB, WORKER, TARGET),
        frames.Credit(1, MAX_WINDOW),
    ],
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_a_peer_that_breaks_the_protocol_is_closed(lie: list[frames.AnyFrame]) -> None:
    cloud = Pair().cloud
    for frame in lie:
        cloud.receive(frames.encode(frame), 0.0)
    assert cloud.closed is not None
    assert cloud.closed.code == Close.PROTOCOL


@pytest.mark.parametrize("excess", [0, 1])
def test_a_peer_that_sends_more_than_its_credit_is_closed(excess: int) -> None:
    pair = Pair()
    stream = pair.opened()
    for size in (INITIAL_CREDIT, excess):
        if size:
            pair.cloud.receive(frames.encode(frames.Data(stream, bytes(size))), 0.0)
    assert (pair.cloud.closed is not None) == bool(excess)


def test_data_after_the_end_closes() -> None:
    pair = Pair()
    stream = pair.opened()
    for frame in (frames.End(stream), frames.Data(stream, b"x")):
        pair.cloud.receive(frames.encode(frame), 0.0)
    assert pair.cloud.closed is not None


def test_a_silent_peer_is_closed_and_an_idle_one_beats() -> None:
    pair = Pair()
    pair.edge.tick(TIMING.beat_s)
    assert [frames.decode(each) for each in pair.edge.data_to_send(TIMING.beat_s)] == [Beat()]
    pair.cloud.tick(TIMING.silence_s)
    assert pair.cloud.closed is not None
    assert pair.cloud.closed.code == Close.TIMEOUT


@given(data=st.binary(max_size=200))
def test_bytes_of_a_stranger_never_raise(data: bytes) -> None:
    cloud = Pair().cloud
    cloud.receive(data, 0.0)


@settings(max_examples=60)  # the machine may be busy
@given(seed=st.integers(0, 2**32))
def test_every_byte_arrives_once_and_in_order_whatever_happens_when(seed: int) -> None:
    """Random sends, deliveries and consumptions of several streams, both ways."""
    chance = random.Random(seed)
    pair = Pair(budget_bytes=chance.choice([0, 100_000, 1 << 20]))
    streams = [pair.opened() for _ in range(3)]
    ends = {pair.edge: pair.cloud, pair.cloud: pair.edge}
    wires: dict[RelaySession, list[bytes]] = {pair.edge: [], pair.cloud: []}  # towards this end
    sent = {(end, stream): b"" for end in ends for stream in streams}
    arrived = {(end, stream): b"" for end in ends for stream in streams}
    waiting = dict.fromkeys(arrived, 0)
    left = dict.fromkeys(sent, 150_000)
    for _ in range(1500):
        end = chance.choice([pair.edge, pair.cloud])
        stream = chance.choice(streams)
        match chance.randrange(3):
            case 0:
                most = min(end.credit(stream), left[end, stream], chance.choice([1, 500, 90_000]))
                part = chance.randbytes(most)
                if part:
                    end.send(stream, part)
                sent[end, stream] += part
                left[end, stream] -= len(part)
            case 1:
                wires[ends[end]] += end.data_to_send(0.0)
                for message in wires[end][: chance.randrange(4)]:
                    wires[end].pop(0)
                    for event in end.receive(message, 0.0):
                        if isinstance(event, frames.Data):
                            assert len(event.data) <= MAX_DATA_BYTES
                            arrived[end, event.stream] += event.data
                            waiting[end, event.stream] += len(event.data)
                            assert waiting[end, event.stream] <= MAX_WINDOW
            case 2:
                end.consumed(stream, waiting[end, stream])
                waiting[end, stream] = 0
        assert end.closed is None, end.closed
    for (end, stream), data in arrived.items():
        assert sent[ends[end], stream].startswith(data)
    assert any(arrived.values())
