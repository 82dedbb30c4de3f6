"""Reads and checks the spec of a JointInferenceService."""

from typing import Final

from edgeai.api.jointinferenceservice import CloudWorker, EdgeWorker, JointInferenceServiceSpec
from edgeai.api.resources import Object, ObjectRef
from edgeai.api.specs import check_object_name, check_service_name, parse_spec
from globalmanager.contract import Job, Observed
from globalmanager.kinds.edge import references as refs
from globalmanager.kinds.edge.jointinferenceservice import mining
from globalmanager.kinds.edge.worker_form import check

EDGE: Final = "edge"
CLOUD: Final = "cloud"

RUNNING: Final = "Running"


def read(object_: Object) -> JointInferenceServiceSpec:
    """The accepted spec. Raises: InvalidSpec"""
    spec = parse_spec(object_, JointInferenceServiceSpec)
    # The Service of the cloud worker has this name, and a Service needs a DNS label.
    check_service_name(object_["metadata"]["name"], f"-{CLOUD}")
    for role, worker in workers(spec):
        path = worker_path(role)
        check_object_name(worker.model.name, f"{path}.model.name", "Model")
        check(worker, path)
    mining.check(
        worker_path(EDGE),
        hard_example_mining=spec.edge_worker.hard_example_mining,
        hard_example_algorithm=spec.edge_worker.hard_example_algorithm,
    )
    return spec


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
    return refs.named(job, models=[form.model.name for form in forms], forms=forms)


def obstacles(observed: Observed, spec: JointInferenceServiceSpec) -> tuple[refs.Obstacle, ...]:
    """What the service waits for: first models, then nodes and images."""
    entries: list[refs.Obstacle | None] = [
        refs.model_obstacle(observed, worker.model.name, f"{worker_path(role)}.model.name")
        for role, worker in workers(spec)
    ]
    for role, worker in workers(spec):
        entries += refs.worker_obstacles(observed, worker, worker_path(role))
    return tuple(entry for entry in entries if entry is not None)
