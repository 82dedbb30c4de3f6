"""JointInferenceService: an edge worker that loads its Model hot."""

from typing import Any

import pytest

from edgeai.api.resources import Object
from tests.globalmanager.kinds.edge.samples import SEDNA, joint_inference_spec, small_service
from tests.support.world import World, report

URL = "https://example.org/small.onnx"


def hot_spec(**fields: Any) -> dict[str, Any]:
    spec = joint_inference_spec()
    spec["edgeWorker"]["model"] = {"name": "small", **(fields or {"hotUpdate": True})}
    return spec


def hot_service(url: str = URL, **fields: Any) -> World:
    return small_service(hot_spec(**fields)).model("small", url=url).settle()


def edge_pod(world: World) -> Object:
    (deployment,) = (
        child
        for ref, child in world.children.items()
        if ref.type.kind == "Deployment" and ref.name.endswith("-edge")
    )
    return dict(deployment["spec"]["template"]["spec"])


def env(world: World) -> dict[str, Any]:
    (container,) = edge_pod(world)["containers"]
    return {each["name"]: each.get("value") for each in container["env"]}


@pytest.mark.parametrize("field", ["hotUpdate", "hotUpdateEnabled"])
def test_the_worker_gets_a_name_and_a_place_and_no_init_container(field: str) -> None:
    fields: dict[str, Any] = {field: True, "pollPeriodSeconds": 7}
    world = hot_service(**fields)
    found = env(world)
    assert found["HOT_MODEL"] == "small"
    assert found["MODEL_POLL_PERIOD_SECONDS"] == "7"
    assert found["MODEL_DIR"] == "/downloads"
    assert "MODEL_URL" not in found
    assert "initContainers" not in edge_pod(world)


def test_a_new_url_leaves_the_pod_alone() -> None:
    assert edge_pod(hot_service()) == edge_pod(hot_service(url="s3://bucket/v2.onnx"))


def test_the_nodes_of_the_service_read_its_model() -> None:
    world = hot_service()
    (assignment,) = world.kind.assignments(world.observed()).values()
    assert [ref.name for ref in assignment.inputs] == ["small"]
    assert URL not in str(assignment.body), "the Model is a task of its own"
    world = small_service().settle()
    (cold,) = world.kind.assignments(world.observed()).values()
    assert not cold.inputs


def test_a_wrong_edit_takes_no_model_from_running_workers() -> None:
    world = hot_service()
    world.change({"edgeWorker": 1}).settle()
    (assignment,) = world.kind.assignments(world.observed()).values()
    assert len(assignment.inputs) == 1


def available(world: World) -> World:
    for ref, child in list(world.children.items()):
        if ref.type.kind == "Deployment":
            status = {"conditions": [{"type": "Available", "status": "True"}]}
            world.children[ref] = {**child, "status": status}
    return world.settle()


def undelivered(world: World, message: str) -> World:
    """The Model says that a node has not its content."""
    condition = {"type": "Delivered", "status": "False", "message": message}
    world.other("Model", "small")["status"] = {"conditions": [condition]}
    return world.settle()


def tell(world: World, node: str = "edge0", **details: str) -> dict[str, Any]:
    """Returns: condition Running after a report of the edge worker."""
    world.receive(report(worker="digits-edge", node=node, details=details))
    return world.settle().condition("Running")


def test_a_service_whose_workers_have_no_model_does_not_run() -> None:
    world = undelivered(available(hot_service()), "node edge0: no such file")
    running = world.condition("Running")
    assert (running["status"], running["reason"]) == ("False", "ModelNotLoaded")
    assert running["message"] == "Model default/small: node edge0: no such file"
    running = tell(world, modelFault="waiting: no content")
    assert running["status"] == "False"
    assert "digits-edge: waiting: no content" in running["message"]
    running = tell(world, modelVersion="1")
    assert running["status"] == "True", "it serves with the version before"
    assert running["message"].endswith("; but Model default/small: node edge0: no such file")


def test_a_version_that_cannot_be_loaded_is_told_of_a_service_that_runs() -> None:
    world = available(hot_service())
    running = tell(world, modelVersion="1", modelFault="version 2: ValueError: no weights")
    assert running["status"] == "True"
    assert running["message"].endswith("; but digits-edge: version 2: ValueError: no weights")
    assert "but" not in tell(world, modelVersion="3")["message"]


@pytest.mark.parametrize("spec", [hot_spec(), joint_inference_spec()], ids=["hot", "cold"])
def test_a_template_has_a_model_name_of_its_own(spec: dict[str, Any]) -> None:
    """MODEL_NAME is a common name."""
    (container,) = spec["edgeWorker"]["template"]["spec"]["containers"]
    container["env"] = [{"name": "MODEL_NAME", "value": "bert-base"}]
    world = small_service(spec).model("small", url=URL).settle()
    assert env(world)["MODEL_NAME"] == "bert-base"
    before = [
        {ref.name for ref in assignment.inputs}
        for assignment in world.kind.assignments(world.observed()).values()
    ]
    world.change({"edgeWorker": 1}).settle()
    after = [
        {ref.name for ref in assignment.inputs}
        for assignment in world.kind.assignments(world.observed()).values()
    ]
    assert before == after
    assert "bert-base" not in str(after)


def test_a_template_that_sets_the_name_of_the_hot_model_is_told() -> None:
    spec = hot_spec()
    (container,) = spec["edgeWorker"]["template"]["spec"]["containers"]
    container["env"] = [{"name": "HOT_MODEL", "value": "other"}]
    world = small_service(spec).model("small", url=URL).settle()
    assert "edgeWorker.template sets HOT_MODEL" in world.condition("Accepted")["message"]


def test_counts_of_one_version_do_not_become_those_of_another() -> None:
    """The ledger of the node is lost, or the worker moves to another node."""
    world = hot_service()
    before = {"seen": 9000, "version": 8, "seenOfVersion": 5000, "hardOfVersion": 4000}
    after = {"seen": 10, "version": 9, "seenOfVersion": 10, "hardOfVersion": 0}
    world.receive(report(counts=before))
    world.receive(report(ledger_id="ledger-2", counts=after))
    assert world.status["workers"]["digits-edge"]["taskInfo"] == {**after, "seen": 9000}
    world.receive(report(ledger_id="ledger-3", node="edge1", counts={**after, "version": 1}))
    entry = world.status["workers"]["digits-edge"]
    assert entry["taskInfo"] == {**after, "version": 1}
    assert entry["countedElsewhere"] == {"edge0": {"seen": 9000}}


def test_users_of_sedna_learn_what_hot_models_need() -> None:
    world = small_service(hot_spec(), type_=SEDNA).model("small", url=URL).settle()
    assert "Sedna's library" in world.condition("Accepted")["message"]
    assert "Sedna" not in hot_service().condition("Accepted")["message"]


def test_a_model_that_is_a_file_of_the_node_cannot_be_loaded_hot() -> None:
    resolved = hot_service(url="/models/small.onnx").condition("ResolvedRefs")
    assert (resolved["status"], resolved["reason"]) == ("False", "ModelNotDelivered")
    assert "spec.edgeWorker.model.hotUpdate" in resolved["message"]


@pytest.mark.parametrize("period", [0, -1, 10**6, "5"])
def test_a_wrong_period_is_refused(period: Any) -> None:
    world = hot_service(hotUpdate=True, pollPeriodSeconds=period)
    assert world.condition("Accepted")["status"] == "False"
