"""JointInferenceService with perNode: one edge worker on each node with some labels."""

from typing import Any

import pytest

from edgeai.api import slices
from edgeai.api.resources import CONFIG_MAPS, PODS, Object, ObjectRef
from edgeai.ids import NodeName, is_subdomain
from tests.globalmanager.kinds.edge.samples import joint_inference_spec, small_service, worker_spec
from tests.support.world import World, at, merged, patch_of, report

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


def counted(world: World, node: str, **counts: int) -> World:
    """The node reports these counts, and its slice keeps them, as the report writer does."""
    one = report(worker=f"digits-node-{node}", node=node, counts=counts)
    ref = ObjectRef(CONFIG_MAPS, "default", slices.slice_name("digits", one.worker))
    part = slices.part_of(world.children[ref])
    patch = patch_of(world.kind.fold(part), one)
    data = slices.data_of(merged(part, patch), patch["workers"])
    world.children[ref] = merged(world.children[ref], {"data": data})
    return world


def seen(world: World) -> World:
    """The engine finds the pods of a fleet among the children, and among the pods."""
    world.pods = list(pods(world).values())
    return world


# ---- nodes come and go --------------------------------------------------------------------------


def test_each_node_with_the_labels_runs_one_worker() -> None:
    world = fleet("edge0", "edge1").nodes("edge2").settle()
    assert world.names() == [
        *(f"ConfigMap/digits-workers-{number}" for number in range(4)),
        "Deployment/digits-deployment-cloud",
        "Pod/digits-node-edge0",
        "Pod/digits-node-edge1",
        "Secret/digits-edge",
        "Service/digits-cloud",
    ]
    assert set(world.kind.assignments(world.observed())) == {"edge0", "edge1"}


def test_a_worker_knows_its_name_and_its_node_watches_it() -> None:
    pod = pods(fleet("edge0").settle())["edge0"]
    assert pod["metadata"]["labels"]["edgeai.io/worker"] == "digits-node-edge0"
    variables = {item["name"]: item for item in pod["spec"]["containers"][0]["env"]}
    assert variables["WORKER_NAME"]["value"] == "digits-node-$(NODE_NAME)"
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


def test_a_grant_depends_on_the_generation_and_the_node_alone() -> None:
    """A node never gets another body of a version that it holds."""
    world = fleet("edge0").settle().pod("edge", "edge9")
    before = world.kind.assignments(world.observed())[NodeName("edge9")]
    world.nodes("edge9", labels=CAMERA)
    after = world.kind.assignments(world.observed())[NodeName("edge9")]
    assert after.body == before.body
    assert sorted(before.reporting or ()) == ["digits-edge", "digits-edge-edge9"]
    assert (after.reporting or set()) - (before.reporting or set()) == {"digits-node-edge9"}


def test_a_node_of_a_fleet_reports_as_its_worker_and_as_no_other() -> None:
    """Entries of a fleet in .status would leave no room for others."""
    world = serving(fleet("edge0"))
    assignment = world.kind.assignments(world.observed())[NodeName("edge0")]
    assert list(assignment.reporting or ()) == ["digits-node-edge0"]


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
    counted(world, "edge0", seen=3)
    before = uids(world)
    world.contact("edge0", connected=False, since=at(-100)).contact("edge1")
    world.pods_become("Running", "digits-node-edge0", **SILENT)
    seen(world).settle(at(100))
    assert uids(world) == before
    assert world.status["fleet"]["silent"] == 1
    assert {"key": "seen", "value": "3"} in world.status["metrics"]
    assert world.condition("Running")["status"] == "True"
    assert world.condition("EdgeConnected")["status"] == "False"


def test_counts_are_those_of_all_nodes_also_of_those_that_have_left() -> None:
    world = serving(fleet("edge0", "edge1"))
    for number, node in enumerate(("edge0", "edge1"), start=1):
        counted(world, node, seen=10 * number, uploaded=1)
    world.nodes("edge1").settle(at(10))
    assert {"key": "seen", "value": "30"} in world.status["metrics"]
    assert world.status["uploadCount"] == 2
    assert not world.status.get("workers")


def test_counts_stay_when_the_service_is_no_fleet_any_more() -> None:
    world = counted(serving(fleet("edge0")), "edge0", seen=5)
    world.change(joint_inference_spec()).settle(at(10))
    world.receive(report(counts={"seen": 2}))
    assert {"key": "seen", "value": "7"} in world.status["metrics"]
    assert world.plan(at(20)).status is None


