"""FederatedLearningJob: suspend and resume."""

import pytest

from edgeai.faults.remedies import is_good
from edgeai.faults.summary import faults_of, waits_of
from globalmanager.contract import Severity
from tests.globalmanager.kinds.edge.federatedlearningjob.test_plan import (
    POD_NAMES,
    planned_actions,
    pod_names,
)
from tests.globalmanager.kinds.edge.samples import federated_job, federated_learning_spec
from tests.support.world import World, at

SUSPENDED = federated_learning_spec(suspend=True)
RESUMED = federated_learning_spec(suspend=False)


def running() -> World:
    world = federated_job().contact("edge0").contact("edge1").settle()
    return world.pods_become("Running").settle()


def test_a_suspended_job_has_no_children() -> None:
    world = running().change(SUSPENDED).settle(at(60))
    assert world.names() == []
    assert (world.status["phase"], world.status["active"]) == ("Suspended", 0)
    assert world.condition("Suspended")["status"] == "True"
    training = world.condition("Training")
    assert (training["status"], training["reason"]) == ("False", "Suspended")


def test_a_resumed_job_has_a_new_start_time_and_all_its_workers() -> None:
    world = running().change(SUSPENDED).settle(at(60)).change(RESUMED).settle(at(90))
    assert pod_names(world) == POD_NAMES
    assert world.status["startTime"] == "2026-01-02T03:05:35Z"
    suspended = world.condition("Suspended")
    assert (suspended["status"], suspended["reason"]) == ("False", "Resumed")
    world.pods_become("Running").settle(at(95))
    assert world.status["phase"] == "Training"
    assert world.status["startTime"] == "2026-01-02T03:05:35Z"


def test_a_job_that_is_created_suspended_makes_nothing_and_has_no_start_time() -> None:
    world = federated_job(suspend=True).settle()
    assert (world.names(), world.status["phase"]) == ([], "Suspended")
    assert "startTime" not in world.status


def test_a_job_that_was_never_suspended_has_no_condition_about_it() -> None:
    assert running().condition("Suspended") == {}


def test_a_worker_that_is_done_does_not_run_again_after_a_resume() -> None:
    world = running().pods_become("Succeeded", "digits-train-0").settle()
    world.change(SUSPENDED).settle(at(10)).change(RESUMED).settle(at(20))
    assert pod_names(world) == ["digits-aggregation", "digits-train-1"]


def test_a_crash_during_a_suspend_forgets_no_worker_that_has_just_ended() -> None:
    """The trainer succeeds, and the GlobalManager sees this together with the suspension."""
    world = running().pods_become("Succeeded", "digits-train-0").change(SUSPENDED)
    while not (deleting := world.plan(at(10))).actions:
        world.apply(deleting)
    world.apply(deleting, actions=len(deleting.actions)).settle(at(11))
    world.change(RESUMED).settle(at(20))
    assert pod_names(world) == ["digits-aggregation", "digits-train-1"]


def test_a_job_whose_aggregator_had_succeeded_completes_when_it_is_resumed() -> None:
    world = running().pods_become("Succeeded", "digits-aggregation").settle()
    world.change(SUSPENDED).settle(at(10))
    assert world.status["phase"] == "Suspended"
    world.change(RESUMED).settle(at(20))
    assert (world.status["phase"], pod_names(world)) == ("Succeeded", [])


def test_a_job_that_has_ended_is_not_suspended() -> None:
    world = running().pods_become("Succeeded").settle().change(SUSPENDED).settle(at(10))
    assert (world.status["phase"], world.condition("Suspended")) == ("Succeeded", {})


@pytest.mark.parametrize("fault", ["spec is invalid", "model is gone"])
def test_a_job_with_a_fault_is_suspended_too(fault: str) -> None:
    world = running()
    if fault == "model is gone":
        world.without("Model", "small").change(SUSPENDED)
    else:
        world.change({"suspend": True})
    world.settle(at(10))
    assert (world.names(), world.status["phase"]) == ([], "Suspended")


def test_suspend_and_resume_have_events_that_are_no_warnings() -> None:
    world = running().change(SUSPENDED)
    (suspended,) = world.plan().events
    assert (suspended.severity, suspended.reason) == (Severity.NORMAL, "Suspended")
    (resumed,) = (e for e in world.settle().change(RESUMED).plan().events if e.reason == "Resumed")
    assert resumed.severity == Severity.NORMAL


def test_a_suspended_job_waits_to_be_resumed_and_has_no_fault() -> None:
    world = running().change(SUSPENDED).settle()
    assert [c["type"] for c in world.status["conditions"] if not is_good(c)] == []
    assert faults_of(world.object) == ()
    assert [fault.remedy for fault in waits_of(world.object)] == [
        "resume the job when it is to go on"
    ]


def test_a_resumed_job_waits_for_a_pod_that_still_ends() -> None:
    world = running()
    world.terminates = True
    world.change(SUSPENDED).settle(at(1)).change(RESUMED).settle(at(2))
    assert planned_actions(world, at(2)) == []
    assert world.status["phase"] == "Pending"
    world.terminates = False
    world.end_deleted().settle(at(3))
    assert pod_names(world) == POD_NAMES


def test_a_trainer_is_active_until_its_node_confirms_its_end() -> None:
    """The line to the node may be down, and a queue gives the quota of the job to others."""
    world = running()
    world.terminates = True
    world.change(SUSPENDED).settle(at(1))
    assert world.status["active"] == 2, "both trainers, and not the aggregator in the cloud"
    world.gone("Pod", "digits-train-0").settle(at(2))
    assert world.status["active"] == 1
    world.end_deleted().settle(at(3))
    assert world.status["active"] == 0
