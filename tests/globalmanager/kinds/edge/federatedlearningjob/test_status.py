"""FederatedLearningJob: the end of a job, and the trainers' reports in its status."""

from itertools import pairwise
from typing import Any

import msgspec
import pytest

from common.wire import WorkerStatus
from edgeai.faults.summary import CURVES
from edgeai.times import rfc3339
from globalmanager.contract import Create, Refusal, Severity
from globalmanager.kinds.edge.federatedlearningjob import progress
from globalmanager.kinds.edge.federatedlearningjob.plan import LEFT_WAITING_S, REPLACED_AFTER_S
from tests.globalmanager.kinds.edge.federatedlearningjob.test_plan import (
    POD_NAMES,
    planned_actions,
    pod_names,
)
from tests.globalmanager.kinds.edge.samples import counted, federated_job, federated_learning_spec
from tests.support.world import NOW, World, at, report

# ---- the end ------------------------------------------------------------------------------------


def test_a_job_is_complete_when_every_worker_has_succeeded() -> None:
    world = federated_job().settle()
    world.pods_become("Running").settle()
    assert world.status["phase"] == "Training"
    world.pods_become("Succeeded").settle()
    assert world.status["phase"] == "Succeeded"
    assert world.condition("Complete")["status"] == "True"
    assert world.status["completionTime"]
    assert (world.status["active"], world.status["succeeded"]) == (0, 3)


def test_the_event_of_a_successful_job_is_no_warning() -> None:
    world = federated_job().settle()
    world.pods_become("Running").settle()
    (event,) = world.pods_become("Succeeded").plan().events
    assert (event.severity, event.reason) == (Severity.NORMAL, "Succeeded")


@pytest.mark.parametrize("change", ["pods are collected", "spec is edited", "model is gone"])
def test_a_complete_job_stays_complete(change: str) -> None:
    world = federated_job().settle()
    world.pods_become("Succeeded").settle()
    conditions = world.status["conditions"]
    if change == "pods are collected":
        for name in POD_NAMES:
            world.gone("Pod", name)
    elif change == "spec is edited":
        world.change(federated_learning_spec(3))
    else:
        world.without("Model", "small")
    world.settle()
    assert not [a for a in world.plan().actions if isinstance(a, Create)]
    assert world.status["phase"] == "Succeeded"
    assert world.status["conditions"] == conditions


@pytest.mark.parametrize("end", ["deleted", "evicted"])
def test_a_trainer_lost_after_the_aggregator_succeeded_is_not_created_again(
    end: str,
) -> None:
    """A new trainer would wait for ever for an aggregator that has ended."""
    world = federated_job().settle()
    world.pods_become("Running").pods_become("Succeeded", "digits-aggregation", "digits-train-0")
    world.settle()
    assert world.status["phase"] == "Training"  # trainer 1 still runs
    if end == "deleted":
        world.gone("Pod", "digits-train-1")
    else:
        world.pods_become("Failed", "digits-train-1", reason="Evicted")
    assert planned_actions(world) == []
    world.settle()
    assert world.status["phase"] == "Succeeded"
    complete = world.condition("Complete")
    assert complete["message"].endswith("ended before they had the result: digits-train-1")


def test_a_trainer_lost_before_the_aggregator_succeeded_is_created_again() -> None:
    world = federated_job().settle()
    world.pods_become("Running").pods_become("Succeeded", "digits-train-0").settle()
    world.gone("Pod", "digits-train-1")
    assert planned_actions(world) == ["Create digits-train-1"]


def job_with_a_waiting_trainer() -> World:
    """The aggregator has succeeded at NOW; trainer 1 still runs."""
    world = federated_job().contact("edge0").contact("edge1").settle()
    world.pods_become("Running").pods_become("Succeeded", "digits-aggregation", "digits-train-0")
    return world.settle()


