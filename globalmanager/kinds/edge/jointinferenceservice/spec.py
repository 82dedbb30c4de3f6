"""Reads and checks the spec of a JointInferenceService."""

from collections.abc import Mapping
from typing import Final

from edgeai.api.jointinferenceservice import CloudWorker, EdgeWorker, JointInferenceServiceSpec
from edgeai.api.resources import Object, ObjectRef
from edgeai.api.schemas import Validation
from edgeai.api.specs import InvalidSpec, check_object_name, check_service_name, parse_spec
from edgeai.ids import WorkerName
from globalmanager.contract import Job, Observed
from globalmanager.kinds.edge import mining
from globalmanager.kinds.edge import references as refs
from globalmanager.kinds.edge.worker_form import check, fixed_node

EDGE: Final = "edge"
CLOUD: Final = "cloud"
FLEET: Final = "node"
"""In the name of a fleet's worker. A worker on a node that Kubernetes chose has another name, so
that a slice and .status never count the same worker twice."""

RUNNING: Final = "Running"

_EDGE_WORKER: Final = "spec.edgeWorker"
_PER_NODE: Final = "has(self.perNode) && self.perNode"
VALIDATIONS: Final = (
    Validation(
        _EDGE_WORKER,
        "!(has(self.nodeName) && self.nodeName != '' && has(self.nodeSelector))",
        "nodeName names one node and nodeSelector many: remove one of them",
    ),
    Validation(
        _EDGE_WORKER,
        f"({_PER_NODE}) == (has(self.nodeSelector) && size(self.nodeSelector) > 0)",
        "perNode and nodeSelector need each other: set both or none",
    ),
    Validation(
        _EDGE_WORKER,
        f"!({_PER_NODE} && has(self.hpa))",
        "hpa cannot set the number of workers beside perNode: remove one of them",
    ),
    Validation(
        "spec",
        "!has(self.rollout) || (has(self.edgeWorker.perNode) && self.edgeWorker.perNode && "
        "((has(self.edgeWorker.model.hotUpdate) && self.edgeWorker.model.hotUpdate) || "
        "(has(self.edgeWorker.model.hotUpdateEnabled) && "
        "self.edgeWorker.model.hotUpdateEnabled)))",
        "rollout needs edgeWorker.perNode and edgeWorker.model.hotUpdate",
    ),
)
"""What the API server refuses. `read` refuses it, too."""


def read(object_: Object) -> JointInferenceServiceSpec:
    """The accepted spec. Raises: InvalidSpec"""
    spec = parse_spec(object_, JointInferenceServiceSpec)
    # The Service of the cloud worker has this name, and a Service needs a DNS label.
    check_service_name(object_["metadata"]["name"], f"-{CLOUD}")
    for role, worker in workers(spec):
        path = worker_path(role)
        check_object_name(worker.model.name, f"{path}.model.name", "Model")
        check(worker, path)
    _check_fleet(spec.edge_worker, worker_path(EDGE))
    _check_hard_examples(spec.cloud_worker, worker_path(CLOUD))
    _check_rollout(spec)
    _check_mining(spec.edge_worker, worker_path(EDGE))
    return spec


def _check_fleet(worker: EdgeWorker, path: str) -> None:
    if worker.per_node and not worker.node_selector:
        remedy = "give the labels of the nodes"
        raise InvalidSpec(f"{path}.nodeSelector", "is missing beside perNode", remedy)
    if worker.node_selector and not worker.per_node:
        remedy = "set perNode, or use template.spec.nodeSelector for a worker on one of the nodes"
        raise InvalidSpec(f"{path}.nodeSelector", "has no effect without perNode", remedy)
    if worker.per_node and fixed_node(worker):
        field = "nodeName" if worker.node_name else "template.spec.nodeName"
        problem = "names one node beside perNode and nodeSelector, which name many"
        raise InvalidSpec(f"{path}.{field}", problem, "remove one of them")
    if worker.per_node and worker.hpa:
        problem = "cannot set the number of workers beside perNode"
        raise InvalidSpec(f"{path}.hpa", problem, "remove it")


