"""Which reports of a worker wait, whatever comes between."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from localcontroller.link.pacing import GAP_S, Pacing


class PacingMachine(RuleBasedStateMachine):
    """Values of three keys are numbered; an older one never leaves after a newer one."""

    def __init__(self) -> None:
        super().__init__()
        self.pacing: Pacing[str, int] = Pacing()
        self.now = 0.0
        self.number = 0
        self.newest: dict[str, int] = {}
        self.left: dict[str, int] = {}
        self.at: dict[str, float] = {}  # when a value of a key left; until its acknowledgement

    def leave(self, key: str, value: int) -> None:
        assert value > self.left.get(key, 0)
        self.left[key], self.at[key] = value, self.now
        self.pacing.sent(key, self.now)

    @rule(key=st.sampled_from("abc"))
    def put(self, key: str) -> None:
        self.number += 1
        self.newest[key] = self.number
        if not self.pacing.hold(key, self.number):
            assert key not in self.at, "a value went out beside one that is not acknowledged"
            self.leave(key, self.number)

    @rule(key=st.sampled_from("abc"))
    def acknowledge(self, key: str) -> None:
        if self.at.pop(key, None) is not None:
            self.pacing.acknowledged(key)
            value = self.pacing.release(key)
            if value is not None:
                self.leave(key, value)

    @rule(seconds=st.sampled_from((0.01, GAP_S / 2, GAP_S, 2 * GAP_S)))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        for key, value in self.pacing.take(self.now):
            assert self.now >= self.at[key] + GAP_S
            self.leave(key, value)

    @invariant()
    def what_waits_has_a_time(self) -> None:
        waiting = {key: at for key, at in self.at.items() if self.left[key] < self.newest[key]}
        next_at = self.pacing.next_at()
        assert (next_at is not None) == bool(waiting)
        if next_at is not None:
            assert next_at <= min(waiting.values()) + GAP_S


TestPacing = PacingMachine.TestCase
TestPacing.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_value_that_was_released_leaves_no_earlier_time_behind() -> None:
    pacing: Pacing[str, int] = Pacing()
    pacing.sent("a", 0.0)
    assert pacing.hold("a", 1)
    pacing.acknowledged("a")
    assert pacing.release("a") == 1
    pacing.sent("a", 0.2)
    assert pacing.hold("a", 2)
    assert pacing.take(GAP_S) == []
    assert pacing.take(0.2 + GAP_S) == [("a", 2)]
    assert pacing.next_at() is None
