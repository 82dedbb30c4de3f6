"""Native sidecars, which are init containers with restartPolicy Always, explain no end of a pod."""

from typing import Any

import pytest

from edgeai.api.resources import Object
from edgeai.faults.pod_faults import examine, first_fault
from edgeai.times import rfc3339
from tests.support.world import at


def ended(code: int) -> Object:
    return {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}}


RUNS: Object = {"running": {"startedAt": rfc3339(at(0))}}
STARTS: Object = {"waiting": {"reason": "PodInitializing"}}


def pod(phase: str, *, sidecar: Object, main: Object, **entry: Any) -> Object:
    """Args: sidecar, main: states of the containers; entry: more of the sidecar's status"""
    return {
        "metadata": {"name": "a", "creationTimestamp": rfc3339(at(0))},
        "spec": {
            "nodeName": "edge0",
            "restartPolicy": "Never",
            "initContainers": [{"name": "proxy", "restartPolicy": "Always"}],
            "containers": [{"name": "main"}],
        },
        "status": {
            "phase": phase,
            "initContainerStatuses": [{"name": "proxy", "state": sidecar, **entry}],
            "containerStatuses": [{"name": "main", "state": main}],
        },
    }


def test_the_container_that_failed_is_the_cause_and_not_the_sidecar_that_was_stopped() -> None:
    fault = first_fault([pod("Failed", sidecar=ended(143), main=ended(1))])
    assert fault is not None
    assert "container main ended with exit code 1" in fault.message
    assert len(examine([pod("Failed", sidecar=ended(143), main=ended(1))]).faults) == 1


@pytest.mark.parametrize("code", [137, 143])
def test_a_sidecar_that_is_stopped_after_the_work_is_no_fault(code: int) -> None:
    assert first_fault([pod("Running", sidecar=ended(code), main=ended(0))]) is None


def test_a_sidecar_that_crashes_beside_the_work_is_a_fault() -> None:
    loop = {"waiting": {"reason": "CrashLoopBackOff"}}
    last = {"lastState": ended(2), "restartCount": 3}
    fault = first_fault([pod("Running", sidecar=loop, main=RUNS, **last)])
    assert fault is not None
    assert "container proxy ended with exit code 2" in fault.message


@pytest.mark.parametrize(
    ("is_started", "reason"), [(True, "ContainerCreating"), (False, "Initializing")]
)
def test_a_pod_waits_for_a_sidecar_only_until_that_has_started(
    is_started: bool, reason: str
) -> None:
    fault = first_fault([pod("Pending", sidecar=RUNS, main=STARTS, started=is_started)], at(120))
    assert fault is not None
    assert fault.reason == reason


def test_a_node_that_says_nothing_of_the_containers_yet_hides_no_sidecar() -> None:
    crashing = pod("Pending", sidecar={"waiting": {"reason": "CrashLoopBackOff"}}, main=STARTS)
    del crashing["status"]["containerStatuses"]
    assert first_fault([crashing]) is not None