def _check_hard_examples(worker: CloudWorker, path: str) -> None:
    if worker.hard_examples is None:
        return
    check_object_name(worker.hard_examples.dataset, f"{path}.hardExamples.dataset", "Dataset")
    if not fixed_node(worker):
        problem = "is missing beside hardExamples, which are a file of a node"
        raise InvalidSpec(f"{path}.nodeName", problem, "name the node of the Dataset")


def _check_mining(worker: EdgeWorker, path: str) -> None:
    # Two versions of Sedna's API name the field differently.
    if worker.hard_example_mining and worker.hard_example_algorithm:
        problem = "is given beside hardExampleMining, which means the same"
        raise InvalidSpec(f"{path}.hardExampleAlgorithm", problem, "remove one of them")
    mining.check(worker.hard_example_mining, f"{path}.hardExampleMining")
    mining.check(worker.hard_example_algorithm, f"{path}.hardExampleAlgorithm")


def _check_rollout(spec: JointInferenceServiceSpec) -> None:
    worker = spec.edge_worker
    if spec.rollout and not (worker.per_node and worker.model.is_hot):
        remedy = "set edgeWorker.perNode and edgeWorker.model.hotUpdate, or remove it"
        raise InvalidSpec("spec.rollout", "is for a fleet that loads its Model hot", remedy)


def is_of_fleet(job: ObjectRef, worker: WorkerName) -> bool:
    # By the name, because an edit of the spec must not move the counts of a worker.
    return worker.startswith(f"{job.name}-{FLEET}-")


def node_selector(job: Job) -> Mapping[str, str]:
    """The labels of the nodes of a fleet; empty for a service that is none."""
    spec: JointInferenceServiceSpec | None = job.spec
    return spec.edge_worker.node_selector if spec and spec.edge_worker.per_node else {}


def workers(spec: JointInferenceServiceSpec) -> tuple[tuple[str, EdgeWorker | CloudWorker], ...]:
    return (EDGE, spec.edge_worker), (CLOUD, spec.cloud_worker)


def worker_path(role: str) -> str:
    return f"spec.{role}Worker"


def references(job: Job) -> frozenset[ObjectRef]:
    """The Models and Nodes that both workers name. Empty while the spec is not accepted."""
    spec: JointInferenceServiceSpec | None = job.spec
    # A wrong spec names nothing for sure. Its workers run on with what they have.
    if spec is None:
        return frozenset()
    forms = (spec.edge_worker, spec.cloud_worker)
    examples = spec.cloud_worker.hard_examples
    datasets = [examples.dataset] if examples else []
    models = [form.model.name for form in forms]
    return refs.named(job, models=models, datasets=datasets, forms=forms)


def obstacles(observed: Observed, spec: JointInferenceServiceSpec) -> tuple[refs.Obstacle, ...]:
    """What the service waits for: first models, then nodes and images."""
    entries: list[refs.Obstacle | None] = [
        refs.model_obstacle(observed, worker.model.name, f"{worker_path(role)}.model.name")
        for role, worker in workers(spec)
    ]
    if spec.edge_worker.model.is_hot:
        name, path = spec.edge_worker.model.name, f"{worker_path(EDGE)}.model.hotUpdate"
        entries.append(refs.content_obstacle(observed, name, path))
    if examples := spec.cloud_worker.hard_examples:
        name, path = examples.dataset, f"{worker_path(CLOUD)}.hardExamples.dataset"
        entries.append(refs.file_obstacle(observed, name, path, node=fixed_node(spec.cloud_worker)))
    for role, worker in workers(spec):
        entries += refs.worker_obstacles(observed, worker, worker_path(role))
    return tuple(entry for entry in entries if entry is not None)
