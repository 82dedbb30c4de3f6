"""Edits of the limits of an elastic TrainingJob that runs, and edits that make its spec wrong."""

from typing import Any

import pytest

from globalmanager.contract import Event, Result
from tests.globalmanager.builders import copied
from tests.globalmanager.kinds.elastic import LAUNCHER, worker
from tests.globalmanager.kinds.room import Cluster, elastic

WRONG_LIMITS = [
    ({"minReplicas": 7}, "worker.minReplicas is 7, above maxReplicas, 6"),
    ({"minReplicas": None}, "worker.minReplicas is missing, but spec.elastic needs it"),
    ({"maxReplicas": None}, "worker.maxReplicas is missing, but spec.elastic needs it"),
    ({"restartPolicy": "Never"}, "worker.restartPolicy is Never, but spec.elastic"),
]


def edit(cluster: Cluster, **worker_fields: Any) -> Cluster:
    """The user changes fields of etReplicaSpecs.worker. None removes a field."""
    spec = copied(cluster.object["spec"])
    form = {**spec["etReplicaSpecs"]["worker"], **worker_fields}
    given = {key: value for key, value in form.items() if value is not None}
    spec["etReplicaSpecs"]["worker"] = given
    cluster.change(spec)
    return cluster


def change(cluster: Cluster, **fields: Any) -> Cluster:
    """The user changes fields of the spec."""
    cluster.change({**copied(cluster.object["spec"]), **fields})
    return cluster


def stalled(cluster: Cluster) -> dict[str, Any]:
    return cluster.condition("Stalled")


def told_of(cluster: Cluster, reason: str) -> list[Event]:
    return [event for event in cluster.events if event.reason == reason]


# ---- limits that no number of workers keeps -----------------------------------------------------


@pytest.mark.parametrize(("fields", "problem"), WRONG_LIMITS)
def test_a_running_job_goes_on_as_it_is_with_limits_that_are_wrong(
    fields: dict[str, Any], problem: str
) -> None:
    cluster = Cluster(elastic(low=2, high=6), room=5).rest()
    assert (cluster.running(), cluster.queue()) == ([0, 1, 2, 3], [worker(4)])
    edit(cluster, **fields).rest()
    assert (cluster.running(), cluster.queue()) == ([0, 1, 2, 3], [worker(4)])
    assert stalled(cluster)["reason"] == "InvalidSpec"
    assert problem in stalled(cluster)["message"]
    assert "goes on as it is" in stalled(cluster)["message"]
    assert len(told_of(cluster, "TrainingJobStalled")) == 1
    assert cluster.status["phase"] == "Running"


@pytest.mark.parametrize(("fields", "problem"), WRONG_LIMITS[:3])
def test_a_lost_worker_of_a_job_with_wrong_limits_is_replaced(
    fields: dict[str, Any], problem: str
) -> None:
    cluster = Cluster(elastic(low=2, high=6), room=5).rest()
    edit(cluster, **fields).rest()
    cluster.preempt().rest()
    assert (cluster.running(), cluster.hosts()) == ([0, 1, 2], [worker(n) for n in (0, 1, 2)])
    assert len(cluster.queue()) == 2
    cluster.room = 9
    cluster.rest()
    assert cluster.running() == [0, 1, 2, 4, 5]
    assert problem in stalled(cluster)["message"]


@pytest.mark.parametrize(("fields", "problem"), WRONG_LIMITS)
def test_a_job_with_wrong_limits_ends_with_its_launcher(
    fields: dict[str, Any], problem: str
) -> None:
    cluster = Cluster(elastic(low=2, high=6), room=5).rest()
    edit(cluster, **fields).rest()
    cluster.pods_become("Succeeded", LAUNCHER)
    cluster.rest()
    assert cluster.status["phase"] == "Succeeded"
    assert list(cluster.pods_of_job()) == [LAUNCHER]


@pytest.mark.parametrize(("fields", "problem"), WRONG_LIMITS)
def test_a_job_whose_limits_are_corrected_follows_the_room_again(
    fields: dict[str, Any], problem: str
) -> None:
    cluster = Cluster(elastic(low=2, high=6), room=5).rest()
    edit(cluster, **fields).rest()
    edit(cluster, minReplicas=2, maxReplicas=5, restartPolicy=None)
    cluster.room = 9
    assert cluster.rest().running() == [0, 1, 2, 3, 4]
    assert stalled(cluster) == {}


def test_wrong_limits_are_told_once_for_each_fault() -> None:
    cluster = Cluster(elastic(low=2, high=6), room=5).rest()
    edit(cluster, minReplicas=7).rest()
    edit(cluster, replicas=3).rest()
    assert len(told_of(cluster, "TrainingJobStalled")) == 1
    edit(cluster, minReplicas=8).rest()
    assert len(told_of(cluster, "TrainingJobStalled")) == 2


