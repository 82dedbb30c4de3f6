"""What a pod that is being deleted tells: since when, how late it is, and why it is still there."""

import math
from typing import Any

import pytest

from edgeai.api import deletions
from edgeai.api.resources import Object
from edgeai.faults import pod_faults
from edgeai.faults.remedies import remedy_of
from edgeai.times import rfc3339
from tests.support.world import at


def pod(node: str = "edge1", **metadata: Any) -> Object:
    return {"metadata": {"name": "a", **metadata}, "spec": {"nodeName": node} if node else {}}


def deleted(grace_s: Any = 30, **metadata: Any) -> Object:
    """A pod whose deletion began at NOW, and whose grace period is 30 s."""
    times = {"deletionTimestamp": rfc3339(at(30)), "deletionGracePeriodSeconds": grace_s}
    return pod(**{**times, **metadata})


@pytest.mark.parametrize(
    ("made", "seconds", "left"),
    [
        (pod(), 0, math.inf),
        (deleted(), 0, 60),
        (deleted(), 59, 1),
        (deleted(), 61, -1),
        (deleted(deletionTimestamp="soon"), 0, 0),
    ],
)
def test_a_pod_is_overdue_half_a_minute_after_its_grace_period(
    made: Object, seconds: float, left: float
) -> None:
    assert deletions.overdue_in_s(made, at(seconds)) == left


@pytest.mark.parametrize(
    ("made", "left"),
    [
        (deleted(), 10),
        (deleted(grace_s=0), 0),  # it began in 30 s, so another clock says so
        (deleted(grace_s=20), 20),
        (deleted(grace_s="30"), 0),
        (deleted(grace_s=-5), 0),
        (deleted(grace_s=True), 0),
        (deleted(grace_s=10**12, deletionTimestamp="0001-01-01T00:00:00Z"), -math.inf),
        (deleted(deletionTimestamp=None), 0),
        (deleted(deletionTimestamp=[]), 0),
    ],
)
def test_a_limit_counts_from_the_moment_of_the_deletion(made: Object, left: float) -> None:
    found = deletions.end_left_s(made, 10, at(0))
    assert found == left if left > -math.inf else found < 0


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (deleted(), "its node has not confirmed its end; where the node is lost for good, delete"),
        (deleted(grace_s=0), "its node has not confirmed its end;"),
        (deleted(finalizers=["a/b"]), "its node has not confirmed its end, and it has the fina"),
        (deleted(grace_s=0, finalizers=["a/b"]), "it has the finalizers a/b and stays until"),
        (deleted(grace_s=0, finalizers=["1", "2", "3"]), "it has the finalizers 1, 2, 3 and"),
        (deleted(grace_s=0, finalizers=["1", "2", "3", "4"]), "finalizers 1, 2, 3, … and"),
        (deleted(grace_s=0, finalizers={"a": "b"}), "its node has not confirmed its end;"),
        (deleted(grace_s=0, finalizers=[["a"], None]), "it has the finalizers ['a'], None and"),
        (pod(), "the API server has not accepted its deletion"),
    ],
)
def test_the_cause_is_the_node_or_the_finalizers(made: Object, why: str) -> None:
    found = pod_faults.deletion_fault(made)
    assert found.message.startswith("pod a on node edge1: Terminating: ")
    assert why in found.message
    assert found.is_pending


@pytest.mark.parametrize(
    ("made", "remedy"),
    [
        (deleted(), "wait for the node to confirm the end of the pod; where the node is lost"),
        (deleted(grace_s=0, finalizers=["a/b"]), "see the controllers of the finalizers"),
        (deleted(finalizers=["a/b"]), "see the controllers of the finalizers"),
    ],
)
def test_the_remedy_is_that_of_the_cause(made: Object, remedy: str) -> None:
    found = pod_faults.deletion_fault(made)
    assert remedy_of(found.reason, found.message).startswith(remedy)


def test_the_message_is_short_and_has_no_control_characters() -> None:
    message = pod_faults.deletion_fault(
        deleted(grace_s=0, finalizers=["\x1b[2J" + "x" * 5000])
    ).message
    assert len(message) <= 400
    assert "\x1b" not in message


def test_the_first_overdue_pod_is_told_and_the_others_are_waited_for() -> None:
    pods = [pod(), deleted(), deleted(deletionTimestamp=rfc3339(at(10)), finalizers=["late"])]
    examined = pod_faults.examine(pods, at(45))
    (fault,) = examined.faults
    assert "late" in fault.message
    assert examined.next_s == 15
