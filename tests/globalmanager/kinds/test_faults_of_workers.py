"""A job whose worker has a fault says so: the condition Stalled, at once, with the cause first."""

from typing import Any

import pytest

from edgeai.api.resources import PODS, ObjectRef
from edgeai.faults.pod_faults import first_fault
from edgeai.faults.summary import faults_of
from edgeai.times import rfc3339
from globalmanager.kinds.training.pytorchjob import KIND as PYTORCH
from globalmanager.kinds.training.tfjob import KIND as TENSORFLOW
from tests.globalmanager.kinds.edge.samples import small_service
from tests.globalmanager.kinds.training.samples import (
    conditions,
    ended,
    pytorch_spec,
    started,
    tf_spec,
)
from tests.support.world import World, at

MASTER, WORKER = "mnist-master-0", "mnist-worker-0"
BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed"}}


def crashed(
    code: int,
    *,
    restarts: int = 1,
    ran_s: int = 1,
    state: dict[str, Any] = BACK_OFF,
    container: str = "pytorch",
) -> dict[str, Any]:
    """The state of a pod whose container has ended with an exit code."""
    times = {"startedAt": rfc3339(at(-ran_s)), "finishedAt": rfc3339(at(0))}
    last = {"terminated": {"exitCode": code, "reason": "Error", **times}}
    entry = {"name": container, "restartCount": restarts, "state": state, "lastState": last}
    return {"containerStatuses": [entry]}


def runs_since(seconds: float) -> dict[str, Any]:
    return {"running": {"startedAt": rfc3339(at(seconds))}}


def waits_for_master() -> dict[str, Any]:
    waiting = {"waiting": {"reason": "PodInitializing"}}
    return {
        "initContainerStatuses": [{"name": "init-pytorch", "state": runs_since(0)}],
        "containerStatuses": [{"name": "pytorch", "state": waiting}],
    }


def stalled(world: World) -> tuple[str, str]:
    condition = world.condition("Stalled")
    return condition.get("reason", ""), condition.get("message", "")


def on_nodes(world: World) -> World:
    for ref, child in world.children.items():
        if ref.type == PODS:
            child["spec"]["nodeName"] = "cloud"
    return world


def running() -> World:
    world = started(PYTORCH, pytorch_spec(policy="OnFailure"))
    return on_nodes(world.pods_become("Running")).settle()


def test_a_crash_loop_stalls_the_job_at_once() -> None:
    world = running().pods_become("Running", MASTER, **crashed(3, restarts=2)).settle()
    reason, message = stalled(world)
    assert reason == "CrashLoopBackOff"
    assert message == (
        f"pod {MASTER} on node cloud: CrashLoopBackOff: container pytorch ended with exit code 3: "
        "Error"
    )
    assert conditions(world) == ["Stalled", "Created", "Running"]


@pytest.mark.parametrize(
    "state",
    [
        BACK_OFF,
        {"terminated": {"exitCode": 3, "reason": "Error"}},
        runs_since(1),
    ],
    ids=["waits", "has ended again", "runs for a second"],
)
def test_a_crash_loop_is_one_fault_between_two_crashes(state: dict[str, Any]) -> None:
    world = running().pods_become("Running", MASTER, **crashed(3)).settle()
    plan = world.pods_become("Running", MASTER, **crashed(3, restarts=9, state=state)).plan(at(2))
    assert (plan.status, plan.events) == (None, ())


@pytest.mark.parametrize(("ran_s", "left_s"), [(1, 30), (200, 400), (590, 600), (700, 0)], ids=str)
def test_a_container_has_recovered_when_it_runs_longer_than_before(ran_s: int, left_s: int) -> None:
    state = crashed(1, ran_s=ran_s, state=runs_since(1))
    world = running().pods_become("Running", WORKER, **state).settle(at(1))
    assert bool(stalled(world)[0]) == (left_s > 0)
    if left_s:
        assert world.plan(at(11)).requeue_after_s == left_s - 10
        world.settle(at(left_s)).settle(at(left_s + 1))
    assert conditions(world) == ["Created", "Running"]


def test_a_node_with_a_clock_ahead_does_not_prolong_a_fault() -> None:
    state = crashed(1, state=runs_since(86_400))
    assert stalled(running().pods_become("Running", WORKER, **state).settle()) == ("", "")


def test_another_exit_code_is_another_fault() -> None:
    world = running().pods_become("Running", MASTER, **crashed(3)).settle()
    plan = world.pods_become("Running", MASTER, **crashed(137)).plan()
    assert "exit code 137 (SIGKILL)" in plan.events[0].message


