"""JointInferenceService: the .status about workers, edge and samples."""

from typing import Any

import msgspec
import pytest

from globalmanager.contract import Refusal, Severity
from tests.globalmanager.kinds.edge.samples import joint_inference_spec, small_service
from tests.support.world import World, at, report

CRASHING: dict[str, Any] = {
    "containerStatuses": [
        {
            "name": "main",
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}},
            "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
        }
    ]
}
CREATING = {
    "phase": "Pending",
    "containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}}],
}
UNSCHEDULABLE: dict[str, Any] = {
    "phase": "Pending",
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/3 nodes are available",
        }
    ],
}
NO_INIT_IMAGE = {
    "phase": "Pending",
    "initContainerStatuses": [
        {
            "name": "storage-initializer",
            "state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}},
        }
    ],
}
EXITED: dict[str, Any] = {
    "containerStatuses": [
        {"name": "main", "state": {"terminated": {"exitCode": 2, "message": "no such model"}}}
    ]
}
EVICTED = {"phase": "Failed", "reason": "Evicted", "message": "disk pressure"}


def running_service() -> World:
    return small_service().contact("edge0").settle().available("edge", "cloud").settle()


# ---- Running ------------------------------------------------------------------------------------


def test_a_service_runs_once_both_deployments_are_available() -> None:
    world = small_service().settle()
    for up, truth, phase in (
        ((), "False", "Pending"),
        (("cloud",), "False", "Pending"),
        (("cloud", "edge"), "True", "Running"),
    ):
        world.available(*up).settle()
        assert world.condition("Running")["status"] == truth
        assert world.status["phase"] == phase


@pytest.mark.parametrize(
    ("state", "reason", "phase", "message"),
    [
        pytest.param(CREATING, "Starting", "Pending", "edge worker", id="starting"),
        pytest.param(
            CRASHING,
            "OOMKilled",
            "Failed",
            "pod edge-0 on node edge0: OOMKilled: container main ended with exit code 137 "
            "(SIGKILL): OOMKilled",
            id="crashing",
        ),
        pytest.param(UNSCHEDULABLE, "Unschedulable", "Pending", "0/3 nodes", id="unschedulable"),
        pytest.param(NO_INIT_IMAGE, "ImagePullBackOff", "Failed", "storage-init", id="no image"),
        pytest.param(EXITED, "CrashLoopBackOff", "Failed", "code 2: no such model", id="ended"),
        pytest.param(EVICTED, "Evicted", "Failed", "disk pressure", id="evicted"),
    ],
)
def test_the_status_says_why_a_worker_does_not_run(
    state: dict[str, Any], reason: str, phase: str, message: str
) -> None:
    world = small_service().settle().available("cloud").pod("edge", "edge0", **state).settle()
    condition = world.condition("Running")
    assert (condition["status"], condition["reason"]) == ("False", reason)
    assert "edge worker" in condition["message"]
    assert message in condition["message"]
    assert world.status["phase"] == phase


def test_a_lasting_fault_comes_before_a_pending_fault() -> None:
    world = small_service().settle().pod("edge", **UNSCHEDULABLE).pod("edge", "edge0", **CRASHING)
    assert world.settle().condition("Running")["reason"] == "OOMKilled"


def test_a_crashing_pod_of_an_available_worker_does_not_explain_the_other() -> None:
    world = small_service().settle().available("cloud").pod("cloud", **CRASHING).settle()
    assert world.condition("Running")["reason"] == "Starting"
    assert world.status["phase"] == "Pending"


def crashing_after(delay: str) -> dict[str, Any]:
    waiting = {"reason": "CrashLoopBackOff", "message": f"back-off {delay} restarting failed"}
    return {"containerStatuses": [{"name": "main", "state": {"waiting": waiting}}]}


def test_a_growing_back_off_delay_does_not_change_the_message() -> None:
    world = small_service().settle().pod("edge", "edge0", **crashing_after("10s")).settle()
    assert "back-off restarting failed" in world.condition("Running")["message"]
    world.pods.clear()
    assert world.pod("edge", "edge0", **crashing_after("1m20s")).plan(at(1)).status is None


REFUSAL = Refusal("NameConflict", "services default/digits-cloud exists already")


