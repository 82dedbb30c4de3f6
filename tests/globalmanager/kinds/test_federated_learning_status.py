"""FederatedLearningJob: how a job ends, and what its status makes of the trainers' reports."""

from typing import Any

import pytest

from common.wire import WorkerStatus
from globalmanager.kinds.federatedlearningjob.main import LEFT_WAITING_S
from globalmanager.model import Create, Severity
from tests.globalmanager.builders import World, at, report
from tests.globalmanager.kinds.samples import federated, federation
from tests.globalmanager.kinds.test_federated_learning_plan import ALL, acts

# ---- the end ------------------------------------------------------------------------------------


def test_a_job_is_complete_when_every_worker_has_succeeded() -> None:
    world = federation().settle()
    world.pods_become("Running").settle()
    assert world.status["phase"] == "Training"
    world.pods_become("Succeeded").settle()
    assert world.status["phase"] == "Succeeded"
    assert world.condition("Complete")["status"] == "True"
    assert world.status["completionTime"]
    assert (world.status["active"], world.status["succeeded"]) == (0, 3)


def test_a_good_end_is_no_warning() -> None:
    world = federation().settle()
    world.pods_become("Running").settle()
    (event,) = world.pods_become("Succeeded").plan().events
    assert (event.severity, event.reason) == (Severity.NORMAL, "Succeeded")


@pytest.mark.parametrize("change", ["pods are collected", "spec is edited", "model is gone"])
def test_a_complete_job_stays_complete(change: str) -> None:
    world = federation().settle()
    world.pods_become("Succeeded").settle()
    conditions = world.status["conditions"]
    if change == "pods are collected":
        for name in ALL:
            world.gone("Pod", name)
    elif change == "spec is edited":
        world.change(federated(3))
    else:
        world.without("Model", "small")
    world.settle()
    assert not [a for a in world.plan().actions if isinstance(a, Create)]
    assert world.status["phase"] == "Succeeded"
    assert world.status["conditions"] == conditions


@pytest.mark.parametrize("end", ["deleted", "evicted"])
def test_a_trainer_that_is_lost_after_the_aggregators_end_has_nothing_to_come_back_for(
    end: str,
) -> None:
    """Made anew it would wait for ever for an aggregator that is done."""
    world = federation().settle()
    world.pods_become("Running").pods_become("Succeeded", "digits-aggregation", "digits-train-0")
    world.settle()
    assert world.status["phase"] == "Training"  # the other is still at work
    if end == "deleted":
        world.gone("Pod", "digits-train-1")
    else:
        world.pods_become("Failed", "digits-train-1", reason="Evicted")
    assert acts(world) == []
    world.settle()
    assert world.status["phase"] == "Succeeded"
    complete = world.condition("Complete")
    assert complete["message"].endswith("ended before they had the result: digits-train-1")


def test_a_trainer_that_is_lost_before_the_aggregators_end_is_made_again() -> None:
    world = federation().settle()
    world.pods_become("Running").pods_become("Succeeded", "digits-train-0").settle()
    world.gone("Pod", "digits-train-1")
    assert acts(world) == ["Create digits-train-1"]


def left_waiting() -> World:
    """The aggregator has succeeded at NOW; trainer 1 still runs."""
    world = federation().contact("edge0").contact("edge1").settle()
    world.pods_become("Running").pods_become("Succeeded", "digits-aggregation", "digits-train-0")
    return world.settle()


def test_a_trainer_that_still_waits_long_after_the_aggregators_end_is_ended() -> None:
    """As one whose container started again after the end: nobody is left whom it could reach."""
    world = left_waiting()
    assert world.plan(at(1)).requeue_after_s == LEFT_WAITING_S - 1
    assert acts(world, at(LEFT_WAITING_S - 1)) == []
    assert acts(world, at(LEFT_WAITING_S)) == ["Delete digits-train-1"]
    assert world.plan(at(LEFT_WAITING_S)).requeue_after_s is None
    world.settle(at(LEFT_WAITING_S))
    assert world.status["phase"] == "Succeeded"
    assert world.condition("Complete")["message"].endswith("had the result: digits-train-1")


