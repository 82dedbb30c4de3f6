"""EdgeConnected: on time, and without flapping when the GlobalManager restarts."""

from typing import Any

import pytest

from edgeai.api.status import Finding
from edgeai.ids import NodeName
from globalmanager.kinds.edge.model import KIND as MODEL
from globalmanager.kinds.shared.contacts import EDGE_CONNECTED, edge_connected
from tests.support.world import World, at, job

GRACE_S = 40.0
EDGE0 = NodeName("edge0")


def known(truth: str, reason: str, since_s: float = 0) -> dict[str, Any]:
    since = at(since_s).strftime("%Y-%m-%dT%H:%M:%SZ")
    entry = {"type": EDGE_CONNECTED, "status": truth, "reason": reason, "message": "as before"}
    return {"conditions": [{**entry, "lastTransitionTime": since}]}


def world(status: Any = None) -> World:
    return World(MODEL, job(status=status))


def found(world: World, now_s: float, *nodes: str) -> tuple[Finding, float | None]:
    names = [NodeName(node) for node in nodes or ("edge0",)]
    finding, after_s = edge_connected(world.observed(), names, at(now_s))
    assert finding is not None
    return finding, after_s


def test_without_nodes_there_is_no_condition() -> None:
    assert edge_connected(world().observed(), [], at(0)) == (None, None)


@pytest.mark.parametrize(
    ("before", "now_s", "truth", "after_s"),
    [
        pytest.param(None, 0, "Unknown", 40, id="never heard of"),
        pytest.param(known("Unknown", "AwaitingContact"), 10, "Unknown", 30, id="within grace"),
        pytest.param(known("Unknown", "AwaitingContact"), 40, "False", None, id="grace over"),
        pytest.param(known("True", "Connected"), 999, "Unknown", 40, id="restarted: grace anew"),
        pytest.param(known("False", "NoContact"), 0, "False", None, id="was lost, stays lost"),
    ],
)
def test_a_node_that_has_not_connected_since_the_start(
    before: Any, now_s: float, truth: str, after_s: float | None
) -> None:
    finding, again_s = found(world(before), now_s)
    assert (finding.truth, again_s) == (truth, after_s)


@pytest.mark.parametrize(
    ("before", "now_s", "truth", "after_s"),
    [
        pytest.param(known("True", "Connected"), 0, "True", 40, id="just gone"),
        pytest.param(known("True", "Connected"), 39, "True", 1, id="nearly over"),
        pytest.param(known("True", "Connected"), 40, "False", None, id="over"),
        pytest.param(None, 1, "Unknown", 39, id="first look"),
        pytest.param(known("False", "NoContact"), 1, "False", 39, id="came and went"),
    ],
)
def test_a_node_whose_session_ended(
    before: Any, now_s: float, truth: str, after_s: float | None
) -> None:
    finding, again_s = found(world(before).contact("edge0", connected=False), now_s)
    assert (finding.truth, again_s) == (truth, after_s)


def test_the_condition_stays_during_the_grace_time() -> None:
    before = world(known("True", "Connected")).contact("edge0", connected=False)
    finding, _ = found(before, 5)
    assert (finding.reason, finding.message) == ("Connected", "as before")


def test_a_session_means_connected_after_any_condition() -> None:
    for before in (None, known("False", "NoContact"), known("Unknown", "AwaitingContact")):
        finding, again_s = found(world(before).contact("edge0"), 999)
        assert (finding.truth, again_s) == ("True", None)


def test_one_lost_node_among_several_is_named() -> None:
    before = world().contact("edge0").contact("edge1", connected=False)
    finding, _ = found(before, GRACE_S, "edge0", "edge1")
    assert finding.truth == "False"
    assert "edge1" in finding.message
    assert "edge0" not in finding.message


def test_many_lost_nodes_are_counted_in_the_message() -> None:
    nodes = [f"edge{index:03}" for index in range(500)]
    finding, _ = found(world(known("False", "NoContact")), 0, *nodes)
    assert "and 490 more" in finding.message