def test_the_condition_running_has_the_reason_of_an_api_refusal() -> None:
    world = small_service()
    observed = msgspec.structs.replace(world.observed(), refusal=REFUSAL)
    plan = world.kind.plan(observed, at(0))
    world.apply(msgspec.structs.replace(plan, stages=()))
    condition = world.condition("Running")
    assert (condition["status"], condition["reason"]) == ("False", "NameConflict")
    assert condition["message"] == REFUSAL.message
    assert world.status["phase"] == "Failed"
    assert "NameConflict" in [event.reason for event in plan.events]
    observed_again = msgspec.structs.replace(world.observed(), refusal=REFUSAL)
    second = world.kind.plan(observed_again, at(1))
    assert second.status is None
    assert "NameConflict" not in [event.reason for event in second.events]


def test_a_quota_that_refuses_the_pods_of_a_deployment_is_told() -> None:
    world = small_service().settle()
    (cloud,) = (
        child for ref, child in world.children.items() if ref.name == "digits-deployment-cloud"
    )
    text = 'pods "digits-cloud-x" is forbidden: exceeded quota: small'
    failure = {"type": "ReplicaFailure", "status": "True", "message": text}
    cloud["status"] = {"conditions": [failure]}
    running = world.settle().condition("Running")
    assert running["reason"] == "Forbidden"
    assert running["message"] == f"cloud worker: Deployment digits-deployment-cloud: {text}"


def test_a_service_that_waits_for_a_terminating_child_is_pending() -> None:
    world = small_service()
    refusal = Refusal("Waiting", "an earlier deployment is still being deleted")
    plan = world.kind.plan(msgspec.structs.replace(world.observed(), refusal=refusal), at(0))
    world.apply(msgspec.structs.replace(plan, stages=()))
    assert (world.status["phase"], plan.events) == ("Pending", ())
    assert world.condition("Running")["message"] == refusal.message


def test_a_refusal_is_shown_for_a_running_service_too() -> None:
    world = running_service()
    observed = msgspec.structs.replace(world.observed(), refusal=REFUSAL)
    world.apply(world.kind.plan(observed, at(0)))
    condition = world.condition("Running")
    assert condition["status"] == "True"
    assert condition["message"].endswith(f"; but {REFUSAL.message}")
    assert world.status["phase"] == "Running"


def test_a_failed_service_runs_once_its_workers_are_available() -> None:
    world = small_service().settle().pod("edge", "edge0", **CRASHING).settle()
    assert world.status["phase"] == "Failed"
    world.pods.clear()
    world.available("edge", "cloud").settle()
    assert world.status["phase"] == "Running"


def test_a_short_loss_of_readiness_changes_only_the_condition_running() -> None:
    world = running_service()
    before = world.status
    world.available("cloud").settle(at(60))
    assert world.condition("Running")["reason"] == "Starting"
    world.available("edge", "cloud").settle(at(61))
    assert world.condition("Running")["lastTransitionTime"] == "2026-01-02T03:05:06Z"
    after = {**world.status, "conditions": []}
    assert after == {**before, "conditions": []}


def test_a_stuck_rollout_is_shown_while_the_old_workers_run() -> None:
    world = running_service().pod("edge", "edge0", **CRASHING).settle()
    condition = world.condition("Running")
    assert condition["status"] == "True"
    assert "but edge worker: pod edge-0" in condition["message"]


