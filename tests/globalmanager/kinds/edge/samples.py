"""Manifests as users of the joint inference proposal and of Sedna write them."""

import base64
from typing import Any

from edgeai.api.resources import SECRETS, ResourceType
from globalmanager.kinds.edge.federatedlearningjob import KIND as FEDERATED
from globalmanager.kinds.edge.incrementallearningjob import KIND as INCREMENTAL
from globalmanager.kinds.edge.jointinferenceservice import KIND
from tests.golden.cases import manifest
from tests.support.world import World, from_yaml, job

EDGEAI, SEDNA = KIND.definition.types

PROPOSAL = manifest("ji-proposal")
SEDNA_STYLE = manifest("ji-sedna-autoscaled").replace("birds}", "default}")


def proposal_service() -> World:
    """The proposal's sample, with all that it refers to."""
    world = World(KIND, from_yaml(PROPOSAL), EDGEAI)
    world.model("small-model", "/models/small.pb").model("big-model", "/models/big.pb")
    return world.nodes("edge0", "solar-corona-cloud")


def sedna_service() -> World:
    """A Sedna manifest: one model on the node, one in a bucket."""
    world = World(KIND, from_yaml(SEDNA_STYLE), SEDNA)
    world.model("bird-small", "/models/bird/small.pb")
    world.model("bird-big", "s3://birds/big.pb", credentialName="s3-key").secret("s3-key")
    return world.nodes("edge0")


def worker_spec(model: str, **fields: Any) -> dict[str, Any]:
    container = {"name": "main", "image": f"registry.test/{model}:1"}
    template = {"spec": {"containers": [container]}}
    return {"model": {"name": model}, "template": template, **fields}


def joint_inference_spec(*, edge: Any = None, cloud: Any = None) -> dict[str, Any]:
    """Two workers, the edge one on edge0, with these fields changed."""
    return {
        "edgeWorker": {**worker_spec("small", nodeName="edge0"), **(edge or {})},
        "cloudWorker": {**worker_spec("big"), **(cloud or {})},
    }


def mining_spec(name: str, **parameters: str) -> dict[str, Any]:
    """A spec whose edge worker uses this algorithm of hard-example mining."""
    pairs = [{"key": key, "value": value} for key, value in parameters.items()]
    return joint_inference_spec(edge={"hardExampleMining": {"name": name, "parameters": pairs}})


def small_service(
    given: Any = None, *, type_: ResourceType = EDGEAI, name: str = "digits"
) -> World:
    """A small service `digits` with all that it refers to."""
    world = World(KIND, job(name, joint_inference_spec() if given is None else given), type_)
    return world.model("small").model("big").nodes("edge0", "edge1")


def value_of(variable: dict[str, Any]) -> str:
    """The value of an environment variable, the path of its field, or "<key> of Secret <name>"."""
    if "value" in variable:
        return str(variable["value"])
    source = variable["valueFrom"]
    if "fieldRef" in source:
        return str(source["fieldRef"]["fieldPath"])
    reference = source["secretKeyRef"]
    return f"{reference['key']} of Secret {reference['name']}"


def secrets_of(world: World) -> dict[str, str]:
    """ "<key> of Secret <name>" -> text in the Secrets that the job made."""
    return {
        f"{key} of Secret {ref.name}": base64.b64decode(value).decode()
        for ref, child in world.children.items()
        if ref.type == SECRETS
        for key, value in child["data"].items()
    }


# ---- federated learning -------------------------------------------------------------------------

SEDNA_FEDERATED = manifest("fl-sedna")


def federated_learning_spec(trainers: int = 2, **fields: Any) -> dict[str, Any]:
    """Spec of a job whose trainer N is on the node of Dataset dataN."""
    container = {"name": "main", "image": "registry.test/worker:1"}
    template = {"spec": {"containers": [container]}}
    return {
        "aggregationWorker": {"model": {"name": "small"}, "template": template},
        "trainingWorkers": [
            {"dataset": {"name": f"data{n}"}, "template": template} for n in range(trainers)
        ],
        **fields,
    }


def federated_job(trainers: int = 2, **fields: Any) -> World:
    """A job, with all that it refers to."""
    world = World(FEDERATED, job("digits", federated_learning_spec(trainers, **fields))).model(
        "small"
    )
    for number in range(trainers):
        world.dataset(f"data{number}", f"edge{number}").nodes(f"edge{number}")
    return world


def counted(world: World, **datasets: int) -> World:
    """Their LocalControllers have counted the samples of these Datasets."""
    for name, number in datasets.items():
        dataset = world.other("Dataset", name)
        generation = dataset["metadata"].get("generation")
        condition = {"type": "Counted", "status": "True", "observedGeneration": generation}
        dataset["status"] = {"numberOfSamples": number, "conditions": [condition]}
    return world


def sedna_federated_job() -> World:
    world = World(FEDERATED, from_yaml(SEDNA_FEDERATED), FEDERATED.definition.resources[1])
    world.model("surface-defect-detection-model", "/model/latest.h5").nodes(
        "cloud0", "edge1", "edge2"
    )
    for node in ("edge1", "edge2"):
        world.dataset(f"{node}-surface-defect-detection-dataset", node, "/data/1.txt")
    return world


# ---- incremental learning -----------------------------------------------------------------------


def incremental_learning_spec(**fields: Any) -> dict[str, Any]:
    """Spec of a job that begins a round with more than 4 new samples to train on."""
    container = {"name": "main", "image": "registry.test/worker:1"}
    template = {"spec": {"nodeName": "edge0", "containers": [container]}}
    train = {"operator": ">", "threshold": 4, "metric": "num_of_samples"}
    deploy = {"operator": ">", "threshold": 0.1, "metric": "precision_delta"}
    return {
        "initialModel": {"name": "initial"},
        "dataset": {"name": "data", "trainProb": 0.8},
        "trainSpec": {"template": template, "trigger": {"condition": train}},
        "evalSpec": {"template": template},
        "deploySpec": {
            "model": {"name": "deployed"},
            "template": template,
            "trigger": {"condition": deploy},
            "hardExampleMining": {"name": "IBT"},
        },
        "outputDir": "/output",
        **fields,
    }


def incremental_job(*, sedna: bool = False, **fields: Any) -> World:
    """A job, with all that it refers to, and 10 samples."""
    spec = incremental_learning_spec(**fields)
    world = World(INCREMENTAL, job("helmet", spec), INCREMENTAL.definition.resources[int(sedna)])
    world.model("initial", "/models/base").model("deployed", "/models/deployed/m.pb", format="pb")
    return counted(world.dataset("data", "edge0", "/data/train.txt").nodes("edge0"), data=10)
