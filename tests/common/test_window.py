"""SendWindow against a model: newest value wins, bounded in all and for each key."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from common.window import SendWindow

KEYS = st.sampled_from("abcde")
SIZE = 3
GAP_S = 0.25


def test_value_that_waits_is_replaced_by_the_newer_one() -> None:
    window: SendWindow[str, int] = SendWindow(SIZE)
    window.put("a", 1)
    window.put("a", 2)
    assert window.take(0.0) == [(1, 2)]


def test_key_in_flight_waits_for_its_acknowledgement() -> None:
    window: SendWindow[str, int] = SendWindow(SIZE)
    window.put("a", 1)
    window.take(0.0)
    window.put("a", 2)
    assert window.take(0.0) == []
    window.on_ack(1)
    assert window.take(0.0) == [(2, 2)]


def test_newer_values_of_a_key_are_sent_at_once_up_to_the_bound_of_a_key() -> None:
    window: SendWindow[str, int] = SendWindow(2 * SIZE, per_key=2)
    for value in (1, 2, 3, 4):
        window.put("a", value)
        window.take(0.0)
    assert (window.unacknowledged, window.waiting) == (2, 1)
    assert window.in_flight("a") == 2
    window.on_ack(1)
    assert window.take(0.0) == [(3, 4)]


def test_newer_values_of_a_key_leave_a_gap_apart_until_the_key_is_acknowledged() -> None:
    window: SendWindow[str, int] = SendWindow(2 * SIZE, per_key=3, gap_s=GAP_S)
    window.put("a", 1)
    assert window.take(0.0) == [(1, 1)]
    window.put("a", 2)
    assert (window.take(GAP_S / 2), window.next_at()) == ([], GAP_S)
    window.put("a", 3)
    assert (window.take(GAP_S), window.next_at()) == ([(2, 3)], None)
    window.put("a", 4)
    assert (window.take(GAP_S), window.next_at()) == ([], 2 * GAP_S)
    window.on_ack(1)
    window.on_ack(2)
    assert (window.take(GAP_S), window.next_at()) == ([(3, 4)], None)


def test_keys_that_are_never_acknowledged_keep_out_no_other_key() -> None:
    window: SendWindow[int, int] = SendWindow(8, per_key=4)
    for _ in range(10):
        for key in (1, 2):
            window.put(key, key)
        window.take(0.0)
    assert window.unacknowledged == 4
    for key in range(3, 7):
        window.put(key, key)
    assert [value for _, value in window.take(0.0)] == [3, 4, 5, 6]


def test_a_blocked_key_does_not_hold_up_the_others() -> None:
    window: SendWindow[str, int] = SendWindow(SIZE)
    window.put("a", 1)
    window.take(0.0)
    window.put("a", 2)
    window.put("b", 3)
    assert window.take(0.0) == [(2, 3)]


@pytest.mark.parametrize("seq", [0, -1, 99])
def test_unknown_acknowledgement_is_nothing(seq: int) -> None:
    assert SendWindow[str, int](SIZE).on_ack(seq) is None


class WindowMachine(RuleBasedStateMachine):
    """A peer that applies what it gets ends with the newest value of every key."""

    size = SIZE
    per_key = 1
    gap_s = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.window: SendWindow[str, int] = SendWindow(
            self.size, per_key=self.per_key, gap_s=self.gap_s
        )
        self.now = 0.0
        self.sent_at: dict[str, float] = {}
        self.newest: dict[str, int] = {}
        self.peer: dict[str, int] = {}
        self.wire: list[tuple[int, str, int]] = []
        self.counter = 0

    @rule(key=KEYS)
    def put(self, key: str) -> None:
        self.counter += 1
        self.newest[key] = self.counter
        self.window.put(key, self.counter)

    @rule()
    def take(self) -> None:
        by_value = {value: key for key, value in self.newest.items()}
        for seq, value in self.window.take(self.now):
            assert value in by_value, "an outdated value was sent"
            key = by_value[value]
            if key in (name for _, name, _ in self.wire):
                assert self.now >= self.sent_at[key] + self.gap_s
            self.sent_at[key] = self.now
            self.wire.append((seq, key, value))

    @rule(seconds=st.sampled_from((0.01, GAP_S / 2, GAP_S, 2 * GAP_S)))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(index=st.integers(0, SIZE - 1))
    def arrive(self, index: int) -> None:
        if index < len(self.wire):
            seq, key, value = self.wire.pop(index)
            # Acknowledgements of one key come in any order; the channel itself keeps the order.
            assert self.per_key > 1 or value > self.peer.get(key, 0), "the peer went back"
            self.peer[key] = max(value, self.peer.get(key, 0))
            sent = self.window.on_ack(seq)
            assert sent is not None
            assert (sent.key, sent.value) == (key, value)
            assert self.window.on_ack(seq) is None

    @invariant()
    def bounded(self) -> None:
        assert self.window.unacknowledged == len(self.wire) <= self.size
        keys = [key for _, key, _ in self.wire]
        for key in set(keys):
            sent = [value for _, of, value in self.wire if of == key]
            assert len(sent) <= self.per_key, "too many values of one key are in flight"
            assert self.window.in_flight(key) == max(sent)
        if (next_at := self.window.next_at()) is not None:
            assert next_at in {self.sent_at[key] + self.gap_s for key in keys}

    def teardown(self) -> None:
        while self.window.waiting or self.wire:
            self.take()
            self.arrive(0)
        assert self.peer == self.newest


class DeepWindowMachine(WindowMachine):
    size = 2 * SIZE
    per_key = 2


class GapWindowMachine(DeepWindowMachine):
    gap_s = GAP_S


TestWindow = WindowMachine.TestCase
TestDeepWindow = DeepWindowMachine.TestCase
TestGapWindow = GapWindowMachine.TestCase


class CountedKey:
    """A key that counts how often any such key is looked up in a dict."""

    lookups = 0

    def __hash__(self) -> int:
        CountedKey.lookups += 1
        return id(self)


def test_an_acknowledgement_costs_the_same_whatever_waits() -> None:
    """Else a node with 12,400 tasks takes the cloud's event loop for 7 s with each session."""
    window: SendWindow[CountedKey, int] = SendWindow(64)
    for number in range(5000):
        window.put(CountedKey(), number)
    sent = window.take(0.0)
    CountedKey.lookups = 0
    for seq, _ in sent:
        window.on_ack(seq)
        window.take(0.0)
    assert CountedKey.lookups < 20 * len(sent)


def test_a_newer_value_waits_behind_what_was_never_sent() -> None:
    window: SendWindow[str, int] = SendWindow(1)
    window.put("a", 1)
    assert window.take(0.0) == [(1, 1)]
    window.put("a", 2)
    window.put("b", 3)
    assert window.waiting == 2
    window.on_ack(1)
    assert window.take(0.0) == [(2, 3)]
    window.on_ack(2)
    assert window.take(0.0) == [(3, 2)]
    assert window.waiting == 0
