"""When a trigger of an IncrementalLearningJob is met, and which specs are refused."""

from datetime import UTC, datetime
from typing import Any

import pytest

from edgeai.api.incrementallearningjob import Samples, Timer, TriggerCondition
from globalmanager.kinds.edge.incrementallearningjob import triggers
from tests.globalmanager.kinds.edge.incrementallearningjob.learning import pods
from tests.globalmanager.kinds.edge.samples import (
    counted,
    incremental_job,
    incremental_learning_spec,
)
from tests.support.world import report


@pytest.mark.parametrize(
    ("operators", "less", "same", "more"),
    [
        ("> gt", False, False, True),
        (">= ge", False, True, True),
        ("< lt", True, False, False),
        ("<= le", True, True, False),
        ("= == eq", False, True, False),
        ("!= ne", True, False, True),
    ],
)
def test_operators_are_those_of_sedna(operators: str, less: bool, same: bool, more: bool) -> None:
    for operator in operators.split():
        condition = TriggerCondition(operator, 0.5, "precision")
        values = (0.4, 0.5 + 1e-9, 0.6)
        assert [triggers.is_met(condition, value) for value in values] == [less, same, more]
        assert not triggers.is_met(condition, float("nan"))


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        ("p", 0.75),
        ("p_delta", 0.25),
        ("p[1]", 0.5),
        ("p_delta[1]", 0.25),
        ("q", None),
        ("q_delta", None),
        ("p[7]", None),
        ("alone_delta", None),
    ],
)
def test_metrics_are_values_differences_and_items(metric: str, value: float | None) -> None:
    new = {"p": 0.75, "p[1]": 0.5, "alone": 1.0}
    assert triggers.value_of(metric, new, {"p": 0.5, "p[1]": 0.25}) == value


@pytest.mark.parametrize(
    ("start", "end", "clock", "closed_s"),
    [
        ("02:00", "20:00", "01:59:30", 30),
        ("02:00", "20:00", "02:00:00", 0),
        ("02:00", "20:00", "20:00:59", 0),
        ("02:00", "20:00", "20:01:00", 5 * 3600 + 59 * 60),
        ("02:00", "24:00", "23:59:59", 0),
        ("02:00", "24:00", "00:00:00", 7200),
        ("23:00", "01:00", "00:30:00", 0),
        ("23:00", "01:00", "12:00:00", 11 * 3600),
        ("00:00", "24:00", "12:00:00", 0),
        ("00:00", "23:59", "23:59:59", 0),
        ("24:00", "06:00", "05:00:00", 0),
        ("24:00", "06:00", "12:00:00", 12 * 3600),
    ],
)
def test_the_time_of_day_is_utc(start: str, end: str, clock: str, closed_s: float) -> None:
    now = datetime.fromisoformat(f"2026-01-02T{clock}").replace(tzinfo=UTC)
    assert triggers.closed_s(Timer(start, end), now) == closed_s


@pytest.mark.parametrize(
    ("end", "share", "middle"), [(10, 0.8, 8), (10, 1.0, 9), (10, 0.01, 1), (2, 0.5, 1)]
)
def test_each_part_of_the_samples_has_one_at_least(end: int, share: float, middle: int) -> None:
    assert triggers.divided(0, end, share) == (Samples(0, middle), Samples(middle, end))


def test_a_single_sample_is_for_both_parts() -> None:
    assert triggers.divided(3, 4, 0.8) == (Samples(3, 4), Samples(3, 4))


def trained(**trigger: Any) -> dict[str, Any]:
    spec = incremental_learning_spec()["trainSpec"]
    return {**spec, "trigger": trigger}


def test_a_round_waits_for_its_time_of_day() -> None:
    world = incremental_job(trainSpec=trained(timer={"start": "04:00", "end": "05:00"}))
    assert not pods(world.settle())
    assert world.contact("edge0").settle().plan().requeue_after_s == 55 * 60 + 55
    assert pods(world.settle(datetime(2026, 1, 2, 4, 0, tzinfo=UTC)))


def test_a_time_of_day_can_begin_at_the_end_of_the_day() -> None:
    world = incremental_job(trainSpec=trained(timer={"start": "24:00", "end": "06:00"})).settle()
    assert world.condition("Accepted")["status"] == "True"
    assert pods(world)


def test_a_round_can_wait_for_hard_examples() -> None:
    condition = {"operator": ">=", "threshold": 5, "metric": "num_of_hard_examples"}
    world = incremental_job(trainSpec=trained(condition=condition)).settle()
    assert not pods(world)
    world.receive(report(worker="helmet-inference", counts={"hard": 5}))
    assert pods(world.settle())
    assert world.status["progress"]["hard"] == 5


def test_a_trigger_that_is_always_met_begins_no_round_without_new_samples() -> None:
    condition = {"operator": ">=", "threshold": -1, "metric": "num_of_samples"}
    world = counted(incremental_job(trainSpec=trained(condition=condition)), data=0).settle()
    assert not pods(world)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"dataset": {"name": "data", "trainProb": 0}}, "spec.dataset.trainProb"),
        ({"dataset": {"name": "data", "trainProb": 1.5}}, "spec.dataset.trainProb"),
        ({"outputDir": "output"}, "spec.outputDir"),
        ({"outputDir": "https://a/b"}, "spec.outputDir"),
        ({"outputDir": "/" + "o" * 130}, "spec.outputDir"),
        ({"trainSpec": trained(timer={"start": "25:00", "end": "26:00"})}, "timer.start"),
        ({"trainSpec": trained(timer={"start": "24:00", "end": "24:00"})}, "timer.start"),
        (
            {"trainSpec": trained(condition={"operator": "~", "threshold": 1, "metric": "x"})},
            "condition.operator",
        ),
        (
            {"trainSpec": trained(condition={"operator": ">", "threshold": 1, "metric": "x"})},
            "condition.metric",
        ),
        (
            {"trainSpec": trained(condition={"operator": ">", "threshold": 1, "metric": "x[4]"})},
            "condition.metric",
        ),
        ({"initialModel": {"name": "A B"}}, "spec.initialModel.name"),
    ],
)
def test_a_wrong_spec_is_refused_by_its_field(change: dict[str, Any], field: str) -> None:
    world = incremental_job(**change).settle()
    accepted = world.condition("Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", "InvalidSpec")
    assert field in accepted["message"]


def test_a_path_that_is_not_allowed_is_refused() -> None:
    world = incremental_job(outputDir="/etc/models").settle()
    assert world.condition("ResolvedRefs")["reason"] == "PathNotAllowed"
    assert world.names() == []