def test_a_master_that_crashes_goes_before_workers_that_wait_for_it() -> None:
    world = started(PYTORCH, pytorch_spec(policy="OnFailure"))
    world.pods_become("Pending", **waits_for_master())
    on_nodes(world).pods_become("Running", MASTER, **crashed(1)).settle(at(61))
    reason, message = stalled(world)
    assert reason == "CrashLoopBackOff"
    assert message.startswith(f"pod {MASTER} on node cloud: CrashLoopBackOff: ")
    assert message.count("AwaitingMaster") == 2
    assert message.index("exit code 1") < message.index("AwaitingMaster")


def test_more_faults_than_fit_are_counted() -> None:
    world = started(PYTORCH, pytorch_spec(6)).pods_become("Running", **crashed(1)).settle()
    message = stalled(world)[1]
    assert message.startswith(f"pod {MASTER}: ")
    assert message.endswith("; and 4 more")
    assert message.count("; pod ") == 2
    world.pods_become("Running", "mnist-worker-5").settle()
    assert stalled(world)[1].endswith("; and 3 more")


def test_a_worker_that_waits_for_its_master_has_no_fault_of_its_node() -> None:
    world = on_nodes(started(PYTORCH, pytorch_spec()).pods_become("Running"))
    world.pods_become("Pending", WORKER, **waits_for_master()).settle(at(59))
    assert stalled(world) == ("", "")
    assert stalled(world.settle(at(60)))[0] == "AwaitingMaster"


def master_runs(world: World, since_s: float) -> World:
    entry = {"name": "pytorch", "state": runs_since(since_s)}
    return world.pods_become("Running", MASTER, containerStatuses=[entry])


def worker_at_the_edge() -> World:
    """A job with one worker, on a node with a LocalController, in front of a master that runs."""
    world = on_nodes(started(PYTORCH, pytorch_spec(1)).pods_become("Running"))
    world.children[ObjectRef(PODS, "default", WORKER)]["spec"]["nodeName"] = "edge0"
    world.pods_become("Pending", WORKER, **waits_for_master())
    return world.contact("edge0")


def test_a_worker_at_the_edge_says_that_it_does_not_reach_its_master() -> None:
    world = master_runs(worker_at_the_edge(), 20).settle(at(60))
    assert stalled(world)[0] == "AwaitingMaster"
    assert world.plan(at(61)).requeue_after_s == 19
    assert stalled(world.settle(at(80))) == (
        "MasterUnreachable",
        f"pod {WORKER} on node edge0: MasterUnreachable: its master {MASTER} runs, and has not "
        "answered it for a minute",
    )
    assert "nodes of one network" in faults_of(world.object)[0].remedy


def test_the_minute_begins_with_the_wait_of_the_worker() -> None:
    world = master_runs(worker_at_the_edge(), 0)
    waits = {"name": "init-pytorch", "state": runs_since(50)}
    world.pods_become("Pending", WORKER, initContainerStatuses=[waits]).settle(at(60))
    assert stalled(world)[0] == "AwaitingMaster"
    assert stalled(world.settle(at(110)))[0] == "MasterUnreachable"


@pytest.mark.parametrize("case", ["crashes", "is pending", "is gone", "of the cloud"])
def test_a_worker_waits_for_a_master_that_is_not_up_or_on_its_network(case: str) -> None:
    world = master_runs(worker_at_the_edge(), 0)
    match case:
        case "crashes":
            world.pods_become("Running", MASTER, **crashed(1))
        case "is pending":
            world.pods_become("Pending", MASTER)
        case "is gone":
            world.gone("Pod", MASTER)
        case _:
            world.contacts.clear()
    world.settle(at(200))
    assert "MasterUnreachable" not in stalled(world)[1]
    assert "AwaitingMaster" in stalled(world)[1]
    assert (stalled(world)[0] == "CrashLoopBackOff") == (case == "crashes")


def test_a_worker_that_does_not_reach_its_master_has_one_fault() -> None:
    world = master_runs(worker_at_the_edge(), 0).settle(at(60))
    pods = [child for ref, child in world.children.items() if ref.type == PODS]
    assert [one.reason for one in faults_of(world.object, pods, at(60))] == ["MasterUnreachable"]


LOST_BY_NODE = {"exitCode": 255, "reason": "Unknown", "finishedAt": rfc3339(at(0))}
"""What containerd says of a container that ran when its node went down."""
AFTER_REBOOT: dict[str, dict[str, Any]] = {
    "is about to start": {"state": {"terminated": LOST_BY_NODE}},
    "waits": {"state": BACK_OFF, "lastState": {"terminated": LOST_BY_NODE}},
    "runs": {"state": runs_since(1), "lastState": {"terminated": LOST_BY_NODE}},
}


