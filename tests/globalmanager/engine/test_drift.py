"""Drift: what others change is put back, but never for ever against a webhook."""

from typing import Any

import pytest

from globalmanager.contract import Object
from globalmanager.engine.drift import FIRST_S, MAX_S, Drift


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def service(port: int, uid: str = "u1", **spec: Any) -> Object:
    return {"metadata": {"uid": uid}, "spec": {"port": port, **spec}}


DESIRED = service(1)


def test_the_first_change_is_put_back_at_once(clock: Clock) -> None:
    assert Drift(clock).wait_s(DESIRED, service(2)) == 0


def test_each_further_one_waits_twice_as_long_up_to_a_bound(clock: Clock) -> None:
    drift = Drift(clock)
    waits = []
    for _ in range(10):
        drift.note_write(DESIRED, DESIRED, is_drift=True)
        wait_s = drift.wait_s(DESIRED, service(2))
        assert wait_s is not None
        waits.append(wait_s)
        clock.now_s += wait_s
    assert waits[:3] == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S]
    assert waits[-1] == MAX_S


def test_the_wait_stays_at_the_bound_for_ever(clock: Clock) -> None:
    drift = Drift(clock)
    for _ in range(2000):
        drift.note_write(DESIRED, DESIRED, is_drift=True)
    assert drift.wait_s(DESIRED, service(2)) == MAX_S


def test_time_that_has_passed_counts(clock: Clock) -> None:
    drift = Drift(clock)
    drift.note_write(DESIRED, DESIRED, is_drift=True)
    clock.now_s += FIRST_S - 1
    assert drift.wait_s(DESIRED, service(2)) == 1


def test_after_a_quiet_time_it_begins_anew(clock: Clock) -> None:
    drift = Drift(clock)
    for _ in range(8):
        drift.note_write(DESIRED, DESIRED, is_drift=True)
    clock.now_s += 2 * MAX_S
    assert drift.wait_s(DESIRED, service(2)) == 0
    assert drift.note_write(DESIRED, DESIRED, is_drift=True) == 1


@pytest.mark.parametrize("is_drift", [False, True], ids=["created so", "put back so"])
def test_what_the_server_itself_changes_is_left_alone(clock: Clock, is_drift: bool) -> None:
    """A quantity is written in another way, or a webhook sets a field of ours."""
    drift = Drift(clock)
    drift.note_write(DESIRED, service(7), is_drift=is_drift)
    assert drift.wait_s(DESIRED, service(7)) is None
    clock.now_s += MAX_S
    assert drift.wait_s(DESIRED, service(8)) == 0  # that was somebody else


def test_children_do_not_share_their_waits(clock: Clock) -> None:
    drift = Drift(clock)
    drift.note_write(DESIRED, DESIRED, is_drift=True)
    assert drift.wait_s(service(1, "u2"), service(2, "u2")) == 0


def test_what_is_remembered_is_bounded(clock: Clock) -> None:
    drift = Drift(clock)
    for number in range(10_000):
        drift.note_write(DESIRED, service(7, f"u{number}"))
        drift.note_write(DESIRED, service(1, f"ordinary-{number}"))
    assert len(drift._children) == 4096
