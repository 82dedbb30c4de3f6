"""The run policy of all training kinds, where it goes beyond what the Kubeflow operators keep."""

from typing import Any

import msgspec
import pytest

from edgeai.api.resources import PODS
from globalmanager.contract import Create, Delete, Kind
from globalmanager.kinds.training import pytorchjob, tfjob
from tests.globalmanager.kinds.training.samples import (
    conditions,
    ended,
    numbers,
    pods,
    pytorch_spec,
    started,
    tf_spec,
)
from tests.support.world import World, at, job

KIND = pytorchjob.KIND
MASTER, WORKER_0, WORKER_1 = "mnist-master-0", "mnist-worker-0", "mnist-worker-1"


def restarted(number: int) -> dict[str, Any]:
    """The state of a pod whose container its node has started again so often."""
    return {"containerStatuses": [{"name": "pytorch", "restartCount": number}]}


# ---- the backoff limit ----


def test_container_restarts_of_a_pod_that_was_made_anew_still_count() -> None:
    world = started(KIND, pytorch_spec(run={"backoffLimit": 4}))
    world.pods_become("Running", WORKER_0, **restarted(2)).settle()
    world.gone("Pod", WORKER_0).settle()  # its node was drained
    world.pods_become("Running", WORKER_0, **restarted(1)).settle()
    assert conditions(world)[-1] != "Failed"
    world.pods_become("Running", WORKER_0, **restarted(2)).settle()
    assert conditions(world)[-1] == "Failed"
    assert "backoff limit" in world.condition("Failed")["message"]


def test_container_restarts_of_an_evicted_pod_count_once_beside_its_new_pod() -> None:
    world = started(KIND, pytorch_spec(run={"backoffLimit": 10}))
    world.pods_become("Running", WORKER_0, **restarted(2)).settle()
    world.pods_become("Failed", WORKER_0, reason="Evicted", **restarted(2)).settle(at(60))
    world.pods_become("Running").settle(at(61))
    assert sum(world.status["containerRestarts"].values()) == 2
    assert world.status["restarts"] == {WORKER_0: 1}


def test_container_restarts_are_kept_in_few_entries() -> None:
    world = started(KIND, pytorch_spec(1, run={"backoffLimit": 100}))
    for _ in range(5):
        world.pods_become("Running", **restarted(1)).settle()
        world.gone("Pod", MASTER).gone("Pod", WORKER_0).settle()
    assert world.status["containerRestarts"] == {"earlier": 10}


def test_container_restarts_are_not_written_without_a_backoff_limit() -> None:
    world = started(KIND, pytorch_spec()).pods_become("Running").settle()
    world.pods_become("Running", **restarted(3))
    assert world.plan(at(1)).status is None


def test_a_status_of_container_restarts_can_hold_anything() -> None:
    world = started(KIND, pytorch_spec(run={"backoffLimit": 3}))
    world.object["status"]["containerRestarts"] = {"a": "x", "b": -1, "c": 10**30, "d": True}
    world.settle()
    assert "containerRestarts" not in world.status


@pytest.mark.parametrize("forged", [{"restarts": {WORKER_0: 10**6}}, {"jobRestarts": 10**6}])
def test_a_pod_with_the_largest_count_of_a_status_is_not_made_anew_for_ever(
    forged: dict[str, Any],
) -> None:
    world = started(KIND, pytorch_spec(policy="ExitCode")).pods_become("Running").settle()
    world.object["status"].update(forged)
    world.settle().pods_become("Running").settle()  # a plan that makes pods again and again fails
    assert WORKER_0 in pods(world)


# ---- suspend and resume ----


