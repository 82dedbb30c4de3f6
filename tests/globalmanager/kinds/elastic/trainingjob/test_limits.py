"""Edits of the limits of an elastic TrainingJob that runs, and edits that make its spec wrong."""

from typing import Any

import pytest

from globalmanager.contract import Event, Result
from tests.globalmanager.kinds.elastic.room import ElasticCluster, elastic
from tests.globalmanager.kinds.elastic.world import JOB, LAUNCHER, worker
from tests.support.world import copied

WRONG_LIMITS = [
    ({"minReplicas": 7}, "worker.minReplicas is 7, above maxReplicas, 6"),
    ({"minReplicas": None}, "worker.minReplicas is missing, but spec.elastic needs it"),
    ({"maxReplicas": None}, "worker.maxReplicas is missing, but spec.elastic needs it"),
    ({"restartPolicy": "Never"}, "worker.restartPolicy is Never, but spec.elastic"),
]


def edit(cluster: ElasticCluster, **worker_fields: Any) -> ElasticCluster:
    """The user changes fields of etReplicaSpecs.worker. None removes a field."""
    spec = copied(cluster.object["spec"])
    form = {**spec["etReplicaSpecs"]["worker"], **worker_fields}
    given = {key: value for key, value in form.items() if value is not None}
    spec["etReplicaSpecs"]["worker"] = given
    cluster.change(spec)
    return cluster


def change(cluster: ElasticCluster, **fields: Any) -> ElasticCluster:
    """The user changes fields of the spec."""
    cluster.change({**copied(cluster.object["spec"]), **fields})
    return cluster


def stalled(cluster: ElasticCluster) -> dict[str, Any]:
    return cluster.condition("Stalled")


def told_of(cluster: ElasticCluster, reason: str) -> list[Event]:
    return [event for event in cluster.events if event.reason == reason]


# ---- limits that no number of workers keeps -----------------------------------------------------


@pytest.mark.parametrize(("fields", "problem"), WRONG_LIMITS)
def test_a_running_job_goes_on_as_it_is_with_limits_that_are_wrong(
    fields: dict[str, Any], problem: str
) -> None:
    cluster = ElasticCluster(elastic(low=2, high=6), room=5).rest()
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
    cluster = ElasticCluster(elastic(low=2, high=6), room=5).rest()
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
    cluster = ElasticCluster(elastic(low=2, high=6), room=5).rest()
    edit(cluster, **fields).rest()
    cluster.pods_become("Succeeded", LAUNCHER)
    cluster.rest()
    assert cluster.status["phase"] == "Succeeded"
    assert list(cluster.pods_of_job()) == [LAUNCHER]


@pytest.mark.parametrize(("fields", "problem"), WRONG_LIMITS)
def test_a_job_whose_limits_are_corrected_follows_the_room_again(
    fields: dict[str, Any], problem: str
) -> None:
    cluster = ElasticCluster(elastic(low=2, high=6), room=5).rest()
    edit(cluster, **fields).rest()
    edit(cluster, minReplicas=2, maxReplicas=5, restartPolicy=None)
    cluster.room = 9
    assert cluster.rest().running() == [0, 1, 2, 3, 4]
    assert stalled(cluster) == {}


def test_wrong_limits_are_told_once_for_each_fault() -> None:
    cluster = ElasticCluster(elastic(low=2, high=6), room=5).rest()
    edit(cluster, minReplicas=7).rest()
    edit(cluster, replicas=3).rest()
    assert len(told_of(cluster, "TrainingJobStalled")) == 1
    edit(cluster, minReplicas=8).rest()
    assert len(told_of(cluster, "TrainingJobStalled")) == 2


@pytest.mark.parametrize(("fields", "problem"), WRONG_LIMITS)
def test_an_elastic_job_with_wrong_limits_does_not_start(
    fields: dict[str, Any], problem: str
) -> None:
    cluster = edit(ElasticCluster(elastic(low=2, high=6), room=5), **fields).rest()
    assert cluster.status["phase"] == "Failed"
    assert problem.replace(" is", ": is", 1) in cluster.condition("Failed")["message"]
    assert cluster.names() == []


@pytest.mark.parametrize(("fields", "problem"), WRONG_LIMITS)
def test_no_scaler_changes_a_job_with_wrong_limits(fields: dict[str, Any], problem: str) -> None:
    cluster = ElasticCluster(elastic(low=2, high=6), room=9).rest()
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
    cluster = ElasticCluster(elastic(low=2, high=6), room=9).rest()
    edit(cluster, **fields).rest()
    edit(cluster, replicas=3).rest()
    assert (len(cluster.running()), cluster.scalers) == (6, {})
    edit(cluster, minReplicas=2, maxReplicas=6, restartPolicy=None)
    cluster.results = [Result(exit_code=0)]
    assert cluster.rest().running() == [0, 1, 2]


# ---- a spec that cannot be read -----------------------------------------------------------------


def unreadable(**fields: Any) -> ElasticCluster:
    """A job whose spec an edit has made wrong."""
    cluster = ElasticCluster(elastic(low=1, high=3, **fields), room=4).rest()
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


@pytest.mark.parametrize("way", ["field", "annotation"])
def test_a_job_with_a_wrong_spec_is_suspended_and_resumes_once_it_is_corrected(way: str) -> None:
    cluster = unreadable()
    mark = "job-supervisor.kube-ai.io/job-suspended"
    if way == "field":
        cluster.object["spec"]["suspend"] = True
    else:
        cluster.object["metadata"]["annotations"] = {mark: "true"}
    cluster.rest()
    assert (cluster.status["phase"], cluster.pods_of_job()) == ("Suspended", {})
    cluster.object["spec"].pop("suspend", None)
    cluster.object["metadata"]["annotations"] = {}
    cluster.rest()
    assert (cluster.status["phase"], cluster.pods_of_job()) == ("Suspended", {})
    assert "maxQueued" in stalled(cluster)["message"]
    change(cluster, elastic={}).rest()
    assert (cluster.status["phase"], len(cluster.running())) == ("Running", 3)


