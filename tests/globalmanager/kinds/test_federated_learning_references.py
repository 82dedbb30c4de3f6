"""FederatedLearningJob: Models, Datasets, Nodes and Secrets that it refers to, and what fits."""

from typing import Any

import pytest

from tests.globalmanager.builders import World
from tests.globalmanager.kinds.samples import federated, federation
from tests.globalmanager.kinds.test_federated_learning_plan import ALL, env, pod_spec, pods

# ---- the pretrained model -----------------------------------------------------------------------


def pretrained() -> World:
    return federation(pretrainedModel={"name": "start"}).model("start", "/models/start.npz")


def test_a_pretrained_model_is_given_to_all() -> None:
    world = pretrained().settle()
    given = {env(world, name)["PRETRAINED_MODEL_URL"] for name in ALL}
    assert given == {"/home/data/models/start.npz"}


def test_a_pretrained_model_is_waited_for() -> None:
    world = pretrained().without("Model", "start").settle()
    resolved = world.condition("ResolvedRefs")
    assert resolved["reason"] == "ModelNotFound"
    assert "Model default/start (spec.pretrainedModel.name)" in resolved["message"]
    assert pods(world) == []


def test_the_result_goes_where_the_model_says() -> None:
    """The directory of the model is created; a model in a bucket is not fetched first."""
    world = federation().model("small", "/out/m.npz").settle()
    volumes = pod_spec(world, "digits-train-0")["volumes"]
    types = {each["hostPath"]["path"]: each["hostPath"]["type"] for each in volumes}
    assert types == {"/out": "DirectoryOrCreate", "/data": "Directory"}
    world = federation().model("small", "s3://b/m.npz").settle()
    assert "initContainers" not in pod_spec(world, "digits-train-0")
    assert env(world, "digits-train-0")["MODEL_URL"] == "s3://b/m.npz"


# ---- nodes --------------------------------------------------------------------------------------


def test_the_node_of_the_aggregator_is_waited_for() -> None:
    aggregation = {**federated()["aggregationWorker"], "nodeName": "cloud7"}
    world = federation(aggregationWorker=aggregation).settle()
    assert world.condition("ResolvedRefs")["reason"] == "NodeNotFound"
    assert pods(world) == []


def judged(world: World, name: str, *, generation: int = 3) -> World:
    """The Dataset's own plan found no such node, of its generation 3."""
    dataset = world.other("Dataset", name)
    dataset["metadata"]["generation"] = generation
    found = {
        "type": "ResolvedRefs",
        "status": "False",
        "reason": "NodeNotFound",
        "message": "Node edge9 (spec.nodeName) does not exist: join it or correct this",
        "observedGeneration": 3,
    }
    dataset["status"] = {"conditions": [found]}
    return world


def test_a_trainer_does_not_follow_its_dataset_to_a_node_that_does_not_exist() -> None:
    """On that node the pod would be collected and created again, for ever."""
    world = judged(federation().dataset("data1", "edge9"), "data1").settle()
    resolved = world.condition("ResolvedRefs")
    assert (resolved["status"], resolved["reason"]) == ("False", "NodeNotFound")
    assert resolved["message"].startswith("Dataset default/data1 (spec.trainingWorkers[1].dataset")
    assert "Node edge9" in resolved["message"]
    assert pods(world) == []


def test_a_condition_of_an_earlier_dataset_generation_does_not_count() -> None:
    world = judged(federation(), "data1", generation=4).settle()
    assert pods(world) == ALL


@pytest.mark.parametrize("node", ["", "A B"])
def test_a_dataset_that_names_no_node_gives_none(node: str) -> None:
    """A trainer without a node would start anywhere."""
    world = federation().dataset("data1", node).settle()
    resolved = world.condition("ResolvedRefs")
    assert resolved["reason"] == "DatasetInvalid"
    assert "spec.nodeName" in resolved["message"]
    assert pods(world) == []


# ---- keys ---------------------------------------------------------------------------------------

TRANSMITTED = {"transmitter": {"s3": {"aggDataPath": "s3://b/w", "credentialName": "one"}}}


@pytest.mark.parametrize(
    ("fields", "model", "dataset", "fits"),
    [
        (TRANSMITTED, ("s3://b/m", "one"), "/data/a.csv", True),
        (TRANSMITTED, ("/models/m", "other"), "/data/a.csv", True),
        (TRANSMITTED, ("s3://b/m", "other"), "/data/a.csv", False),
        ({"pretrainedModel": {"name": "small"}}, ("s3://b/m", "one"), "s3://b/d.csv", False),
        ({}, ("s3://b/m", "one"), "s3://b/d.csv", True),
    ],
    ids=["one Secret", "on the node", "two to send", "two to fetch", "one to send, one to fetch"],
)
def test_keys_of_two_secrets_for_one_container_are_told(
    fields: Any, model: tuple[str, str], dataset: str, fits: bool
) -> None:
    """The second key would silently replace the first."""
    world = federation(1, **fields).model("small", model[0], credentialName=model[1])
    world.dataset("data0", "edge0", dataset)
    world.other("Dataset", "data0")["spec"]["credentialName"] = "data"
    resolved = world.settle().condition("ResolvedRefs")
    assert resolved["reason"] == ("Resolved" if fits else "CredentialsDiffer")
