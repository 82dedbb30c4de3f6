"""Manifests as users of the joint inference proposal and of Sedna write them."""

import base64
from typing import Any

from edgeai.api.resources import SECRETS, ResourceType
from globalmanager.kinds.edge.federatedlearningjob import KIND as FEDERATED
from globalmanager.kinds.edge.jointinferenceservice import KIND
from tests.support.world import World, from_yaml, job

EDGEAI, SEDNA = KIND.definition.types

PROPOSAL = """
apiVersion: edgeai.io/v1alpha1
kind: JointInferenceService
metadata:
  name: helmet-detection-demo
  namespace: default
spec:
  edgeWorker:
    name: "edgeworker"
    model:
      name: "small-model"
    nodeName: "edge0"
    hardExampleAlgorithm:
      name: "IBT"
    workerSpec:
      scriptDir: "/code"
      scriptBootFile: "edge_inference.py"
      frameworkType: "tensorflow"
      frameworkVersion: "1.18"
      parameters:
        - key: "nms_threshold"
          value: "0.6"
  cloudWorker:
    name: "work"
    model:
      name: "big-model"
    nodeName: "solar-corona-cloud"
    workerSpec:
      scriptDir: "/code"
      scriptBootFile: "cloud_inference.py"
      frameworkType: "tensorflow"
      frameworkVersion: "1.18"
      parameters:
        - key: "nms_threshold"
          value: "0.6"
"""

SEDNA_STYLE = """
apiVersion: sedna.io/v1alpha1
kind: JointInferenceService
metadata:
  name: bird-watch
  namespace: default
spec:
  edgeWorker:
    model:
      name: bird-small
    hardExampleMining:
      name: IBT
      parameters:
        - key: threshold_img
          value: "0.9"
        - key: threshold_box
          value: "0.9"
    template:
      spec:
        nodeName: edge0
        hostNetwork: true
        tolerations:
          - operator: Exists
        containers:
          - name: small
            image: registry.test/bird-small:v1
            imagePullPolicy: IfNotPresent
            env:
              - name: video_url
                value: rtsp://camera.test/video
            volumeMounts:
              - name: output
                mountPath: /output
        volumes:
          - name: output
            hostPath:
              path: /var/birds
  cloudWorker:
    model:
      name: bird-big
    hpa:
      minReplicas: 1
      maxReplicas: 4
      metrics:
        - type: Resource
          resource:
            name: cpu
            target:
              type: Utilization
              averageUtilization: 50
    template:
      spec:
        nodeSelector:
          zone: cloud
        containers:
          - name: big
            image: registry.test/bird-big:v1
"""


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

SEDNA_FEDERATED = """
apiVersion: sedna.io/v1alpha1
kind: FederatedLearningJob
metadata:
  name: surface-defect-detection
  namespace: default
spec:
  aggregationWorker:
    model:
      name: "surface-defect-detection-model"
    template:
      spec:
        nodeName: cloud0
        containers:
          - image: registry.test/aggregate:1
            name: agg-worker
            imagePullPolicy: IfNotPresent
            env:
              - name: "exit_round"
                value: "3"
  trainingWorkers:
    - dataset:
        name: "edge1-surface-defect-detection-dataset"
      template:
        spec:
          nodeName: edge1
          containers:
            - image: registry.test/train:1
              name: train-worker
              env:
                - name: "batch_size"
                  value: "32"
    - dataset:
        name: "edge2-surface-defect-detection-dataset"
      template:
        spec:
          nodeName: edge2
          containers:
            - image: registry.test/train:1
              name: train-worker
"""


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
        world.other("Dataset", name)["status"] = {"numberOfSamples": number}
    return world


def sedna_federated_job() -> World:
    world = World(FEDERATED, from_yaml(SEDNA_FEDERATED), FEDERATED.definition.resources[1])
    world.model("surface-defect-detection-model", "/model/latest.h5").nodes(
        "cloud0", "edge1", "edge2"
    )
    for node in ("edge1", "edge2"):
        world.dataset(f"{node}-surface-defect-detection-dataset", node, "/data/1.txt")
    return world
