"""Drift: what others change is put back, but never for ever against somebody who does it again."""

from typing import Any

import pytest

from edgeai.api.resources import Object
from globalmanager.engine.drift import FORGOTTEN_S, MAX_PAUSE_S, MAX_RESTORES, PAUSE_S, Drift
from globalmanager.kinds.shared.objects import differences
from tests.support.clock import Clock


def service(port: int, uid: str = "u1", **spec: Any) -> Object:
    return {"metadata": {"uid": uid}, "spec": {"port": port, **spec}}


DESIRED = service(1)


def restore(drift: Drift, existing: Object, answer: Object = DESIRED) -> None:
    drift.note_write(DESIRED, answer, drifted=differences(DESIRED, existing))


def test_the_first_change_is_put_back_at_once(clock: Clock) -> None:
    assert Drift(clock).wait_s(DESIRED, service(2)) == 0


def test_a_field_is_put_back_twice_and_then_left_alone(clock: Clock) -> None:
    """Whatever value the other one writes."""
    drift = Drift(clock)
    waits = []
    for value in (2, 3):
        waits.append(wait_s := drift.wait_s(DESIRED, service(value)))
        clock.now_s += wait_s or 0
        restore(drift, service(value))
        assert drift.left_alone(service(value)) == ()
    assert waits == [0, PAUSE_S]
    assert drift.wait_s(DESIRED, service(4)) is None
    assert drift.left_alone(service(4)) == ("spec.port",)
    clock.now_s += 100 * FORGOTTEN_S
    assert drift.wait_s(DESIRED, service(5)) is None


def test_another_field_is_put_back_with_a_longer_pause(clock: Clock) -> None:
    drift = Drift(clock)
    for number in range(MAX_RESTORES):
        clock.now_s += MAX_PAUSE_S
        restore(drift, service(number + 2))
    other = {"metadata": {"uid": "u1"}, "spec": {"port": 7}, "data": "x"}
    desired = {**DESIRED, "data": "y"}
    assert drift.wait_s(desired, other) == 2 * PAUSE_S
    clock.now_s += 2 * PAUSE_S
    assert drift.wait_s(desired, other) == 0


def test_the_pause_is_bounded_however_many_fields_there_are(clock: Clock) -> None:
    drift = Drift(clock)
    for number in range(2000):
        existing = {"metadata": {"uid": "u1"}, "spec": {f"field{number}": 1}}
        desired = {"metadata": {"uid": "u1"}, "spec": {f"field{number}": 2}}
        wait_s = drift.wait_s(desired, existing)
        assert wait_s is not None
        assert wait_s <= MAX_PAUSE_S
        clock.now_s += wait_s
        drift.note_write(desired, desired, drifted=differences(desired, existing))
    assert wait_s == MAX_PAUSE_S


def test_a_change_after_a_long_time_in_order_is_the_first_again(clock: Clock) -> None:
    drift = Drift(clock)
    for value in (2, 3):
        restore(drift, service(value))
    drift.note_in_order(DESIRED)
    clock.now_s += FORGOTTEN_S - 1
    drift.note_in_order(DESIRED)
    clock.now_s += 1
    assert drift.wait_s(DESIRED, service(2)) == 0


def test_a_short_time_in_order_changes_nothing(clock: Clock) -> None:
    drift = Drift(clock)
    for value in (2, 3):
        restore(drift, service(value))
    drift.note_in_order(DESIRED)
    clock.now_s += FORGOTTEN_S - 1
    assert drift.wait_s(DESIRED, service(2)) is None


def test_when_the_other_one_gives_in_nothing_is_left_alone(clock: Clock) -> None:
    drift = Drift(clock)
    for value in (2, 3):
        restore(drift, service(value))
    drift.wait_s(DESIRED, service(2))
    drift.note_in_order(DESIRED)
    assert drift.left_alone(DESIRED) == ()


def test_a_changed_job_is_tried_again(clock: Clock) -> None:
    drift = Drift(clock)
    for value in (2, 3):
        restore(drift, service(value))
    drift.note_write(DESIRED, DESIRED)
    assert drift.wait_s(DESIRED, service(2)) == 0


@pytest.mark.parametrize("is_restored", [False, True], ids=["created so", "put back so"])
def test_what_the_server_itself_changes_is_left_alone(clock: Clock, is_restored: bool) -> None:
    """A field is dropped, or a webhook sets one of ours."""
    drift = Drift(clock)
    if is_restored:
        restore(drift, service(2), answer=service(7))
    else:
        drift.note_write(DESIRED, service(7))
    assert drift.wait_s(DESIRED, service(7)) is None
    assert drift.left_alone(service(7)) == ("spec.port",)
    clock.now_s += MAX_PAUSE_S
    assert drift.wait_s(DESIRED, service(8)) == 0  # that was somebody else


def test_beside_what_the_server_changes_other_fields_are_put_back(clock: Clock) -> None:
    drift = Drift(clock)
    desired = service(1, name="a")
    drift.note_write(desired, service(7, name="a"))
    assert drift.wait_s(desired, service(7, name="b")) == 0


def test_children_do_not_share_their_waits(clock: Clock) -> None:
    drift = Drift(clock)
    restore(drift, service(2))
    assert drift.wait_s(service(1, "u2"), service(2, "u2")) == 0


def test_what_is_remembered_is_bounded(clock: Clock) -> None:
    drift = Drift(clock)
    for number in range(10_000):
        drift.note_write(DESIRED, service(7, f"u{number}"))
        drift.note_write(DESIRED, service(1, f"ordinary-{number}"))
    assert len(drift._children) == 4096
