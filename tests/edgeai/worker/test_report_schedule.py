"""When reports are due, on moments that the test chooses."""

import math

import pytest

from edgeai.backoff import Backoff
from edgeai.worker.reporter import ReportSchedule

NOW_S = 50.0


@pytest.fixture
def schedule() -> ReportSchedule:
    """One that has reported at NOW_S: period 1 s, heartbeat 10 s, pauses of 2, 4, 5, 5, … s."""
    backoff = Backoff(base_s=2, max_s=5, uniform=lambda _low, high: high)
    schedule = ReportSchedule(period_s=1, heartbeat_s=10, backoff=backoff)
    assert schedule.due_s() < NOW_S, "the first report is due at once"
    schedule.started()
    schedule.succeeded(NOW_S)
    return schedule


def test_heartbeat_when_nothing_changes(schedule: ReportSchedule) -> None:
    assert schedule.due_s() == NOW_S + 10


def test_change_is_due_one_period_after_the_last_report(schedule: ReportSchedule) -> None:
    schedule.changed()
    assert schedule.due_s() == NOW_S + 1


def test_change_while_a_report_is_on_its_way_is_due_too(schedule: ReportSchedule) -> None:
    schedule.changed()
    schedule.started()
    schedule.changed()
    schedule.succeeded(NOW_S + 3)
    assert schedule.due_s() == NOW_S + 4


def test_failures_are_tried_again_with_growing_pauses_for_ever(schedule: ReportSchedule) -> None:
    pauses = []
    for _ in range(5):
        schedule.started()
        schedule.failed(NOW_S, retry_after_s=0)
        pauses.append(schedule.due_s() - NOW_S)
    assert pauses == [2, 4, 5, 5, 5]


def test_change_does_not_shorten_the_pause_after_a_failure(schedule: ReportSchedule) -> None:
    schedule.failed(NOW_S, retry_after_s=0)
    schedule.changed()
    assert schedule.due_s() == NOW_S + 2


def test_retry_after_is_honoured(schedule: ReportSchedule) -> None:
    schedule.failed(NOW_S, retry_after_s=30)
    assert schedule.due_s() == NOW_S + 30


def test_hurry_ignores_period_and_pause_once(schedule: ReportSchedule) -> None:
    schedule.failed(NOW_S, retry_after_s=0)
    schedule.request_now()
    assert schedule.due_s() == -math.inf
    schedule.started()
    schedule.failed(NOW_S, retry_after_s=0)
    assert schedule.due_s() == NOW_S + 4


def test_hurry_for_what_is_on_its_way_already_asks_for_no_other(schedule: ReportSchedule) -> None:
    schedule.started()
    schedule.request_now()
    schedule.succeeded(NOW_S)
    assert schedule.due_s() == NOW_S + 10


def test_hurry_for_what_changed_meanwhile_asks_for_another(schedule: ReportSchedule) -> None:
    schedule.started()
    schedule.changed()
    schedule.request_now()
    schedule.succeeded(NOW_S)
    assert schedule.due_s() == -math.inf


def test_without_heartbeat_silence_lasts_until_something_changes() -> None:
    schedule = ReportSchedule(period_s=1, heartbeat_s=0, backoff=Backoff(base_s=1, max_s=1))
    schedule.started()
    schedule.succeeded(NOW_S)
    assert schedule.due_s() == math.inf