def test_a_trainer_that_waits_long_after_the_aggregator_succeeded_is_deleted() -> None:
    """For example, a trainer that restarted after the end reaches no aggregator."""
    world = job_with_a_waiting_trainer()
    assert world.plan(at(1)).requeue_after_s == LEFT_WAITING_S - 1
    assert planned_actions(world, at(LEFT_WAITING_S - 1)) == []
    assert planned_actions(world, at(LEFT_WAITING_S)) == ["Delete digits-train-1"]
    assert world.plan(at(LEFT_WAITING_S)).requeue_after_s is None
    world.settle(at(LEFT_WAITING_S))
    assert world.status["phase"] == "Succeeded"
    assert world.condition("Complete")["message"].endswith("had the result: digits-train-1")


@pytest.mark.parametrize(
    "change", ["aggregator is collected", "model is gone", "spec is edited", "spec is invalid"]
)
def test_a_waiting_trainer_is_deleted_whatever_else_changes(change: str) -> None:
    world = job_with_a_waiting_trainer()
    if change == "aggregator is collected":
        world.gone("Pod", "digits-aggregation")
    elif change == "model is gone":
        world.without("Model", "small")
    else:
        world.change(federated_learning_spec(3) if change == "spec is edited" else {})
    world.settle(at(1))
    assert planned_actions(world, at(LEFT_WAITING_S)) == ["Delete digits-train-1"]
    world.settle(at(LEFT_WAITING_S))
    assert world.status["phase"] == "Succeeded"
    names_trainer = "digits-train-1" in world.condition("Complete")["message"]
    assert names_trainer is (change != "spec is invalid")  # which names no trainer


def test_a_trainer_that_ends_in_time_has_the_result() -> None:
    world = job_with_a_waiting_trainer()
    world.pods_become("Succeeded", "digits-train-1")
    assert world.plan(at(1)).requeue_after_s is None
    world.settle(at(1))
    assert world.condition("Complete")["message"] == "every worker has succeeded"


def test_a_pod_that_exceeds_its_deadline_fails_the_job() -> None:
    world = federated_job().settle()
    world.pods_become("Running").pods_become(
        "Failed", "digits-train-0", reason="DeadlineExceeded", message="was active too long"
    )
    assert planned_actions(world) == ["Delete digits-aggregation", "Delete digits-train-1"]
    world.settle()
    failed = world.condition("Failed")
    assert failed["status"] == "True"
    assert failed["message"] == "pod digits-train-0: was active too long"
    assert world.status["phase"] == "Failed"


# ---- reports of trainers ------------------------------------------------------------------------


