"""The condition Stalled: long-pending pods, lost nodes and refusals of the API."""

from typing import Any

import pytest

from edgeai.api.resources import PODS, ObjectRef
from globalmanager.contract import Refusal
from globalmanager.kinds.training.pytorchjob import KIND
from tests.globalmanager.kinds.training.samples import conditions, ended, pytorch_spec, started
from tests.support.world import NOW, World, at

WORKER = "mnist-worker-0"


def unschedulable(message: str = "0/3 nodes are available") -> dict[str, Any]:
    entry = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return {"conditions": [{**entry, "message": message}]}


def waiting(reason: str) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": "no such image"}}
    return {"containerStatuses": [{"name": "pytorch", "state": state}]}


def stall(world: World) -> tuple[str, str]:
    condition = world.condition("Stalled")
    return condition.get("reason", ""), condition.get("message", "")


AT_ONCE = [
    (unschedulable(), "Unschedulable", "0/3 nodes"),
    (waiting("ErrImagePull"), "ImagePullBackOff", "no such image"),
    (waiting("ImagePullBackOff"), "ImagePullBackOff", "no such image"),
    (waiting("CreateContainerConfigError"), "CreateContainerConfigError", "no such image"),
]
LATER = [
    (waiting("ContainerCreating"), "edge1", "ContainerCreating", "does not start it"),
    ({}, "edge1", "Pending", "its node says nothing about it"),
    ({}, "", "NotScheduled", "no scheduler has looked at it"),
]


@pytest.mark.parametrize(("state", "reason", "told"), AT_ONCE)
def test_what_a_pod_calls_a_fault_is_told_at_once(
    state: dict[str, Any], reason: str, told: str
) -> None:
    world = started(KIND, pytorch_spec()).pods_become("Running")
    world.pods_become("Pending", WORKER, **state).settle()
    # The last condition is the job's state, which kubectl shows.
    assert conditions(world) == ["Stalled", "Created", "Running"]
    assert stall(world)[0] == reason
    assert (WORKER in stall(world)[1], told in stall(world)[1]) == (True, True)


@pytest.mark.parametrize(("state", "node", "reason", "told"), LATER)
def test_a_pod_that_does_not_start_for_long_is_told(
    state: dict[str, Any], node: str, reason: str, told: str
) -> None:
    world = started(KIND, pytorch_spec()).pods_become("Running")
    world.pods_become("Pending", WORKER, **state)
    world.children[ObjectRef(PODS, "default", WORKER)]["spec"]["nodeName"] = node
    world.settle()
    assert conditions(world) == ["Created", "Running"]
    assert world.plan(at(10)).requeue_after_s == 50
    world.settle(at(60))
    assert (stall(world)[0], told in stall(world)[1]) == (reason, True)


@pytest.mark.parametrize(
    ("volumes", "told"),
    [
        (
            [
                {"name": "edgeai-ssh", "secret": {"secretName": "mnist-ssh"}},
                {"name": "data", "configMap": {"name": "tables"}},
                {"name": "scratch", "emptyDir": {}},
                {"name": "more", "configMap": {"name": "extra", "optional": True}},
                {"name": "odd", "configMap": {}},
            ],
            "the image is not there yet, or the ConfigMap tables of volume data, "
            "or the Secret mnist-ssh of volume edgeai-ssh",
        ),
        (
            [{"name": f"v{n}", "secret": {"secretName": f"s{n}"}} for n in range(99)],
            "or the Secret s0 of volume v0, or the Secret s1 of volume v1, or another volume",
        ),
        ([{"name": "scratch", "emptyDir": {}}], "the image or a volume is not there yet"),
        ("odd", "the image or a volume is not there yet"),
    ],
)
def test_a_pod_that_does_not_start_names_what_its_volumes_need(volumes: Any, told: str) -> None:
    world = started(KIND, pytorch_spec()).pods_become("Running")
    world.pods_become("Pending", WORKER, **waiting("ContainerCreating"))
    world.children[ObjectRef(PODS, "default", WORKER)]["spec"] |= {
        "nodeName": "edge1",
        "volumes": volumes,
    }
    world.settle()
    assert stall(world.settle(at(60)))[1].endswith(told)


def test_the_condition_goes_with_its_reason() -> None:
    world = started(KIND, pytorch_spec()).pods_become("Pending").settle(at(60))
    assert conditions(world) == ["Stalled", "Created"]
    world.pods_become("Running").settle(at(70))
    assert conditions(world) == ["Created", "Running"]


