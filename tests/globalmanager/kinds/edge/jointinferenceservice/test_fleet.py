"""JointInferenceService with perNode: one edge worker on each node with some labels."""

from typing import Any

import pytest

from edgeai.api.resources import PODS, Object
from edgeai.ids import NodeName
from tests.globalmanager.kinds.edge.samples import joint_inference_spec, small_service, worker_spec
from tests.support.world import World, at, report

CAMERA = {"camera": "yes"}
READY = {"conditions": [{"type": "Ready", "status": "True"}]}
SILENT = {"conditions": [{"type": "Ready", "status": "False"}]}


def fleet_spec(**edge: Any) -> dict[str, Any]:
    return joint_inference_spec(
        edge={"nodeName": "", "nodeSelector": CAMERA, "perNode": True, **edge}
    )


def fleet(*nodes: str, **edge: Any) -> World:
    return small_service(fleet_spec(**edge)).nodes(*nodes, labels=CAMERA)


def pods(world: World) -> dict[str, Object]:
    """Node -> pod."""
    children = world.children.items()
    return {child["spec"]["nodeName"]: child for ref, child in children if ref.type == PODS}


def uids(world: World) -> dict[str, str]:
    return {node: pod["metadata"]["uid"] for node, pod in pods(world).items()}


def serving(world: World) -> World:
    """All workers serve."""
    world.settle().available("cloud").pods_become("Running", **READY)
    return seen(world).settle()


def seen(world: World) -> World:
    """The engine finds the pods of a fleet among the children, and among the pods."""
    world.pods = list(pods(world).values())
    return world


# ---- nodes come and go --------------------------------------------------------------------------


def test_each_node_with_the_labels_runs_one_worker() -> None:
    world = fleet("edge0", "edge1").nodes("edge2").settle()
    assert world.names() == [
        "Deployment/digits-deployment-cloud",
        "Pod/digits-edge-edge0",
        "Pod/digits-edge-edge1",
        "Secret/digits-edge",
        "Service/digits-cloud",
    ]
    assert set(world.kind.assignments(world.observed())) == {"edge0", "edge1"}


def test_a_worker_knows_its_name_and_its_node_watches_it() -> None:
    pod = pods(fleet("edge0").settle())["edge0"]
    assert pod["metadata"]["labels"]["edgeai.io/worker"] == "digits-edge-edge0"
    variables = {item["name"]: item for item in pod["spec"]["containers"][0]["env"]}
    assert variables["WORKER_NAME"]["value"] == "digits-edge-$(NODE_NAME)"
    assert {entry["key"] for entry in pod["spec"]["tolerations"]} >= {
        "node.kubernetes.io/unreachable"
    }


def test_a_node_that_comes_gets_a_worker_and_the_others_keep_theirs() -> None:
    world = fleet("edge0").settle()
    before = uids(world)
    world.nodes("edge1", labels=CAMERA).settle()
    assert set(pods(world)) == {"edge0", "edge1"}
    assert before.items() <= uids(world).items()


@pytest.mark.parametrize("change", ["deleted", "relabelled"])
def test_a_node_that_leaves_loses_its_worker(change: str) -> None:
    world = serving(fleet("edge0", "edge1"))
    world = world.without("Node", "edge1") if change == "deleted" else world.nodes("edge1")
    world.settle()
    assert set(pods(world)) == {"edge0"}
    assert set(seen(world).kind.assignments(world.observed())) == {"edge0"}


def test_a_node_holds_the_task_until_its_worker_has_ended() -> None:
    world = serving(fleet("edge0"))
    world.terminates = True
    world.nodes("edge0").settle()
    assert set(seen(world).kind.assignments(world.observed())) == {"edge0"}
    world.end_deleted()
    assert not seen(world).kind.assignments(world.observed())


def test_a_node_that_comes_back_waits_for_the_end_of_its_former_worker() -> None:
    world = serving(fleet("edge0"))
    before = uids(world)
    world.terminates = True
    world.nodes("edge0").settle()
    world.nodes("edge0", labels=CAMERA).settle()
    assert uids(world) == before
    world.end_deleted().settle()
    assert uids(world).keys() == {"edge0"}
    assert uids(world) != before


def test_a_node_out_of_contact_keeps_its_worker_and_its_counts() -> None:
    world = serving(fleet("edge0", "edge1"))
    world.receive(report(worker="digits-edge-edge0", node="edge0", counts={"seen": 3}))
    before = uids(world)
    world.contact("edge0", connected=False, since=at(-100)).contact("edge1")
    world.pods_become("Running", "digits-edge-edge0", **SILENT)
    seen(world).settle(at(100))
    assert uids(world) == before
    assert world.status["fleet"]["silent"] == 1
    assert {"key": "seen", "value": "3"} in world.status["metrics"]
    assert world.condition("Running")["status"] == "True"
    assert world.condition("EdgeConnected")["status"] == "False"


def test_counts_are_those_of_all_nodes_also_of_those_that_have_left() -> None:
    world = serving(fleet("edge0", "edge1"))
    for number, node in enumerate(("edge0", "edge1"), start=1):
        worker = f"digits-edge-{node}"
        world.receive(report(worker=worker, node=node, counts={"seen": 10 * number, "uploaded": 1}))
    world.nodes("edge1").settle()
    assert {"key": "seen", "value": "30"} in world.status["metrics"]
    assert world.status["uploadCount"] == 2


