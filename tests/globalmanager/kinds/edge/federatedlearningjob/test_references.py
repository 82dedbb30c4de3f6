"""FederatedLearningJob: the Models, Datasets, Nodes and Secrets that a job refers to."""

from typing import Any

import pytest

from tests.globalmanager.kinds.edge.federatedlearningjob.test_plan import (
    POD_NAMES,
    env,
    pod_names,
    pod_spec,
)
from tests.globalmanager.kinds.edge.samples import federated_job, federated_learning_spec
from tests.support.world import World

# ---- the pretrained model -----------------------------------------------------------------------


def job_with_pretrained_model() -> World:
    return federated_job(pretrainedModel={"name": "start"}).model("start", "/models/start.npz")


def test_all_workers_get_the_pretrained_model() -> None:
    world = job_with_pretrained_model().settle()
    given = {env(world, name)["PRETRAINED_MODEL_URL"] for name in POD_NAMES}
    assert given == {"/home/data/models/start.npz"}


def test_a_job_waits_for_its_pretrained_model() -> None:
    world = job_with_pretrained_model().without("Model", "start").settle()
    resolved = world.condition("ResolvedRefs")
    assert resolved["reason"] == "ModelNotFound"
    assert "Model default/start (spec.pretrainedModel.name)" in resolved["message"]
    assert pod_names(world) == []


def test_the_result_goes_to_the_url_of_the_model() -> None:
    """The directory of the model is created; a model in a bucket is not fetched first."""
    world = federated_job().model("small", "/out/m.npz").settle()
    volumes = pod_spec(world, "digits-train-0")["volumes"]
    types = {each["hostPath"]["path"]: each["hostPath"]["type"] for each in volumes}
    assert types == {"/out": "DirectoryOrCreate", "/data": "Directory"}
    world = federated_job().model("small", "s3://b/m.npz").settle()
    assert "initContainers" not in pod_spec(world, "digits-train-0")
    assert env(world, "digits-train-0")["MODEL_URL"] == "s3://b/m.npz"


# ---- nodes --------------------------------------------------------------------------------------


def test_a_job_waits_for_the_node_of_its_aggregator() -> None:
    aggregation = {**federated_learning_spec()["aggregationWorker"], "nodeName": "cloud7"}
    world = federated_job(aggregationWorker=aggregation).settle()
    assert world.condition("ResolvedRefs")["reason"] == "NodeNotFound"
    assert pod_names(world) == []


def with_missing_node(world: World, name: str, *, generation: int = 3) -> World:
    """The Dataset with a condition of generation 3: the node of the Dataset does not exist."""
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
    """Kubernetes would delete the pod on the missing node, and the plan would create it again."""
    world = with_missing_node(federated_job().dataset("data1", "edge9"), "data1").settle()
    resolved = world.condition("ResolvedRefs")
    assert (resolved["status"], resolved["reason"]) == ("False", "NodeNotFound")
    assert resolved["message"].startswith("Dataset default/data1 (spec.trainingWorkers[1].dataset")
    assert "Node edge9" in resolved["message"]
    assert pod_names(world) == []


def test_a_condition_of_an_earlier_dataset_generation_does_not_count() -> None:
    world = with_missing_node(federated_job(), "data1", generation=4).settle()
    assert pod_names(world) == POD_NAMES


@pytest.mark.parametrize("node", ["", "A B"])
def test_a_trainer_waits_while_its_dataset_names_no_valid_node(node: str) -> None:
    """A trainer without a node would start anywhere."""
    world = federated_job().dataset("data1", node).settle()
    resolved = world.condition("ResolvedRefs")
    assert resolved["reason"] == "DatasetInvalid"
    assert "spec.nodeName" in resolved["message"]
    assert pod_names(world) == []


# ---- keys ---------------------------------------------------------------------------------------

THROUGH_A_BUCKET = {"transmitter": {"s3": {"aggDataPath": "s3://b/w", "credentialName": "one"}}}


@pytest.mark.parametrize(
    ("fields", "model", "dataset", "fits"),
    [
        (THROUGH_A_BUCKET, ("s3://b/m", "one"), "/data/a.csv", True),
        (THROUGH_A_BUCKET, ("/models/m", "other"), "/data/a.csv", True),
        (THROUGH_A_BUCKET, ("s3://b/m", "other"), "/data/a.csv", False),
        ({"pretrainedModel": {"name": "small"}}, ("s3://b/m", "one"), "s3://b/d.csv", False),
        ({}, ("s3://b/m", "one"), "s3://b/d.csv", True),
    ],
    ids=["one Secret", "on the node", "two to send", "two to fetch", "one to send, one to fetch"],
)
def test_the_keys_of_two_secrets_for_one_container_are_reported(
    fields: Any, model: tuple[str, str], dataset: str, fits: bool
) -> None:
    """The second key would silently replace the first."""
    world = federated_job(1, **fields).model("small", model[0], credentialName=model[1])
    world.dataset("data0", "edge0", dataset)
    world.other("Dataset", "data0")["spec"]["credentialName"] = "data"
    world.secret("one").secret("other").secret("data")
    resolved = world.settle().condition("ResolvedRefs")
    assert resolved["reason"] == ("Resolved" if fits else "CredentialsDiffer")
