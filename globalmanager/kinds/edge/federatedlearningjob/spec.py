"""Reads and checks the spec of a FederatedLearningJob."""

from collections.abc import Iterator
from typing import Final

from edgeai.api.federatedlearningjob import FederatedLearningJobSpec, TrainingWorker, Transmitter
from edgeai.api.resources import Object, ObjectRef
from edgeai.api.specs import InvalidSpec, check_object_name, check_service_name, parse_spec
from edgeai.ids import WorkerName
from globalmanager.contract import Job, Observed
from globalmanager.kinds.edge import references as refs
from globalmanager.kinds.edge.worker_form import check, fixed_node
from globalmanager.kinds.shared import workloads
from globalmanager.kinds.shared.replication import replica_name
from globalmanager.kinds.shared.storage import Source, check_bucket_url

AGGREGATION: Final = "aggregation"
TRAIN: Final = "train"

TRAINING: Final = "Training"
COMPLETE: Final = "Complete"
FAILED: Final = "Failed"


def read(object_: Object) -> FederatedLearningJobSpec:
    """The accepted spec. Raises: InvalidSpec"""
    spec = parse_spec(object_, FederatedLearningJobSpec)
    # The aggregator's Service has this name, and the API server accepts only a DNS label.
    check_service_name(object_["metadata"]["name"], f"-{AGGREGATION}")
    check(spec.aggregation_worker, AGGREGATION_PATH)
    check_object_name(spec.aggregation_worker.model.name, f"{AGGREGATION_PATH}.model.name", "Model")
    if spec.pretrained_model:
        check_object_name(spec.pretrained_model.name, f"{PRETRAINED_PATH}.name", "Model")
    for index, worker in enumerate(spec.training_workers):
        check(worker, training_path(index))
        # A name that no object can have is a mistake; with one that none has yet, the job waits.
        check_object_name(worker.dataset.name, dataset_path(index), "Dataset")
    _check_transmitter(spec.transmitter)
    return spec


def _check_transmitter(transmitter: Transmitter | None) -> None:
    # Sedna's own sample gives ws and s3 together, and means s3. Only neither is a mistake.
    if transmitter is not None and transmitter.ws is None and transmitter.s3 is None:
        remedy = "give one of them, or leave it out for ws"
        raise InvalidSpec("spec.transmitter", "has neither ws nor s3", remedy)
    if transmitter is not None and transmitter.s3 is not None:
        # All workers exchange weights there, so a path of one node is no place for it.
        check_bucket_url(transmitter.s3.agg_data_path, "spec.transmitter.s3.aggDataPath")


AGGREGATION_PATH: Final = "spec.aggregationWorker"
PRETRAINED_PATH: Final = "spec.pretrainedModel"


def training_path(index: int) -> str:
    return f"spec.trainingWorkers[{index}]"


def dataset_path(index: int) -> str:
    return f"{training_path(index)}.dataset.name"


def references(job: Job) -> frozenset[ObjectRef]:
    """What the spec names, and the Workload, which stands alone while the spec is not accepted."""
    spec: FederatedLearningJobSpec | None = job.spec
    workload = workloads.references(job)
    # A wrong spec names nothing for sure. Its workers run on with what they have.
    if spec is None:
        return workload
    pretrained = [spec.pretrained_model] if spec.pretrained_model else []
    keys = _transmitter_secret(spec)
    objects = refs.named(
        job,
        models=[model.name for model in (spec.aggregation_worker.model, *pretrained)],
        datasets=[worker.dataset.name for worker in spec.training_workers],
        forms=[spec.aggregation_worker, *spec.training_workers],
    )
    return (
        workload | objects | ({refs.secret_ref(job.ref.namespace, keys)} if keys else frozenset())
    )


def obstacles(observed: Observed, spec: FederatedLearningJobSpec) -> tuple[refs.Obstacle, ...]:
    """What the job waits for: missing objects and images; if none is, Secrets that clash."""
    missing = tuple(entry for entry in _missing_objects(observed, spec) if entry is not None)
    # The keys of a Model that is missing are not known, so clashes come second.
    return missing or tuple(_clashing_keys(observed, spec))


def _missing_objects(
    observed: Observed, spec: FederatedLearningJobSpec
) -> Iterator[refs.Obstacle | None]:
    aggregation = spec.aggregation_worker
    yield refs.model_obstacle(observed, aggregation.model.name, f"{AGGREGATION_PATH}.model.name")
    if spec.pretrained_model:
        yield refs.model_obstacle(observed, spec.pretrained_model.name, f"{PRETRAINED_PATH}.name")
    for index, worker in enumerate(spec.training_workers):
        yield refs.dataset_obstacle(
            observed, worker.dataset.name, dataset_path(index), node=fixed_node(worker)
        )
    if keys := _transmitter_secret(spec):
        yield refs.secret_obstacle(observed, keys, "spec.transmitter.s3.credentialName")
    yield from refs.worker_obstacles(observed, aggregation, AGGREGATION_PATH)
    for index, worker in enumerate(spec.training_workers):
        yield from refs.worker_obstacles(observed, worker, training_path(index))


def _transmitter_secret(spec: FederatedLearningJobSpec) -> str:
    """Name of the Secret for the bucket of the weights; "" for none."""
    s3 = spec.transmitter.s3 if spec.transmitter else None
    return s3.credential_name if s3 else ""


def _clashing_keys(observed: Observed, spec: FederatedLearningJobSpec) -> Iterator[refs.Obstacle]:
    """Trainers whose container would need the keys of two Secrets."""
    s3 = spec.transmitter.s3 if spec.transmitter else None
    outputs = [refs.model_source(observed, spec.aggregation_worker.model.name, env="")]
    if s3:
        outputs.append(Source(env="", url=s3.agg_data_path, credential=s3.credential_name))
    pretrained = spec.pretrained_model
    start = [refs.model_source(observed, pretrained.name, env="")] if pretrained else []
    for worker in spec.training_workers:
        inputs = [refs.dataset_source(observed, worker.dataset.name, env=""), *start]
        # Outputs are in the worker and inputs in its init container. Each of the two may have one
        # Secret.
        for sources in (outputs, inputs):
            yield from refs.clashing_keys(sources)


def shared_dataset(spec: FederatedLearningJobSpec) -> str:
    """A hint that names two trainers with the same Dataset; "" when each has its own."""
    # This is a hint and no error: such a job trains, but these samples weigh twice in the model.
    first: dict[str, int] = {}
    for index, worker in enumerate(spec.training_workers):
        name = worker.dataset.name
        if first.setdefault(name, index) != index:
            both = f"{training_path(first[name])} and {training_path(index)} both train on"
            remedy = "give each a Dataset of its own, or leave one out"
            return f"{both} Dataset {name}, so its samples count more than once: {remedy}"
    return ""


def worker_name(job: str, index: int | None) -> WorkerName:
    """The name of a trainer, or of the aggregator (None). The worker's pod has this name."""
    # The names are fixed, so a pod that is made again is the same worker for the federation.
    if index is None:
        return WorkerName(f"{job}-{AGGREGATION}")
    return replica_name(job, TRAIN, index)


def result(observed: Observed, spec: FederatedLearningJobSpec) -> ObjectRef:
    """The Model that the job makes."""
    name = spec.aggregation_worker.model.name
    return refs.model_ref(observed, name)


def node_of(observed: Observed, worker: TrainingWorker) -> str:
    """The node that the worker names, or else that of its Dataset; "" without the Dataset."""
    # The data does not travel: a trainer runs where its Dataset is.
    return fixed_node(worker) or refs.dataset_node(observed, worker.dataset.name)