def test_restarting_is_false_while_the_job_is_suspended() -> None:
    world = started(KIND, pytorch_spec(policy="ExitCode")).pods_become("Running").settle()
    world.pods_become("Failed", WORKER_0, **ended(137)).settle(at(60))
    assert conditions(world)[-1] == "Restarting"
    world.change(pytorch_spec(policy="ExitCode", run={"suspend": True})).settle(at(61))
    assert conditions(world) == ["Created", "Restarting=False:PyTorchJobSuspended", "Suspended"]
    world.change(pytorch_spec(policy="ExitCode", run={"suspend": False})).settle(at(62))
    world.pods_become("Running").settle(at(63))
    assert conditions(world) == ["Created", "Suspended=False:PyTorchJobResumed", "Running"]


@pytest.mark.parametrize(("scope", "again"), [("Replica", False), ("Job", True)])
def test_a_replica_that_is_done_runs_again_after_a_resume_if_all_restart_together(
    scope: str, again: bool
) -> None:
    run = {"restartScope": scope}
    world = started(KIND, pytorch_spec(run=run)).pods_become("Running").settle()
    world.pods_become("Succeeded", WORKER_0).settle()
    assert world.status["finished"] == [WORKER_0]
    world.change(pytorch_spec(run={**run, "suspend": True})).settle(at(10))
    world.change(pytorch_spec(run=run)).settle(at(20))
    assert (WORKER_0 in pods(world)) is again
    assert ("finished" in world.status) is not again


def test_a_crash_during_a_suspend_still_lets_all_replicas_run_again() -> None:
    """The GlobalManager is killed after it has deleted pods, and the job is resumed meanwhile."""
    run = {"restartScope": "Job"}
    world = started(KIND, pytorch_spec(run=run)).pods_become("Running").settle()
    world.pods_become("Succeeded", WORKER_0).settle()
    world.change(pytorch_spec(run={**run, "suspend": True}))
    while not (deleting := world.plan(at(10))).actions:
        world.apply(deleting)
    world.apply(deleting, actions=len(deleting.actions))
    world.change(pytorch_spec(run=run)).settle(at(20))
    assert pods(world) == [MASTER, WORKER_0, WORKER_1]


def test_a_crash_during_a_suspend_forgets_no_replica_that_has_just_ended() -> None:
    """The worker succeeds, and the GlobalManager sees this together with the suspension."""
    world = started(KIND, pytorch_spec()).pods_become("Running").settle()
    world.pods_become("Succeeded", WORKER_0)
    world.change(pytorch_spec(run={"suspend": True}))
    while not (deleting := world.plan(at(10))).actions:
        world.apply(deleting)
    world.apply(deleting, actions=len(deleting.actions))
    world.settle(at(11))
    world.change(pytorch_spec()).settle(at(20))
    assert pods(world) == [MASTER, WORKER_1]


# ---- the end ----


def wrong(spec: dict[str, Any], **run: Any) -> dict[str, Any]:
    return {**spec, "nprocPerNode": "many", "runPolicy": run}


def test_an_ended_job_keeps_its_policy_when_an_edit_makes_its_spec_wrong() -> None:
    world = started(KIND, pytorch_spec()).pods_become("Running").settle()
    world.pods_become("Succeeded", MASTER).settle()
    run = {"ttlSecondsAfterFinished": 60, "cleanPodPolicy": "All", "backoffLimit": "many"}
    world.change(wrong(pytorch_spec(), **run))
    world.apply(world.plan(at(1)))
    assert world.names() == []
    assert world.plan(at(1)).requeue_after_s == 59.0
    (deletion,) = world.plan(at(60)).actions
    assert deletion == Delete(world.observed().ref, world.observed().uid)


def test_a_job_that_never_was_right_is_deleted_after_its_time_to_live() -> None:
    world = World(KIND, job("mnist", wrong(pytorch_spec(), ttlSecondsAfterFinished=60))).settle()
    assert conditions(world)[-1] == "Failed"
    (deletion,) = world.plan(at(60)).actions
    assert isinstance(deletion, Delete)