def after_reboot(case: str, name: str = "pytorch") -> dict[str, Any]:
    return {"containerStatuses": [{"name": name, "restartCount": 1, **AFTER_REBOOT[case]}]}


@pytest.mark.parametrize("case", AFTER_REBOOT)
def test_a_reboot_of_the_node_is_no_crash(case: str) -> None:
    world = running().pods_become("Running", WORKER, **after_reboot(case)).settle(at(2))
    assert conditions(world) == ["Created", "Running"]
    world.settle(at(60))
    if case == "runs":
        assert conditions(world) == ["Created", "Running"]
    else:
        assert stalled(world) == (
            "NodeRestarted",
            f"pod {WORKER} on node cloud: NodeRestarted: the node has lost container pytorch, as "
            "when it restarts, and has not started it again",
        )


def test_a_pod_that_ended_with_its_node_says_so() -> None:
    pod = {
        "metadata": {"name": "a-0", "namespace": "default"},
        "status": {"phase": "Failed", **after_reboot("is about to start")},
    }
    fault = first_fault([pod])
    assert fault is not None
    assert (fault.reason, fault.is_pending) == ("NodeRestarted", False)
    assert fault.message.endswith("the node has lost container pytorch, as when it restarts")


@pytest.mark.parametrize("case", ["is about to start", "waits"])
def test_a_service_is_pending_while_its_node_starts_again(case: str) -> None:
    world = small_service().contact("edge0").settle().available("cloud")
    world.pod("edge", "edge0", **after_reboot(case))
    for moment in (2, 60):
        world.settle(at(moment))
        assert world.status["phase"] == "Pending"


def test_a_replica_that_fails_again_and_again_in_new_pods_does_not_flicker() -> None:
    world = started(TENSORFLOW, tf_spec(Worker=1, policy="ExitCode")).pods_become("Running")
    failed = ended(137, container="tensorflow")
    world.settle().pods_become("Failed", **failed).settle(at(1))
    assert "Stalled" not in conditions(world)  # once is no loop, and Restarting tells it
    world.pods_become("Running").settle(at(2)).pods_become("Failed", **failed).settle(at(3))
    assert "exit code 137 (SIGKILL)" in stalled(world)[1]
    for moment, phase in ((4, "Pending"), (5, "Running"), (59, "Running")):
        world.pods_become(phase).settle(at(moment))
        assert "exit code 137 (SIGKILL)" in stalled(world)[1]
    assert world.plan(at(59)).requeue_after_s == 1
    assert conditions(world.settle(at(60)))[-1] == "Running"
    assert "Stalled" not in conditions(world)


def test_a_suspended_job_has_no_fault() -> None:
    world = running().pods_become("Running", MASTER, **crashed(1)).settle()
    world.change(pytorch_spec(policy="OnFailure", run={"suspend": True})).settle()
    assert "Stalled" not in conditions(world)
    assert ObjectRef(PODS, "default", MASTER) not in world.children


# ---- the kinds of the edge ----------------------------------------------------------------------


def test_a_service_with_a_crashing_worker_is_stalled_beside_its_own_conditions() -> None:
    world = small_service().contact("edge0").settle().available("edge", "cloud")
    world.pod("edge", "edge0", **crashed(3)).settle()
    assert world.condition("Running")["status"] == "True"  # the old pod of an update still serves
    assert stalled(world)[0] == "CrashLoopBackOff"
    assert "pod edge-0 on node edge0" in stalled(world)[1]
    world.pods.clear()
    assert stalled(world.settle()) == ("", "")


def test_a_failed_pod_that_a_deployment_has_replaced_is_no_fault() -> None:
    world = small_service().contact("edge0").settle().available("edge", "cloud")
    world.pod("edge", "edge0", phase="Failed", reason="Evicted").settle()
    assert stalled(world) == ("", "")


def test_a_full_cluster_writes_no_status_for_each_word_of_its_scheduler() -> None:
    world = small_service().contact("edge0").settle()
    for number in (3, 4):
        entry = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        message = f"0/{number} nodes are available"
        world.pods.clear()
        world.pod("edge", phase="Pending", conditions=[{**entry, "message": message}])
        told = stalled(world.settle())
    assert told == ("Unschedulable", "pod edge-0: Unschedulable: 0/3 nodes are available")
