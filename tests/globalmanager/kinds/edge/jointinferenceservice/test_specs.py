"""JointInferenceService: which specs are refused, and which are accepted with a warning."""

from typing import Any

import pytest

from tests.globalmanager.kinds.edge.jointinferenceservice.test_plan import env
from tests.globalmanager.kinds.edge.samples import (
    joint_inference_spec,
    mining_spec,
    small_service,
    worker_spec,
)

BOTH = {"hardExampleMining": {"name": "IBT"}, "hardExampleAlgorithm": {"name": "IBT"}}
INVALID = [
    pytest.param(None, "spec: has the wrong form", id="no spec"),
    pytest.param([], "spec: has the wrong form", id="list"),
    pytest.param({"edgeWorker": worker_spec("m")}, "spec.cloudWorker: is missing", id="one worker"),
    pytest.param(
        joint_inference_spec(edge={"model": {"name": ""}}),
        "spec.edgeWorker.model.name: has the",
        id="empty name",
    ),
    pytest.param(
        joint_inference_spec(cloud={"model": {"name": "../x"}}),
        "spec.cloudWorker.model.name: ",
        id="bad name",
    ),
    pytest.param(
        joint_inference_spec(cloud={"template": None}),
        "spec.cloudWorker: has no container",
        id="no form",
    ),
    pytest.param(
        joint_inference_spec(edge={"template": {"spec": {"containers": []}}}),
        "spec.edgeWorker.template.spec.containers: ",
        id="no container",
    ),
    pytest.param(
        mining_spec("Guess"),
        "spec.edgeWorker.hardExampleMining.name: 'Guess' is no known algorithm; use one of "
        "BertRouter, CloudOnly, CrossEntropy, EdgeOnly, IBT, Random, Threshold",
        id="unknown algorithm",
    ),
    pytest.param(
        mining_spec("Threshold", threshold="abc"),
        "spec.edgeWorker.hardExampleMining.parameters[0].value: 'abc' is no number",
        id="threshold is text",
    ),
    pytest.param(
        mining_spec("Random", seed="0.5"),
        "spec.edgeWorker.hardExampleMining.parameters[0].value: '0.5' is no whole number",
        id="seed is a fraction",
    ),
    pytest.param(
        mining_spec("IBT", threshold_img="0.5", threshold_box="nan"),
        "spec.edgeWorker.hardExampleMining.parameters[1].value: 'nan' is no number",
        id="threshold is not finite",
    ),
    pytest.param(
        joint_inference_spec(edge=BOTH), "spec.edgeWorker.hardExampleAlgorithm: ", id="mining twice"
    ),
    pytest.param(
        joint_inference_spec(cloud={"hpa": {"minReplicas": 3, "maxReplicas": 2}}),
        "spec.cloudWorker.hpa: has the wrong form (minReplicas is greater",
        id="autoscaling limits",
    ),
]


@pytest.mark.parametrize(("given", "message"), INVALID)
def test_an_invalid_spec_is_reported_and_creates_no_child(given: Any, message: str) -> None:
    world = small_service()
    world.object = {**world.object, "spec": given}
    world.settle()
    accepted = world.condition("Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", "InvalidSpec")
    assert accepted["message"].startswith(message)
    assert world.status["phase"] == "Invalid"
    assert "startTime" not in world.status
    assert world.names() == []


@pytest.mark.parametrize(("given", "message"), INVALID)
def test_running_workers_stay_when_an_edit_makes_the_spec_invalid(given: Any, message: str) -> None:
    world = small_service().settle().available("edge", "cloud")
    before = dict(world.children)
    world.change(given).settle()
    assert world.children == before
    assert world.condition("Running")["status"] == "True"
    assert world.condition("Accepted")["observedGeneration"] == 2
    world.change(joint_inference_spec()).settle()
    assert world.condition("Accepted")["status"] == "True"


@pytest.mark.parametrize("name", ["a" * 58, "1digits", "a.b"])
def test_a_name_that_no_kubernetes_service_may_have_is_refused(name: str) -> None:
    world = small_service(name=name).settle()
    assert world.condition("Accepted")["message"].startswith("metadata.name: ")
    assert world.names() == []


def test_an_unknown_mining_parameter_is_passed_on_and_mentioned() -> None:
    world = small_service(mining_spec("IBT", treshold_img="0.9")).settle()
    accepted = world.condition("Accepted")
    assert accepted["status"] == "True"
    assert "does not know 'treshold_img'" in accepted["message"]
    assert "treshold_img" in dict(env(world, "edge"))["HEM_PARAMETERS"]


def test_a_template_that_overrides_the_worker_api_is_obeyed_with_a_warning() -> None:
    container = {"name": "c", "image": "i:1", "env": [{"name": "LC_SERVER", "value": "http://x"}]}
    world = small_service(
        joint_inference_spec(edge={"template": {"spec": {"containers": [container]}}})
    ).settle()
    accepted = world.condition("Accepted")
    assert accepted["status"] == "True"
    assert "edgeWorker.template sets LC_SERVER" in accepted["message"]
    assert dict(env(world, "edge"))["LC_SERVER"] == "http://x"
