"""JointInferenceService: the assignment of each node."""

from typing import Any

from edgeai.ids import NodeName
from globalmanager.contract import Assignment
from globalmanager.kinds.shared.secrets import secret_hash
from tests.globalmanager.kinds.edge.samples import (
    joint_inference_spec,
    secrets_of,
    sedna_service,
    small_service,
)
from tests.support.world import World

EDGE0 = NodeName("edge0")


def assignments(world: World) -> dict[NodeName, Assignment]:
    return dict(world.kind.assignments(world.observed()))


def assigned_nodes(world: World) -> list[NodeName]:
    return list(assignments(world))


def spec_without_node() -> dict[str, Any]:
    given = joint_inference_spec()
    del given["edgeWorker"]["nodeName"]
    return given


def test_the_edge_workers_node_gets_the_assignment() -> None:
    assignment = assignments(sedna_service())[EDGE0]
    assert assignment.key == "jointinferenceservices.sedna.io/default/bird-watch"
    assert (assignment.uid, assignment.version) == ("uid-1", 1)
    parameters = [
        {"key": "threshold_img", "value": "0.9"},
        {"key": "threshold_box", "value": "0.9"},
    ]
    assert assignment.body.spec == {
        "edgeWorker": {
            "model": {"name": "bird-small"},
            "nodeName": "edge0",
            "hardExampleMining": {"name": "IBT", "parameters": parameters},
        }
    }


def test_the_grant_is_the_hash_of_the_secret_in_the_pod() -> None:
    world = small_service().settle()
    grant = assignments(world)[EDGE0].body.workers
    hash_ = secret_hash(secrets_of(world)["WORKER_SECRET of Secret digits-edge"])
    assert {name: entry.secret_hash for name, entry in grant.items()} == {
        "digits-edge": hash_,
        "digits-edge-edge0": hash_,
        "digits-node-edge0": hash_,
    }


def test_an_assignment_changes_only_with_its_version() -> None:
    """An unchanged version is not sent again, so the assignment must not depend on single pods."""
    world = small_service().settle().pod("edge", "edge0", worker="digits-edge")
    world.change(spec_without_node())
    before = assignments(world)[EDGE0]
    world.settle().pod("edge", "edge0")
    assert assignments(world)[EDGE0] == before
    assert "digits-edge-edge0" in before.body.workers


def test_an_assignment_does_not_wait_for_models_or_nodes() -> None:
    world = small_service().without("Model", "small").without("Node", "edge0")
    assert assigned_nodes(world) == ["edge0"]


def test_the_version_is_the_generation() -> None:
    assert assignments(small_service().change(joint_inference_spec()))[EDGE0].version == 2


def test_without_a_named_node_the_nodes_of_the_pods_get_assignments() -> None:
    world = small_service(spec_without_node()).pod("edge", "edge0").pod("edge", "edge1").pod("edge")
    world.pod("cloud", "cloud0").pod("edge", "edge7", phase="Failed")
    assert assigned_nodes(world) == ["edge0", "edge1"]


def test_a_worker_on_the_former_node_may_report_until_it_ends() -> None:
    world = small_service().settle().pod("edge", "edge0", worker="digits-edge")
    world.change(joint_inference_spec(edge={"nodeName": "edge1"})).settle()
    assert assigned_nodes(world) == ["edge0", "edge1"]
    assert assignments(world)[EDGE0].former == {"digits-edge"}
    assert not assignments(world)[NodeName("edge1")].former
    world.pods.clear()
    assert assigned_nodes(world) == ["edge1"]


def test_a_worker_without_a_named_node_has_no_former_node() -> None:
    world = small_service().settle().pod("edge", "edge0", worker="digits-edge")
    world.change(spec_without_node())
    assert not assignments(world)[EDGE0].former


def test_an_invalid_change_keeps_the_grants_of_running_workers() -> None:
    pinned = small_service().settle()
    before = assignments(pinned)[EDGE0].body.workers
    assert assignments(pinned.change({"edgeWorker": 5}))[EDGE0].body.workers == before
    unpinned = small_service(spec_without_node()).settle().pod("edge", "edge1")
    assert assigned_nodes(unpinned.change("garbage")) == ["edge1"]


def test_an_invalid_service_that_never_ran_has_no_assignment() -> None:
    assert assignments(small_service(given="garbage")) == {}