def test_the_same_stall_is_written_and_told_once() -> None:
    world = started(KIND, pytorch_spec()).pods_become("Pending", **unschedulable("0/3"))
    plan = world.plan(at(60))
    assert [event.reason for event in plan.events] == ["PyTorchJobStalled"]
    world.apply(plan)
    for state in (unschedulable("0/3"), unschedulable("0/4")):
        again = world.pods_become("Pending", **state).plan(at(90))
        assert (again.status, again.events, again.actions) == (None, (), ())


def test_a_node_that_fails_to_pull_an_image_in_two_ways_is_told_once() -> None:
    world = started(KIND, pytorch_spec()).pods_become("Pending", **waiting("ErrImagePull"))
    world.settle(at(60)).pods_become("Pending", **waiting("ImagePullBackOff"))
    assert world.plan(at(61)).status is None


def ready(containers: str, pod: str) -> dict[str, Any]:
    entries = [("ContainersReady", containers), ("Ready", pod)]
    return {"conditions": [{"type": type_, "status": truth} for type_, truth in entries]}


RUNNING = [
    ("Running", ready("True", "True"), ""),
    ("Running", ready("False", "False"), ""),  # a container is not ready
    ("Running", ready("True", "False"), "NodeNotReady"),
    ("Unknown", {}, "NodeNotReady"),
]


@pytest.mark.parametrize(("phase", "state", "reason"), RUNNING)
def test_a_pod_on_a_lost_node_is_told(phase: str, state: dict[str, Any], reason: str) -> None:
    world = started(KIND, pytorch_spec()).pods_become("Running").settle()
    world.pods_become(phase, WORKER, **state).settle(at(5))
    assert stall(world)[0] == reason
    assert conditions(world)[-1] == "Running"


def test_a_pod_with_readiness_gates_may_be_unready_on_a_good_node() -> None:
    world = started(KIND, pytorch_spec()).pods_become("Running", **ready("True", "False"))
    ref = ObjectRef(PODS, "default", WORKER)
    for name in ("mnist-master-0", WORKER, "mnist-worker-1"):
        ref = ObjectRef(PODS, "default", name)
        world.children[ref]["spec"]["readinessGates"] = [{"conditionType": "mine"}]
    assert stall(world.settle())[0] == ""


def test_a_pod_whose_end_its_node_does_not_confirm_is_told() -> None:
    world = started(KIND, pytorch_spec()).pods_become("Running").settle()
    ref = ObjectRef(PODS, "default", WORKER)
    pod = world.children[ref]
    pod["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    pod["spec"]["nodeName"] = "edge1"
    assert world.plan(at(10)).requeue_after_s == 20
    world.settle(at(30))
    reason, message = stall(world)
    assert (reason, "on node edge1" in message) == ("Terminating", True)


def test_a_refusal_of_the_api_is_told_once_for_each_edit() -> None:
    world = started(KIND, pytorch_spec(1))
    world.change(pytorch_spec(3)).settle()
    world.refusal = Refusal("Forbidden", "pods mnist-worker-1: exceeded quota")
    world.settle()
    assert stall(world) == ("Forbidden", "pods mnist-worker-1: exceeded quota")
    world.refusal = Refusal("Forbidden", "pods mnist-worker-2: exceeded quota")
    assert world.plan().status is None
    world.change(pytorch_spec(4)).settle()
    assert stall(world)[1].startswith("pods mnist-worker-2")
    world.refusal = None
    assert conditions(world.settle()) == ["Created"]


@pytest.mark.parametrize("run", [{"suspend": True}, {"activeDeadlineSeconds": 100}])
def test_a_suspended_or_ended_job_has_not_stalled(run: dict[str, Any]) -> None:
    world = started(KIND, pytorch_spec()).pods_become("Pending").settle(at(60))
    world.change(pytorch_spec(run=run)).settle(at(100))
    assert "Stalled" not in conditions(world)


def test_a_replica_that_is_done_stalls_nothing() -> None:
    world = started(KIND, pytorch_spec()).pods_become("Running")
    world.pods_become("Succeeded", WORKER, **ended(0, reason="Completed")).settle(NOW)
    world.pods_become("Unknown", WORKER).settle(at(90))
    assert "Stalled" not in conditions(world)
