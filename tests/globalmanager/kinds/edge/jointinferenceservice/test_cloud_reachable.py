"""JointInferenceService: the condition CloudReachable."""

from typing import Any

import pytest

from globalmanager.contract import Severity
from tests.globalmanager.kinds.edge.samples import small_service
from tests.support.world import World, at, report

# (seconds, answered by the cloud, fallbacks; totals) of each report -> condition, with its reason
ANSWERED, NO_ANSWER = ("True", "CloudAnswers"), ("False", "NoAnswer")
CASES: dict[str, tuple[list[tuple[int, int, int]], int, tuple[str, str] | None]] = {
    "no hard example": ([(0, 0, 0)], 600, None),
    "all are answered": ([(0, 4, 0)], 600, ANSWERED),
    "only fallbacks, for less than a minute": ([(0, 0, 5)], 59, None),
    "only fallbacks for a minute": ([(0, 0, 5)], 60, NO_ANSWER),
    "fallbacks that go on": ([(0, 0, 1), (20, 0, 2), (40, 0, 3)], 60, NO_ANSWER),
    "fallbacks beside answers": ([(n, n, n) for n in range(1, 200, 20)], 200, ANSWERED),
    "fallbacks after answers": ([(0, 4, 0), (30, 4, 1), (60, 4, 2)], 89, ANSWERED),
    "for a minute after answers": ([(0, 4, 0), (30, 4, 1), (60, 4, 2)], 90, NO_ANSWER),
    "an answer in the minute": ([(0, 4, 1), (30, 4, 2), (60, 5, 3), (80, 5, 4)], 139, ANSWERED),
    "a minute after that answer": ([(0, 4, 1), (30, 4, 2), (60, 5, 3), (80, 5, 4)], 140, NO_ANSWER),
    "answers again": ([(0, 0, 1), (90, 1, 1)], 90, ANSWERED),
    "answers again, and fallbacks": ([(0, 0, 1), (90, 1, 1), (91, 1, 2)], 92, ANSWERED),
}


def running_service() -> World:
    return small_service().contact("edge0").settle().available("edge", "cloud").settle()


def told(answered: int, fallbacks: int, **fields: Any) -> Any:
    counts = {
        "hard": answered + fallbacks,
        "answeredByCloud": answered,
        "fallbacks": fallbacks,
    }
    return report(counts=counts, **fields)


def reachable(world: World) -> tuple[str, str] | None:
    condition = world.condition("CloudReachable")
    return (condition["status"], condition["reason"]) if condition else None


@pytest.mark.parametrize("case", CASES)
def test_the_condition_follows_the_answers_of_the_cloud(case: str) -> None:
    reports, at_s, expected = CASES[case]
    world = running_service()
    for seconds, answered, fallbacks in reports:
        world.receive(told(answered, fallbacks))
        world.settle(at(seconds))
    assert reachable(world.settle(at(at_s))) == expected


def test_the_plan_comes_again_when_the_minute_is_over_also_after_a_restart() -> None:
    world = running_service()
    world.receive(told(0, 1))
    world.settle(at(0))
    assert world.plan(at(20)).requeue_after_s == 40  # the status alone says so
    world.settle(at(60))
    assert reachable(world) == NO_ANSWER
    assert world.plan(at(61)).requeue_after_s is None


def test_an_answer_between_two_plans_begins_a_new_minute() -> None:
    world = running_service()
    world.receive(told(0, 1))
    world.settle(at(0))
    for answered, fallbacks in ((1, 1), (1, 2)):
        world.receive(told(answered, fallbacks))
    world.settle(at(61))
    assert reachable(world) == ANSWERED
    assert reachable(world.settle(at(121))) == NO_ANSWER


def test_the_answers_of_one_worker_are_enough() -> None:
    world = running_service()
    for n in range(5):
        world.receive(told(0, n + 1, worker="digits-edge"))
        world.receive(told(n + 1, 0, worker="digits-edge-edge0"))
        world.settle(at(30 * n))
    assert reachable(world) == ANSWERED


def test_a_service_that_only_answers_writes_nothing_beside_its_reports() -> None:
    world = running_service()
    world.receive(told(1, 0))
    world.settle(at(0))
    for n in range(2, 5):
        world.receive(told(n, 1))
        assert world.plan(at(10 * n)).status is None
    world.receive(told(4, 2))
    world.settle(at(50))
    for n in range(3, 9):  # unreachable for a while: no further write for each report
        world.receive(told(4, n))
        assert (world.plan(at(110)).status is None) == (n > 3)
        world.settle(at(110))


def test_the_message_says_why_and_what_to_do() -> None:
    world = running_service()
    world.receive(told(0, 1))
    world.settle(at(0))
    plan = world.plan(at(60))
    (event,) = plan.events
    assert (event.severity, event.reason) == (Severity.WARNING, "NoAnswer")
    world.apply(plan)
    message = world.condition("CloudReachable")["message"]
    assert "digits-cloud" in message
    assert "network" in message
    world.available("edge").settle(at(70))
    assert reachable(world) == ("False", "CloudWorkerUnavailable")
    assert "condition Running" in world.condition("CloudReachable")["message"]


@pytest.mark.parametrize("before", [None, "x", {}, 0])
@pytest.mark.parametrize("since", [None, "x", {}, 3, "2999-01-01T00:00:00Z"])
def test_a_forged_time_is_no_fault_and_lasts_a_minute_at_most(since: Any, before: Any) -> None:
    world = running_service()
    world.receive(told(0, 1))
    world.object["status"] |= {"fallbacksSince": since, "answeredBeforeFallbacks": before}
    world.settle(at(0))
    assert reachable(world.settle(at(60))) == NO_ANSWER


@pytest.mark.parametrize("field", [None, "x", -1, 2**70, True, [1]])
def test_a_forged_number_is_no_fault(field: Any) -> None:
    world = running_service()
    world.object["status"]["fallbacksInARow"] = field
    world.settle(at(0)).settle(at(100))
    assert reachable(world) is None
    world.receive(told(0, 1))
    world.settle(at(100))
    assert reachable(world.settle(at(160))) == NO_ANSWER