@pytest.mark.parametrize("change", ["aggregator is collected", "model is gone", "spec is edited"])
def test_a_trainer_left_waiting_is_ended_whatever_else_happens(change: str) -> None:
    world = left_waiting()
    if change == "aggregator is collected":
        world.gone("Pod", "digits-aggregation")
    elif change == "model is gone":
        world.without("Model", "small")
    else:
        world.change(federated(3))
    world.settle(at(1))
    assert acts(world, at(LEFT_WAITING_S)) == ["Delete digits-train-1"]


def test_a_trainer_that_ends_in_time_has_the_result() -> None:
    world = left_waiting()
    world.pods_become("Succeeded", "digits-train-1")
    assert world.plan(at(1)).requeue_after_s is None
    world.settle(at(1))
    assert world.condition("Complete")["message"] == "every worker has succeeded"


def test_a_deadline_of_a_pod_fails_the_job_and_ends_the_others() -> None:
    world = federation().settle()
    world.pods_become("Running").pods_become(
        "Failed", "digits-train-0", reason="DeadlineExceeded", message="was active too long"
    )
    assert acts(world) == ["Delete digits-aggregation", "Delete digits-train-1"]
    world.settle()
    failed = world.condition("Failed")
    assert failed["status"] == "True"
    assert failed["message"] == "pod digits-train-0: was active too long"
    assert world.status["phase"] == "Failed"


# ---- what trainers tell -------------------------------------------------------------------------


def test_a_trainer_that_failed_is_as_its_next_process_says() -> None:
    """Each process is an attempt; what is late of the first takes nothing back."""
    world = federation().settle()
    name = "digits-train-0"
    said: tuple[tuple[int, WorkerStatus, int], ...] = (
        (1, "running", 4),
        (1, "failed", 4),
        (2, "running", 5),
        (1, "failed", 4),
        (2, "completed", 6),
        (1, "failed", 4),
    )
    reports = [
        report(worker=name, attempt=attempt, status=status, counts={"currentRound": round_})
        for attempt, status, round_ in said
    ]
    seen = []
    for each in reports:
        world.receive(each)
        entry = world.status["workers"][name]
        seen.append((entry["status"], entry["taskInfo"]["currentRound"]))
    assert seen == [
        ("running", 4),
        ("failed", 4),
        ("running", 5),
        ("running", 5),
        ("completed", 6),
        ("completed", 6),
    ]
    assert world.settle().status["round"] == 6


def told(worker: str, round_: int, samples: int, **metrics: float) -> Any:
    counts = {"currentRound": round_, "rounds": 5, "sampleCount": samples}
    named = {f"metrics.{key}": value for key, value in metrics.items()}
    return report(worker=worker, counts={**counts, **named})


def test_round_and_metrics_are_made_of_what_all_trainers_told() -> None:
    world = federation().settle()
    world.pods_become("Running")
    world.receive(told("digits-train-0", 3, 100, accuracy=0.5))
    world.receive(told("digits-train-1", 4, 300, accuracy=0.9, loss=1.0))
    world.settle()
    assert (world.status["round"], world.status["rounds"]) == (4, 5)
    metrics = {metric["key"]: metric["value"] for metric in world.status["metrics"]}
    assert metrics == {"accuracy": "0.8", "loss": "1"}
    assert world.condition("Training")["message"] == "round 4"


def test_the_model_tells_how_far_it_is() -> None:
    world = federation().settle()
    world.receive(told("digits-train-0", 3, 100, accuracy=0.5))
    world.settle()
    status = world.other("Model", "small")["status"]
    metrics = {metric["key"]: metric["value"] for metric in status["metrics"]}
    assert metrics == {"round": "3", "accuracy": "0.5"}
    assert status["updateTime"]
    assert world.plan(at(5)).actions == ()


def test_a_trainer_that_begins_anew_is_believed() -> None:
    world = federation().settle()
    world.receive(told("digits-train-0", 3, 100))
    begun = report(worker="digits-train-0", instance="another", counts={"currentRound": 1})
    world.receive(begun)
    world.settle()
    assert world.status["round"] == 1