# ---- the limit of kubectl scale -----------------------------------------------------------------


def limited(number: int = 3, *, low: int = 1, high: int = 6) -> ElasticCluster:
    """A job with this limit, in a cluster with much room."""
    cluster = ElasticCluster(elastic(low=low, high=high), room=20).rest()
    edit(cluster, replicas=number)
    cluster.results = [Result(exit_code=0)]
    return cluster.rest()


@pytest.mark.parametrize(
    ("fields", "number"),
    [
        ({"maxReplicas": 2}, 2),
        ({"maxReplicas": 3}, 3),
        ({"maxReplicas": 9}, 3),
        ({"minReplicas": 5}, 5),
        ({"minReplicas": 7}, 3),  # above maxReplicas
        ({"maxReplicas": None}, 3),
    ],
)
def test_the_limit_of_kubectl_scale_outlives_an_edit_of_the_limits(
    fields: dict[str, Any], number: int
) -> None:
    cluster = limited(3)
    assert cluster.running() == [0, 1, 2]
    cluster.results = [Result(exit_code=0)]
    edit(cluster, **fields).rest()
    assert len(cluster.running()) == number
    assert cluster.told()["limit"] == 3
    edit(cluster, minReplicas=1, maxReplicas=6)
    cluster.results = [Result(exit_code=0)]
    cluster.rest()
    assert cluster.told()["limit"] == 3
    assert len(cluster.running()) == 3


def test_kubectl_scale_to_max_replicas_lifts_the_limit() -> None:
    cluster = limited(3)
    edit(cluster, replicas=6).rest()
    assert "limit" not in cluster.told()
    assert len(edit(cluster, maxReplicas=8).rest().running()) == 8


@pytest.mark.parametrize("limit", [0, -1, 10**9, "3", True, []])
def test_a_limit_that_cannot_be_one_does_not_count(limit: Any) -> None:
    cluster = ElasticCluster(elastic(low=1, high=4), room=20).rest()
    cluster.object["status"]["elastic"]["limit"] = limit
    cluster.rest()
    assert len(cluster.running()) == 4
    assert "limit" not in cluster.told()


# ---- the job's own ScaleIn ----------------------------------------------------------------------


def failing(tries: int) -> ElasticCluster:
    """A job with a limit of 3 workers, whose own ScaleIn has failed so often."""
    cluster = ElasticCluster(elastic(low=1, high=6), room=20).rest()
    edit(cluster, replicas=3)
    for _ in range(tries):
        name = scaling(cluster)
        fail(cluster, name)
    return cluster


def scaling(cluster: ElasticCluster) -> str:
    """The job goes on until its ScaleIn is being executed. Returns: the name of the ScaleIn"""
    for _ in range(500):
        cluster.tick()
        plan = cluster.planned()
        if cluster.status.get("currentScaler"):
            return str(cluster.status["currentScaler"]).partition("/")[2]
        cluster.now += max(cluster.wait or 0.01, 0.01) if not plan.actions else 0.1
    raise AssertionError("no scaler")


def fail(cluster: ElasticCluster, name: str) -> None:
    """Somebody edits the ScaleIn so that it fails."""
    cluster.scaler(name)["spec"]["toDelete"] = {"count": 0}
    while cluster.state(name)["phase"] != "ScaleFailed":
        cluster.planned()
        cluster.now += 0.1


def test_a_scale_in_of_the_job_that_failed_is_made_again_ever_more_slowly() -> None:
    cluster = failing(1)
    began = cluster.now
    assert scaling(cluster) == f"{JOB}-scale-2-2"
    assert 55 < cluster.now - began < 65
    fail(cluster, f"{JOB}-scale-2-2")
    began = cluster.now
    assert scaling(cluster) == f"{JOB}-scale-2-3"
    assert 115 < cluster.now - began < 125
    cluster.end(exit_code=0).rest()
    assert cluster.running() == [0, 1, 2]
    assert stalled(cluster) == {}


def test_the_job_tells_why_it_is_above_its_limit() -> None:
    cluster = failing(1)
    cluster.planned()
    cluster.planned()
    assert stalled(cluster)["reason"] == "ScaleInFailed"
    message = stalled(cluster)["message"]
    assert message.startswith(f"ScaleIn {JOB}-scale-2: the spec was changed")
    assert "6 workers" in message
    assert "limit, 3" in message
    plan = cluster.plan(cluster.clock)
    assert (plan.actions, plan.status) == ((), None)


def test_the_job_gives_up_after_ten_tries_until_the_user_deletes_one_or_edits_the_job() -> None:
    cluster = failing(10)
    before = cluster.now
    cluster.rest()
    assert cluster.now - before < 60
    assert len(cluster.scalers) == 10
    assert "delete the ScaleIn" in stalled(cluster)["message"]
    cluster.drop(f"{JOB}-scale-2-10")
    assert scaling(cluster) == f"{JOB}-scale-2-10"
    fail(cluster, f"{JOB}-scale-2-10")
    edit(cluster, replicas=4)
    assert scaling(cluster) == f"{JOB}-scale-3"


def test_a_scale_in_of_the_job_that_the_user_deletes_comes_back_while_it_is_needed() -> None:
    cluster = failing(0)
    name = scaling(cluster)
    cluster.drop(name)
    assert scaling(cluster) == name
    cluster.drop(name)
    edit(cluster, replicas=6).rest()
    assert (cluster.scalers, len(cluster.running())) == ({}, 6)