def test_a_crashing_pod_that_is_being_deleted_is_not_reported() -> None:
    world = small_service().settle().pod("edge", "edge0", **CRASHING)
    world.pods[0]["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    assert world.settle().condition("Running")["reason"] == "Starting"


def test_a_change_of_running_makes_an_event() -> None:
    world = small_service().contact("edge0").settle().available("edge", "cloud")
    (up,) = world.plan().events
    assert (up.severity, up.reason) == (Severity.NORMAL, "WorkersAvailable")
    (down,) = world.settle().available("cloud").pod("edge", "edge0", **CRASHING).plan().events
    assert (down.severity, down.reason) == (Severity.WARNING, "OOMKilled")


# ---- numbers ------------------------------------------------------------------------------------


def test_pods_are_counted() -> None:
    world = small_service().settle().pod("edge", "edge0").pod("cloud").pod("cloud", phase="Failed")
    world.pod("cloud", phase="Succeeded").settle()
    assert (world.status["active"], world.status["failed"]) == (2, 1)


def test_start_time_is_set_once() -> None:
    world = small_service().settle()
    assert world.status["startTime"] == "2026-01-02T03:04:05Z"
    world.change(joint_inference_spec(edge={"nodeName": "edge1"})).settle(at(60)).change(
        None
    ).settle(at(90))
    assert world.status["startTime"] == "2026-01-02T03:04:05Z"


def test_before_the_first_report_there_are_no_metrics() -> None:
    status = small_service().settle().status
    assert ("uploadCount" in status, status["metrics"]) == (False, [])


@pytest.mark.parametrize(
    ("counts", "uploads", "told"),
    [
        ({"seen": 8, "hard": 2, "uploaded": 2}, 2, {"uploadCloudRatio": "0.2500"}),
        ({"seen": 8, "hard": 0}, None, {}),
        ({"uploaded": 3, "fallbacks": 0}, 3, {}),
        ({"seen": 0, "uploaded": 0}, 0, {"uploadCloudRatio": "0.0000"}),
        ({"latency": 7}, None, {}),
        ({}, None, {}),
    ],
)
def test_a_count_that_no_worker_has_told_is_left_out(
    counts: dict[str, int], uploads: int | None, told: dict[str, str]
) -> None:
    """0 would be a claim. Sedna's library never tells answeredByCloud and fallbacks."""
    world = small_service().settle()
    world.receive(report(counts=counts))
    world.settle()
    numbers = {name: str(count) for name, count in counts.items() if name != "latency"}
    metrics = {entry["key"]: entry["value"] for entry in world.status["metrics"]}
    assert (world.status.get("uploadCount"), metrics) == (uploads, numbers | told)


def test_a_count_that_one_worker_has_told_is_the_sum_of_those_that_told_it() -> None:
    world = small_service().settle()
    world.receive(report(worker="digits-edge-a", counts={"seen": 8, "uploaded": 2}))
    world.receive(report(worker="digits-edge-b", counts={"seen": 8, "fallbacks": 1}))
    world.settle()
    metrics = {entry["key"]: entry["value"] for entry in world.status["metrics"]}
    assert metrics.items() >= {"seen": "16", "uploaded": "2", "fallbacks": "1"}.items()


def test_a_count_of_a_former_node_stays_told() -> None:
    world = small_service().settle()
    world.receive(report(counts={"seen": 4, "fallbacks": 1}))
    world.receive(report(node="edge1", counts={"seen": 2}))
    metrics = {entry["key"]: entry["value"] for entry in world.settle().status["metrics"]}
    assert metrics == {"seen": "6", "fallbacks": "1"}


def test_samples_are_added_up_over_workers() -> None:
    world = small_service().settle()
    counts = {"seen": 30, "hard": 6, "uploaded": 5, "answeredByCloud": 4, "fallbacks": 2}
    world.receive(report(worker="digits-edge-a", counts=counts))
    world.receive(report(worker="digits-edge-b", counts=counts))
    world.settle()
    assert world.status["uploadCount"] == 10
    assert {entry["key"]: entry["value"] for entry in world.status["metrics"]} == {
        "seen": "60",
        "hard": "12",
        "uploaded": "10",
        "answeredByCloud": "8",
        "fallbacks": "4",
        "uploadCloudRatio": "0.1667",
    }


def test_a_repeated_report_counts_once() -> None:
    world = small_service().settle()
    for _ in range(3):
        world.receive(report(counts={"uploaded": 5}))
    assert world.settle().status["uploadCount"] == 5


def test_a_plan_does_not_write_the_reported_part_of_the_status() -> None:
    world = small_service().settle()
    world.receive(report(counts={"seen": 1}))
    plan = world.available("edge", "cloud").plan()
    assert plan.status is not None
    assert "workers" not in plan.status


def test_a_report_updates_the_totals_so_that_the_plan_writes_nothing() -> None:
    world = running_service()
    world.receive(report(counts={"seen": 4, "uploaded": 1}))
    assert world.status["uploadCount"] == 1
    assert world.plan().status is None


def test_a_plan_corrects_wrong_totals() -> None:
    world = running_service()
    world.receive(report(counts={"uploaded": 5}))
    world.status["uploadCount"] = 3
    assert world.settle().status["uploadCount"] == 5


# ---- EdgeConnected ------------------------------------------------------------------------------


def test_lost_contact_is_shown_in_time_and_causes_nothing_else() -> None:
    world = running_service().contact("edge0", connected=False, since=at(100))
    plan = world.plan(at(110))
    assert (plan.status, plan.actions, plan.requeue_after_s) == (None, (), 30)
    plan = world.plan(at(140))
    assert plan.actions == ()
    assert plan.requeue_after_s is None
    world.apply(plan)
    assert world.condition("EdgeConnected")["reason"] == "NoContact"
    assert "edge0" in world.condition("EdgeConnected")["message"]
    assert world.status["phase"] == "Running"


def test_regained_contact_is_shown() -> None:
    world = running_service().contact("edge0", connected=False).settle(at(100))
    world.contact("edge0", since=at(200)).settle(at(200))
    assert world.condition("EdgeConnected")["status"] == "True"


def test_a_service_without_nodes_has_no_condition_about_contact() -> None:
    given = joint_inference_spec()
    del given["edgeWorker"]["nodeName"]
    world = small_service(given).settle()
    assert world.condition("EdgeConnected") == {}
    assert "edgeNodes" not in world.status
    world.pod("edge", "edge1").contact("edge1").settle()
    assert world.condition("EdgeConnected")["status"] == "True"
    assert world.status["edgeNodes"] == "edge1"


@pytest.mark.parametrize("attempt", [1, 2])
def test_a_count_never_falls_whatever_a_local_controller_says(attempt: int) -> None:
    world = small_service().settle()
    world.receive(report(counts={"seen": 154, "hard": 9, "uploaded": 9, "latency": 7}))
    world.receive(report(attempt=attempt, counts={"seen": 1, "uploaded": 10, "latency": 3}))
    entry = world.status["workers"]["digits-edge"]
    assert entry["taskInfo"] == {"seen": 154, "hard": 9, "uploaded": 10, "latency": 3}
    assert world.settle().status["uploadCount"] == 10


# ---- a node that is silent for Kubernetes -------------------------------------------------------


def silent_node(*, connected: bool) -> World:
    """A service whose edge worker counted, before Kubernetes lost the node of the worker."""
    world = running_service().pod("cloud").pod("edge", "edge0", conditions=[NOT_READY])
    world.receive(report(counts={"seen": 5}))
    return world.contact("edge0", connected=connected).available("cloud").settle()


NOT_READY = {
    "type": "Ready",
    "status": "False",
    "lastTransitionTime": "2026-01-02T03:00:00Z",
}


def test_the_word_of_the_local_controller_wins_over_a_node_that_is_not_ready() -> None:
    world = silent_node(connected=True)
    assert world.status["phase"] == "Running"
    assert world.condition("Running")["status"] == "True"
    assert world.condition("Running")["message"] == (
        "both workers are available; Kubernetes has not heard of node edge0, whose LocalController "
        "reports that the edge worker runs"
    )


def test_a_silent_node_is_no_worker_that_never_ran() -> None:
    world = silent_node(connected=False)
    running = world.condition("Running")
    assert (running["status"], running["reason"]) == ("Unknown", "NodeNotReady")
    assert running["message"] == (
        "edge worker: Kubernetes has not heard of node edge0, and its LocalController has no "
        "session: the worker may run, and its reports wait there"
    )
    assert world.status["phase"] == "Pending"


@pytest.mark.parametrize("connected", [True, False])
def test_what_a_silent_node_said_before_its_reboot_fails_no_service(*, connected: bool) -> None:
    world = silent_node(connected=connected)
    world.pods[-1]["status"] |= EXITED
    assert world.settle().status["phase"] == ("Running" if connected else "Pending")


@pytest.mark.parametrize("status", ["lost", "failed"])
def test_a_local_controller_that_says_that_the_worker_is_dead_is_believed(status: Any) -> None:
    world = silent_node(connected=True)
    world.receive(report(status=status, reason="no heartbeat for 30 s"))
    running = world.settle().condition("Running")
    assert (running["status"], running["reason"]) == ("False", "NodeNotReady")
    assert "no heartbeat for 30 s" in running["message"]


def test_a_worker_that_never_ran_is_starting() -> None:
    world = running_service().available("cloud").settle()
    assert world.condition("Running")["reason"] == "Starting"


def test_a_fault_of_the_cloud_worker_counts_beside_a_silent_node() -> None:
    world = silent_node(connected=True).available().pod("cloud", **CRASHING).settle()
    assert world.status["phase"] == "Failed"