@pytest.mark.parametrize("run", ["x", {"ttlSecondsAfterFinished": "x", "cleanPodPolicy": 3}])
def test_a_policy_that_cannot_be_read_deletes_nothing(run: Any) -> None:
    world = started(KIND, pytorch_spec()).pods_become("Running").settle()
    world.pods_become("Succeeded", MASTER).settle()
    world.change({**pytorch_spec(), "runPolicy": run})
    plan = world.plan(at(10**6))
    assert not plan.actions
    assert plan.requeue_after_s is None


@pytest.mark.parametrize(
    ("run", "left"),
    [
        (None, []),
        ({"cleanPodPolicy": "None"}, ["mnist-worker-0", "mnist-worker-1"]),
    ],
)
def test_the_clean_pod_policy_of_v1alpha2_stands_at_the_top_of_the_spec(
    run: Any, left: list[str]
) -> None:
    spec = tf_spec(run, Worker=2) | {"cleanPodPolicy": "All"}
    world = started(tfjob.KIND, spec).pods_become("Running").settle()
    world.pods_become("Succeeded").settle()
    assert conditions(world)[-1] == "Succeeded"
    assert pods(world) == left


# ---- the size of TF_CONFIG ----

ARGUMENT_BYTES = 128 * 1024  # MAX_ARG_STRLEN of Linux: "TF_CONFIG=", the text and a zero byte


def large(workers: int, *, domain: str = "", **spec: Any) -> World:
    """A job with the longest names."""
    spec = tf_spec(Worker=workers, PS=500, Evaluator=500) | spec
    object_ = job("m" * 45, spec)
    object_["metadata"]["namespace"] = "n" * 20
    world = World(tfjob.KIND, object_)
    world.settings = msgspec.structs.replace(world.settings, cluster_domain=domain)
    return world


def config_bytes(world: World) -> int:
    made = (one for one in world.plan().actions if isinstance(one, Create) and one.type == PODS)
    environments = (one.object["spec"]["containers"][0]["env"] for one in made)
    return max(len(f"TF_CONFIG={env[-1]['value']}") + 1 for env in environments)


def test_a_tf_config_that_no_program_can_start_with_is_refused_by_field() -> None:
    world = large(1000).settle()
    assert conditions(world) == ["Created", "Failed"]
    message = world.condition("Failed")["message"]
    assert "spec.tfReplicaSpecs: has 2000 replicas" in message
    assert "fewer replicas" in message
    assert world.names() == []


@pytest.mark.parametrize("domain", ["", "cluster.local"])
def test_the_bound_of_tf_config_is_its_real_size(domain: str) -> None:
    """The largest number of workers that is accepted, and one more."""
    low, high = 0, 1000
    while high - low > 1:
        middle = (low + high) // 2
        is_accepted = bool(large(middle, domain=domain).plan().actions)
        low, high = (middle, high) if is_accepted else (low, middle)
    host = 45 + 20 + len(domain) + len('"-worker-999..svc.:2222",')
    assert 0 <= ARGUMENT_BYTES - config_bytes(large(low, domain=domain)) <= host
    assert not large(low + 1, domain=domain).plan().actions


def test_an_edit_to_too_many_replicas_leaves_a_running_job_as_it_is() -> None:
    world = large(1)
    world.change(tf_spec(Worker=1)).settle()
    before = world.names()
    world.change(large(1000).object["spec"])
    (event,) = world.plan().events
    assert "TF_CONFIG" in event.message
    assert world.settle().names() == before


def test_a_dynamic_worker_is_told_few_hosts_and_may_have_many_peers() -> None:
    assert large(1000, enableDynamicWorker=True).plan().actions


# ---- lastReconcileTime ----


@pytest.mark.parametrize(
    ("kind", "spec"), [(KIND, pytorch_spec()), (tfjob.KIND, tf_spec(Worker=1))]
)
def test_last_reconcile_time_is_the_time_of_the_last_change_of_the_status(
    kind: Kind, spec: dict[str, Any]
) -> None:
    world = started(kind, spec).pods_become("Running").settle(at(5))
    assert world.status["lastReconcileTime"] == "2026-01-02T03:04:10Z"
    assert world.plan(at(3600)).status is None
    assert numbers(world)