def test_the_status_of_a_trainer_comes_from_its_newest_attempt() -> None:
    """Each process is an attempt; a late report of the first attempt changes nothing."""
    world = federated_job().settle()
    name = "digits-train-0"
    sent: tuple[tuple[int, WorkerStatus, int], ...] = (
        (1, "running", 4),
        (1, "failed", 4),
        (2, "running", 5),
        (1, "failed", 4),
        (2, "completed", 6),
        (1, "failed", 4),
    )
    reports = [
        report(worker=name, attempt=attempt, status=status, counts={"currentRound": round_})
        for attempt, status, round_ in sent
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


def trainer_report(worker: str, round_: int, samples: int, **metrics: float) -> Any:
    """A report of a trainer about a round of five, on so many samples."""
    counts = {"currentRound": round_, "rounds": 5, "sampleCount": samples}
    named = {f"metrics.{key}": value for key, value in metrics.items()}
    return report(worker=worker, counts={**counts, **named})


def test_round_and_metrics_are_computed_from_all_trainers_reports() -> None:
    world = counted(federated_job(), data0=100, data1=300).settle()
    world.pods_become("Running")
    world.receive(trainer_report("digits-train-0", 3, 100, accuracy=0.5))
    world.receive(trainer_report("digits-train-1", 4, 300, accuracy=0.9, loss=1.0))
    world.settle()
    assert (world.status["round"], world.status["rounds"]) == (4, 5)
    metrics = {metric["key"]: metric["value"] for metric in world.status["metrics"]}
    assert metrics == {"accuracy": "0.8", "loss": "1"}
    assert world.condition("Training")["message"] == "round 4"


def test_a_round_that_no_trainer_has_told_is_left_out() -> None:
    """Sedna's library never tells how many rounds there will be."""
    world = federated_job().settle()
    assert not {"round", "rounds"} & world.status.keys()
    world.receive(report(worker="digits-train-0", counts={"currentRound": 0}))
    assert world.settle().status["round"] == 0
    world.receive(report(worker="digits-train-0", counts={"currentRound": 3, "sampleCount": 8}))
    assert world.settle().status["round"] == 3
    assert "rounds" not in world.status
    assert world.plan().status is None


def history(world: World) -> dict[str, dict[int, str]]:
    """Metric -> round -> its value."""
    entries = world.status.get("history", [])
    return {
        entry["key"]: dict(zip(entry["rounds"], entry["values"], strict=True)) for entry in entries
    }


def test_a_finished_job_has_the_metrics_of_its_rounds() -> None:
    world = federated_job().settle()
    for round_, accuracy in ((1, 0.5), (2, 0.75), (2, 0.8), (4, 0.9)):
        world.receive(trainer_report("digits-train-0", round_, 100, accuracy=accuracy))
        world.settle()
    world.receive(trainer_report("digits-train-0", 4, 100, accuracy=0.9, loss=1.0))
    world.pods_become("Succeeded").settle()
    assert history(world) == {"accuracy": {1: "0.5", 2: "0.8", 4: "0.9"}, "loss": {4: "1"}}
    assert world.plan().status is None


def test_a_round_that_is_run_again_replaces_the_later_ones() -> None:
    world = federated_job().settle()
    for attempt, round_ in ((1, 1), (1, 2), (1, 3), (2, 2)):
        counts = {"currentRound": round_, "sampleCount": 9, "metrics.loss": float(round_ * attempt)}
        world.receive(report(worker="digits-train-0", attempt=attempt, counts=counts))
        world.settle()
    assert history(world) == {"loss": {1: "1", 2: "4"}}


@pytest.mark.parametrize("step", [1, 2, 7])
def test_the_history_of_a_long_job_has_a_bound(step: int) -> None:
    """A job may report only some of its rounds."""
    last: list[dict[str, Any]] = []
    for round_ in range(1, 1000 * step + 1, step):
        metrics = [{"key": f"m{number}", "value": str(round_)} for number in range(20)]
        last = progress.history(last, round_, metrics)
    assert len(last) == CURVES
    for entry in last:
        assert len(entry["rounds"]) == len(entry["values"]) <= progress.MAX_POINTS
        assert (entry["rounds"][0], entry["rounds"][-1]) == (1, 999 * step + 1)
        gaps = [after - before for before, after in pairwise(entry["rounds"])]
        assert 0 < min(gaps) <= max(gaps) <= 32 * step
    assert len(msgspec.json.encode(last)) < 10_000


@pytest.mark.parametrize(
    "last", ["no list", [7], [{"key": 1, "rounds": "x"}], [{"rounds": [True, "1"], "values": [{}]}]]
)
def test_a_history_that_somebody_else_wrote_is_no_history(last: Any) -> None:
    metrics = [{"key": "loss", "value": "1"}]
    assert progress.history(last, 3, metrics) == [{"key": "loss", "rounds": [3], "values": ["1"]}]


def test_names_that_somebody_else_wrote_leave_room_for_the_metrics_of_the_job() -> None:
    last = [{"key": f"a{number}", "rounds": [1], "values": ["1"]} for number in range(9)]
    for round_ in (2, 3):
        last = progress.history(last, round_, [{"key": "loss", "value": "1"}])
    assert len(last) == CURVES
    assert last[-1] == {"key": "loss", "rounds": [2, 3], "values": ["1", "1"]}


def test_the_status_of_the_model_has_round_and_metrics() -> None:
    world = federated_job().settle()
    world.receive(trainer_report("digits-train-0", 3, 100, accuracy=0.5))
    world.settle()
    status = world.other("Model", "small")["status"]
    metrics = {metric["key"]: metric["value"] for metric in status["metrics"]}
    assert metrics == {"round": "3", "accuracy": "0.5"}
    assert status["updateTime"]
    assert world.plan(at(5)).actions == ()


def model_metrics(world: World) -> dict[str, str]:
    """Metrics of the Model that the job makes."""
    metrics = world.other("Model", "small").get("status", {}).get("metrics", [])
    return {metric["key"]: metric["value"] for metric in metrics}


def test_the_plan_that_ends_the_job_also_updates_the_model() -> None:
    world = federated_job().settle()
    world.receive(trainer_report("digits-train-0", 5, 100))
    world.pods_become("Succeeded")
    world.apply(world.plan())
    assert (world.status["phase"], model_metrics(world)) == ("Succeeded", {"round": "5"})


def test_reports_that_arrive_after_the_end_of_the_job_count() -> None:
    """The edge was out of contact when its trainer ended."""
    world = federated_job().settle()
    world.receive(trainer_report("digits-train-0", 4, 100, accuracy=0.5))
    world.pods_become("Succeeded").settle()
    world.receive(trainer_report("digits-train-0", 5, 100, accuracy=0.9))
    world.settle()
    assert (world.status["round"], world.status["phase"]) == (5, "Succeeded")
    assert world.status["metrics"] == [{"key": "accuracy", "value": "0.9"}]
    assert model_metrics(world) == {"round": "5", "accuracy": "0.9"}


def test_the_reports_of_a_removed_trainer_do_not_count() -> None:
    world = federated_job().settle()
    world.receive(trainer_report("digits-train-0", 2, 100, accuracy=0.9))
    world.receive(trainer_report("digits-train-1", 9, 900, accuracy=0.1))
    world.settle()
    world.change(federated_learning_spec(1)).settle()
    assert sorted(world.status["workers"]) == ["digits-train-0"]
    assert world.status["round"] == 2
    assert world.status["metrics"] == [{"key": "accuracy", "value": "0.9"}]
    world.receive(trainer_report("digits-train-1", 10, 900))  # sent before the edit
    assert world.settle().status["round"] == 2
    assert sorted(world.status["workers"]) == ["digits-train-0"]


@pytest.mark.parametrize("pod", ["there", "collected"])
def test_a_removed_trainer_that_had_succeeded_does_not_count(pod: str) -> None:
    world = federated_job().settle()
    world.pods_become("Running").pods_become("Succeeded", "digits-train-1").settle()
    assert world.status["succeeded"] == 1
    if pod == "collected":
        world.gone("Pod", "digits-train-1").settle()
    world.change(federated_learning_spec(1)).settle()
    assert (world.status["succeeded"], world.status["finished"]) == (0, [])
    assert pod_names(world) == ["digits-aggregation", "digits-train-0"]


def test_an_invalid_edit_keeps_the_reported_round() -> None:
    world = federated_job().settle()
    world.receive(trainer_report("digits-train-1", 9, 900))
    world.change({}).settle()
    assert (world.status["phase"], world.status["round"]) == ("Invalid", 9)


def trained_by(name: str, created: str) -> dict[str, str]:
    return {"name": name, "uid": f"uid-of-{name}", "creationTimestamp": created}


@pytest.mark.parametrize(
    ("created", "message"),
    [("2026-01-02T03:04:06Z", "the rounds of job later"), ("2026-01-02T03:04:04Z", "carried out")],
    ids=["made later", "made earlier"],
)
def test_the_newer_of_two_jobs_with_one_model_writes_its_status(created: str, message: str) -> None:
    """Otherwise both jobs would write in turn as long as they run."""
    world = federated_job().settle()
    world.object["metadata"]["creationTimestamp"] = "2026-01-02T03:04:05Z"
    other = trained_by("later", created)
    metrics = [{"key": "round", "value": "7"}]
    world.other("Model", "small")["status"] = {"metrics": metrics, "trainedBy": other}
    world.receive(trainer_report("digits-train-0", 3, 100))
    world.settle()
    is_later = created > "2026-01-02T03:04:05Z"
    assert model_metrics(world) == {"round": "7" if is_later else "3"}
    assert message in world.condition("Accepted")["message"]


# ---- weights ------------------------------------------------------------------------------------


def told(world: World, first: int, second: int) -> World:
    """Two trainers report accuracies 0.5 and 0.9, and so many samples."""
    world.receive(trainer_report("digits-train-0", 5, first, accuracy=0.5))
    world.receive(trainer_report("digits-train-1", 5, second, accuracy=0.9))
    return world


def accuracy(world: World) -> str:
    (metric,) = world.status["metrics"]
    return str(metric["value"])


@pytest.mark.parametrize(
    ("datasets", "samples", "expected"),
    [
        ({"data0": 100, "data1": 300}, (400, 400), "0.8"),
        ({"data0": 100, "data1": 300}, (100, 300), "0.8"),
        ({"data0": 100, "data1": 300}, (10, 30), "0.8"),
        ({"data0": 100}, (400, 400), "0.7"),
        ({"data0": 100}, (100, 2**53), "0.7"),
        ({"data0": 300}, (300, 100), "0.6"),
        ({}, (400, 400), "0.7"),
        ({}, (100, 2**53), "0.7"),
    ],
    ids=[
        "Sedna's library",
        "edgeai's",
        "a part of the data",
        "one counted",
        "one counted, the other tells any number",
        "one counted, the other tells a smaller number",
        "none counted",
        "none counted, one tells any number",
    ],
)
def test_a_trainer_weighs_as_many_samples_as_its_own_dataset_has(
    datasets: dict[str, int], samples: tuple[int, int], expected: str
) -> None:
    """Each trainer with Sedna's library tells the total of all trainers."""
    world = told(counted(federated_job().settle(), **datasets), *samples).settle()
    assert accuracy(world) == expected
    assert world.status.get("samples", {}) == {
        name: datasets[data]
        for name, data in (("digits-train-0", "data0"), ("digits-train-1", "data1"))
        if data in datasets
    }
    assert world.plan().status is None


def test_the_condition_names_the_trainers_whose_samples_are_not_counted() -> None:
    world = counted(federated_job(2).settle(), data0=1200).settle()
    message = world.condition("Accepted")["message"]
    assert "digits-train-1 (Dataset data1)" in message
    assert "digits-train-0" not in message
    assert "at most 1200, the largest count among the trainers' Datasets" in message
    assert "condition Counted of the Dataset says why" in message
    counted(world, data1=10).settle()
    assert world.condition("Accepted")["message"] == "the spec can be carried out"


def test_where_no_dataset_is_counted_the_condition_says_so_in_few_words() -> None:
    world = federated_job(9).settle()
    message = world.condition("Accepted")["message"]
    assert "at most the median of the numbers that the trainers tell" in message
    assert message.count("(Dataset ") == 3
    assert "and 6 more are not counted" in message


def test_a_count_that_changes_changes_the_weights_until_the_job_is_over() -> None:
    world = told(counted(federated_job().settle(), data0=100, data1=300), 400, 400).settle()
    assert accuracy(counted(world, data1=100).settle()) == "0.7"
    assert accuracy(counted(world, data1=300).settle()) == "0.8"
    world.pods_become("Succeeded").settle()
    assert accuracy(counted(world, data0=9000).settle()) == "0.8"
    assert world.plan().status is None


@pytest.mark.parametrize("is_over", [False, True])
def test_the_weights_stay_when_a_dataset_is_deleted(is_over: bool) -> None:
    world = told(counted(federated_job().settle(), data0=100, data1=300), 400, 400).settle()
    world.pods_become("Succeeded" if is_over else "Running").settle()
    assert accuracy(world.without("Dataset", "data0").settle()) == "0.8"


def test_a_removed_trainer_has_no_weight() -> None:
    world = told(counted(federated_job().settle(), data0=100, data1=300), 400, 400).settle()
    world.change(federated_learning_spec(1)).settle()
    assert (world.status["samples"], accuracy(world)) == ({"digits-train-0": 100}, "0.5")


@pytest.mark.parametrize("samples", ["no map", {"digits-train-0": -1}, {"digits-train-0": "many"}])
def test_weights_that_somebody_else_wrote_are_corrected_or_ignored(samples: Any) -> None:
    world = told(counted(federated_job().settle(), data0=100, data1=300), 400, 400).settle()
    world.object = {**world.object, "status": {**world.status, "samples": samples}}
    assert accuracy(world.settle()) == "0.8"
    assert world.status["samples"] == {"digits-train-0": 100, "digits-train-1": 300}


def test_a_report_about_no_samples_makes_no_metric() -> None:
    world = federated_job().settle()
    world.receive(trainer_report("digits-train-0", 3, 0, accuracy=0.5))
    assert world.settle().status["metrics"] == []


# ---- the condition Training ---------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["its node is gone", "the spec has one more"])
def test_a_job_without_one_of_its_trainers_does_not_train(missing: str) -> None:
    world = federated_job().settle()
    world.pods_become("Running").settle()
    assert world.condition("Training")["status"] == "True"
    if missing == "its node is gone":
        workers = federated_learning_spec()["trainingWorkers"]
        workers[1]["nodeName"] = "edge1"
        world.change(federated_learning_spec(trainingWorkers=workers)).settle()
        world.pods_become("Running").settle()
        world.gone("Pod", "digits-train-1").without("Node", "edge1")
    else:
        world.change(federated_learning_spec(3))
    world.settle()
    training = world.condition("Training")
    assert (training["status"], training["reason"]) == ("False", "Starting")
    assert f"digits-train-{1 if 'node' in missing else 2}" in training["message"]


def test_a_pod_that_is_being_deleted_does_not_train() -> None:
    world = federated_job().settle()
    world.pods_become("Running")
    world.child("Pod", "digits-train-1")["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    assert world.settle().condition("Training")["status"] == "False"


def test_a_job_with_a_pending_trainer_is_not_complete() -> None:
    world = federated_job().settle()
    world.pods_become("Succeeded", "digits-aggregation", "digits-train-0")
    world.pods_become("Pending", "digits-train-1").settle()
    assert world.condition("Complete") == {}


def test_a_pod_that_runs_after_the_end_is_deleted() -> None:
    """A manager that had not seen the end may have created such a pod."""
    world = federated_job().settle()
    world.pods_become("Succeeded").settle()
    world.pods_become("Running", "digits-train-1")
    assert planned_actions(world) == ["Delete digits-train-1"]


def test_the_oldest_failed_pod_is_replaced_first() -> None:
    world = federated_job().contact("edge0").contact("edge1").settle()
    world.pods_become("Failed", "digits-train-0", "digits-train-1", reason="Evicted")
    younger = world.child("Pod", "digits-train-1")["metadata"]
    younger["creationTimestamp"] = rfc3339(at(10))
    assert world.plan(at(11)).requeue_after_s == REPLACED_AFTER_S - 11


@pytest.mark.parametrize("reason", ["NameConflict", "Waiting"])
def test_the_status_says_why_workers_are_not_created(reason: str) -> None:
    """A job that waits for the pods of an earlier job of its name makes no event."""
    world = federated_job()
    refused = msgspec.structs.replace(world.observed(), refusal=Refusal(reason, "is taken"))
    plan = world.kind.plan(refused, NOW)
    world.apply(msgspec.structs.replace(plan, stages=()))
    training = world.condition("Training")
    assert (training["reason"], training["message"]) == (reason, "is taken")
    assert world.status["phase"] == "Pending"
    assert [event.reason for event in plan.events] == ([reason] if reason != "Waiting" else [])


def test_a_trainer_that_starts_again_reports_its_new_round() -> None:
    world = federated_job().settle()
    world.receive(trainer_report("digits-train-0", 3, 100))
    begun = report(worker="digits-train-0", ledger_id="another", counts={"currentRound": 1})
    world.receive(begun)
    world.settle()
    assert world.status["round"] == 1


def test_what_a_silent_node_said_of_a_container_is_no_fault_of_the_job() -> None:
    world = federated_job().settle().pods_become("Running").settle()
    ended = {"name": "main", "state": {"terminated": {"exitCode": 255, "reason": "Unknown"}}}
    silent = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-02T03:00:00Z"}
    world.pods_become(
        "Running", "digits-train-0", containerStatuses=[ended], conditions=[silent]
    ).settle()
    assert world.condition("Training")["status"] == "True"
    assert world.status["phase"] == "Training"