# ---- the edges of the definition ----------------------------------------------------------------


def test_a_fleet_without_a_node_waits_and_says_for_what() -> None:
    world = fleet().settle().available("cloud").settle()
    condition = world.condition("Running")
    assert (condition["status"], condition["reason"]) == ("False", "NoNodes")
    assert "nodeSelector" in condition["message"]
    assert world.status["phase"] == "Pending"
    assert world.status["fleet"]["nodes"] == 0


def test_one_worker_is_replaced_by_a_fleet_and_back() -> None:
    world = small_service().nodes("edge0", "edge1", labels=CAMERA).settle()
    world.change(fleet_spec()).settle()
    assert "Deployment/digits-deployment-edge" not in world.names()
    assert set(pods(world)) == {"edge0", "edge1"}
    world.change(joint_inference_spec()).settle()
    assert "Deployment/digits-deployment-edge" in world.names()
    assert not pods(world)
    assert "fleet" not in world.status


def test_an_invalid_edit_leaves_the_workers_alone() -> None:
    world = serving(fleet("edge0"))
    before = uids(world)
    world.change({"edgeWorker": 5}).settle()
    assert uids(world) == before
    assert set(world.kind.assignments(world.observed())) == {"edge0"}
    assert world.status["fleet"]["ready"] == 1


def test_a_model_that_is_missing_leaves_the_workers_alone() -> None:
    world = serving(fleet("edge0"))
    before = uids(world)
    world.without("Model", "small").settle()
    assert uids(world) == before


@pytest.mark.parametrize(
    ("edge", "field"),
    [
        ({"nodeName": "edge0"}, "spec.edgeWorker.nodeName"),
        ({"template": {"spec": {"nodeName": "edge0"}}}, "spec.edgeWorker.template.spec.nodeName"),
        ({"perNode": False}, "spec.edgeWorker.nodeSelector"),
        ({"nodeSelector": {}}, "spec.edgeWorker.nodeSelector"),
        ({"hpa": {"maxReplicas": 2}}, "spec.edgeWorker.hpa"),
    ],
)
def test_fields_that_contradict_a_fleet_are_refused(edge: dict[str, Any], field: str) -> None:
    if "template" in edge:
        container = worker_spec("small")["template"]["spec"]
        edge = {"template": {"spec": {**container, **edge["template"]["spec"]}}}
    world = fleet("edge0", **edge).settle()
    condition = world.condition("Accepted")
    assert condition["status"] == "False"
    assert condition["message"].startswith(f"{field}: ")
    assert not pods(world)


# ---- faults and changes -------------------------------------------------------------------------


def test_a_worker_that_has_failed_is_replaced_after_a_pause() -> None:
    world = serving(fleet("edge0", "edge1"))
    before = uids(world)
    world.pods_become("Failed", "digits-edge-edge0", reason="Evicted")
    world.plan(at(1))
    assert seen(world).settle(at(1)).status["fleet"]["failed"] == 1
    assert world.status["fleet"]["worst"] == [{"node": "edge0", "state": "failed"}]
    seen(world).settle(at(31))
    assert uids(world)["edge1"] == before["edge1"]
    assert uids(world)["edge0"] != before["edge0"]


def test_a_change_of_the_template_replaces_a_tenth_of_the_workers_at_a_time() -> None:
    names = [f"edge{number}" for number in range(30)]
    world = serving(fleet(*names))
    before = uids(world)
    world.change(fleet_spec(hardExampleMining={"name": "CloudOnly"}))
    for replaced in (3, 6, 9):
        seen(world.settle())
        assert sum(uid != before[node] for node, uid in uids(world).items()) == replaced
        world.settle()
        world.pods_become("Running", **READY)
        seen(world)


def test_a_new_template_that_fails_stays_on_a_tenth_of_the_nodes() -> None:
    names = [f"edge{number}" for number in range(30)]
    world = serving(fleet(*names))
    before = uids(world)
    world.change(fleet_spec(hardExampleMining={"name": "CloudOnly"})).settle()
    for second in range(1, 100, 10):
        seen(world).settle(at(second))
    assert sum(uid != before[node] for node, uid in uids(world).items()) == 3


def test_a_silent_node_gets_the_new_template_when_it_is_back() -> None:
    world = serving(fleet("edge0"))
    before = uids(world)
    world.pods_become("Running", "digits-edge-edge0", **SILENT)
    seen(world).change(fleet_spec(hardExampleMining={"name": "CloudOnly"})).settle()
    assert uids(world) == before
    world.pods_become("Running", "digits-edge-edge0", **READY)
    seen(world).settle()
    assert uids(world) != before


def test_a_node_with_a_long_name_gets_a_worker() -> None:
    node = NodeName(".".join(["n" * 60] * 4))
    pod = pods(fleet(node).settle())[node]
    assert len(pod["metadata"]["name"]) == 253
    assert "edgeai.io/worker" not in pod["metadata"]["labels"]