@pytest.mark.parametrize(("fields", "problem"), WRONG_LIMITS)
def test_an_elastic_job_with_wrong_limits_does_not_start(
    fields: dict[str, Any], problem: str
) -> None:
    cluster = edit(Cluster(elastic(low=2, high=6), room=5), **fields).rest()
    assert cluster.status["phase"] == "Failed"
    assert problem.replace(" is", ": is", 1) in cluster.condition("Failed")["message"]
    assert cluster.names() == []


@pytest.mark.parametrize(("fields", "problem"), WRONG_LIMITS)
def test_no_scaler_changes_a_job_with_wrong_limits(fields: dict[str, Any], problem: str) -> None:
    cluster = Cluster(elastic(low=2, high=6), room=9).rest()
    edit(cluster, **fields).rest()
    cluster.scale_in(count=1).scale_out(1).rest()
    assert len(cluster.running()) == 6
    for name in ("in", "out"):
        assert cluster.state(name)["phase"] == "ScaleFailed"
        assert problem in cluster.state(name)["message"]


@pytest.mark.parametrize(("fields", "problem"), WRONG_LIMITS)
def test_kubectl_scale_of_a_job_with_wrong_limits_waits_for_correct_ones(
    fields: dict[str, Any], problem: str
) -> None:
    cluster = Cluster(elastic(low=2, high=6), room=9).rest()
    edit(cluster, **fields).rest()
    edit(cluster, replicas=3).rest()
    assert (len(cluster.running()), cluster.scalers) == (6, {})
    edit(cluster, minReplicas=2, maxReplicas=6, restartPolicy=None)
    cluster.results = [Result(exit_code=0)]
    assert cluster.rest().running() == [0, 1, 2]


# ---- a spec that cannot be read -----------------------------------------------------------------


def unreadable(**fields: Any) -> Cluster:
    """A job whose spec an edit has made wrong."""
    cluster = Cluster(elastic(low=1, high=3, **fields), room=4).rest()
    return change(cluster, elastic={"maxQueued": 0}).rest()


def test_a_job_with_a_wrong_spec_succeeds_with_its_launcher() -> None:
    cluster = unreadable()
    assert stalled(cluster)["reason"] == "InvalidSpec"
    cluster.pods_become("Succeeded", LAUNCHER)
    cluster.rest()
    assert cluster.status["phase"] == "Succeeded"
    assert "completionTime" in cluster.status
    assert list(cluster.pods_of_job()) == [LAUNCHER]
    assert len(told_of(cluster, "TrainingJobFailedValidation")) == 1
    assert len(told_of(cluster, "TrainingJobSucceeded")) == 1


def test_a_job_with_a_wrong_spec_fails_with_its_launcher() -> None:
    cluster = unreadable()
    cluster.pods_become("Failed", LAUNCHER)
    cluster.rest()
    assert cluster.status["phase"] == "Failed"
    assert "its launcher failed" in cluster.condition("Failed")["message"]
    assert list(cluster.pods_of_job()) == [LAUNCHER]


def test_a_job_with_a_wrong_spec_whose_launcher_is_lost_has_failed() -> None:
    cluster = unreadable()
    cluster.gone("Pod", LAUNCHER).rest()
    assert cluster.status["phase"] == "Failed"
    assert "is gone" in cluster.condition("Failed")["message"]


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_launcher_restarts_when_the_wrong_spec_is_corrected(is_lost: bool) -> None:
    cluster = unreadable(restartPolicy="OnFailure", backoffLimit=1)
    if is_lost:
        cluster.gone("Pod", LAUNCHER)
    else:
        cluster.pods_become("Failed", LAUNCHER)
    cluster.rest()
    assert cluster.status["phase"] == "Running"
    assert "maxQueued" in stalled(cluster)["message"]
    change(cluster, elastic={}).rest()
    assert (cluster.status["phase"], cluster.status["restartCount"]) == ("Running", 1)
    assert stalled(cluster) == {}
    change(cluster, elastic={"maxQueued": 0}).pods_become("Failed", LAUNCHER)
    cluster.rest()
    assert cluster.status["phase"] == "Failed"  # the backoff limit is reached


def test_a_job_with_a_wrong_spec_is_suspended_and_resumes_once_it_is_corrected() -> None:
    cluster = unreadable()
    mark = "job-supervisor.kube-ai.io/job-suspended"
    cluster.object["metadata"]["annotations"] = {mark: "true"}
    cluster.rest()
    assert (cluster.status["phase"], cluster.pods_of_job()) == ("Suspended", {})
    cluster.object["metadata"]["annotations"] = {}
    cluster.rest()
    assert (cluster.status["phase"], cluster.pods_of_job()) == ("Suspended", {})
    assert "maxQueued" in stalled(cluster)["message"]
    change(cluster, elastic={}).rest()
    assert (cluster.status["phase"], len(cluster.running())) == ("Running", 3)