def test_fallbacks_of_one_worker_that_was_a_fleet_add_up() -> None:
    world = counted(serving(fleet("edge0")), "edge0", hard=9, answeredByCloud=2, fallbacks=7)
    world.change(joint_inference_spec()).settle(at(10))
    for number in range(1, 4):
        world.receive(report(counts={"hard": number, "answeredByCloud": 0, "fallbacks": number}))
        world.settle(at(10 * number))
        assert world.status["fallbacksInARow"] == number
    world.settle(at(100))
    assert world.condition("CloudReachable")["status"] == "False"


def test_the_cloud_is_unreachable_when_no_node_of_the_fleet_gets_an_answer() -> None:
    world = serving(fleet("edge0", "edge1"))
    counted(world, "edge0", hard=1, answeredByCloud=1, fallbacks=0).settle(at(10))
    for number, node in enumerate(("edge0", "edge1"), start=1):
        counted(world, node, hard=9, answeredByCloud=2 - number, fallbacks=number)
    world.settle(at(20)).settle(at(90))
    assert world.condition("CloudReachable")["status"] == "False"
    counted(world, "edge1", hard=10, answeredByCloud=1, fallbacks=2).settle(at(100))
    assert world.condition("CloudReachable")["status"] == "True"


def test_mere_numbers_are_written_now_and_then() -> None:
    world = serving(fleet("edge0", "edge1"))
    world.settle(at(10))
    counted(world, "edge0", seen=1).settle(at(20))
    plan = counted(world, "edge0", seen=2).plan(at(22))
    assert (plan.status, plan.requeue_after_s) == (None, 3.0)
    assert {"key": "seen", "value": "2"} in world.settle(at(25)).status["metrics"]
    world.change({"edgeWorker": 5}).settle(at(26))
    assert world.status["phase"] == "Invalid"


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
    world.pods_become("Failed", "digits-node-edge0", reason="Evicted")
    assert seen(world).settle(at(6)).status["fleet"]["failed"] == 1
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
    world.pods_become("Running", "digits-node-edge0", **SILENT)
    seen(world).change(fleet_spec(hardExampleMining={"name": "CloudOnly"})).settle()
    assert uids(world) == before
    world.pods_become("Running", "digits-node-edge0", **READY)
    seen(world).settle()
    assert uids(world) != before


def test_nodes_that_were_never_in_contact_hold_no_change_of_the_template() -> None:
    names = [f"edge{number}" for number in range(20)]
    present = [f"digits-node-{node}" for node in names[:17]]
    world = fleet(*names).nodes(*names[17:], labels=CAMERA, ready="Unknown").settle()
    world.pods_become("Running", *present, **READY)
    before = uids(world)
    world.change(fleet_spec(hardExampleMining={"name": "CloudOnly"}))
    for _ in range(9):
        seen(world).settle()
        world.settle().pods_become("Running", *present, **READY)
    assert {node for node, uid in uids(world).items() if uid == before[node]} == set(names[17:])
    assert seen(world).settle(at(10)).status["fleet"]["silent"] == 3


def test_the_pod_of_a_node_out_of_contact_that_is_being_deleted_holds_no_change() -> None:
    world = serving(fleet("edge0", "edge1"))
    before = uids(world)
    world.terminates = True
    world.pods_become("Failed", "digits-node-edge0", reason="Evicted")
    seen(world).settle(at(31)).nodes("edge0", labels=CAMERA, ready="Unknown")
    world.terminates = False
    world.change(fleet_spec(hardExampleMining={"name": "CloudOnly"})).settle(at(40))
    assert uids(world)["edge0"] == before["edge0"]
    assert uids(world)["edge1"] != before["edge1"]


def test_a_node_with_a_long_name_gets_a_worker() -> None:
    node = NodeName(".".join(["n" * 60] * 4))
    world = serving(fleet(node))
    pod = pods(world)[node]
    assert is_subdomain(pod["metadata"]["name"])
    assert "edgeai.io/worker" not in pod["metadata"]["labels"]
    counted(counted(world, node, seen=1), node, seen=2).settle(at(10))
    assert {"key": "seen", "value": "2"} in world.status["metrics"]
    maps = [one for ref, one in world.children.items() if ref.type == CONFIG_MAPS]
    keys = [key for one in maps for key in one.get("data") or ()]
    assert keys == ["summary", pod["metadata"]["name"]]
