"""What a fleet of 5,000 nodes costs: the time of a plan, and the size of the status."""

import time
from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest

from edgeai.api.resources import PODS, Object, ref_of
from edgeai.ids import NodeName
from globalmanager.contract import Contact, Observed
from globalmanager.kinds.edge.jointinferenceservice import KIND
from globalmanager.kinds.shared.stored import stored_bytes
from tests.globalmanager.kinds.edge.jointinferenceservice.test_fleet import (
    CAMERA,
    READY,
    SILENT,
    fleet,
    pods,
)
from tests.support.world import NOW, merged

NODES_OF_THE_FLEET: Final = 5000
MAX_PLAN_S: Final = 0.020
MAX_ASSIGNMENTS_S: Final = 0.050
MAX_STATUS_BYTES: Final = 64 * 1024


def large_fleet(state: Callable[[int], Object]) -> Observed:
    """A settled fleet. Args: state: number of a node -> .status of its pod"""
    world = fleet("edge0").settle().available("cloud")
    pod = pods(world)["edge0"]
    observed = world.observed()
    names = [NodeName(f"edge-{number:05d}.plant.example") for number in range(NODES_OF_THE_FLEET)]
    made = [_pod_on(pod, node, state(number)) for number, node in enumerate(names)]
    others = {ref: child for ref, child in observed.children.items() if ref.type != PODS}
    return msgspec.structs.replace(
        observed,
        nodes={node: {"metadata": {"name": node, "labels": CAMERA}} for node in names},
        contacts={node: Contact(connected=True, since=NOW) for node in names},
        children={**others, **{ref_of(PODS, pod): pod for pod in made}},
        pods=tuple(made),
    )


def _pod_on(pod: Object, node: str, status: Object) -> Object:
    metadata = {**pod["metadata"], "name": f"digits-edge-{node}", "uid": f"uid-{node}"}
    return {
        **pod,
        "metadata": metadata,
        "spec": {**pod["spec"], "nodeName": node},
        "status": status,
    }


def serving(_number: int) -> Object:
    return {"phase": "Running", **READY}


def mixed(number: int) -> Object:
    """One in ten is silent, one in a hundred has failed."""
    if number % 100 == 0:
        return {"phase": "Failed", "reason": "Evicted", "message": "x" * 1000}
    return {"phase": "Running", **(SILENT if number % 10 == 1 else READY)}


def processor_s(call: Callable[[], Any]) -> float:
    """The least processor time of some calls. Other programs on the machine take its caches."""
    times = []
    for _ in range(30):
        began = time.thread_time()
        call()
        times.append(time.thread_time() - began)
    return min(times)


@pytest.mark.parametrize("state", [serving, mixed])
def test_a_plan_of_a_large_fleet_is_short_and_its_status_small(
    state: Callable[[int], Object],
) -> None:
    observed = large_fleet(state)
    plan = KIND.plan(observed, NOW)
    assert plan.status is not None
    assert stored_bytes(plan.status) < MAX_STATUS_BYTES
    object_ = {**observed.object, "status": merged(observed.object["status"], plan.status)}
    settled = msgspec.structs.replace(observed, object=object_)
    assert processor_s(lambda: KIND.plan(settled, NOW)) < MAX_PLAN_S


def test_the_assignments_of_a_large_fleet_are_quickly_computed() -> None:
    observed = large_fleet(serving)
    assert len(KIND.assignments(observed)) == NODES_OF_THE_FLEET
    assert processor_s(lambda: KIND.assignments(observed)) < MAX_ASSIGNMENTS_S
