"""FederatedLearningJob as the API holds it, and the reader of its spec.

.status.conditions has these conditions, always in this order:

Accepted       True: the spec can be carried out. False: InvalidSpec. The plan then leaves running
               workers alone.
ResolvedRefs   True: the Models, Datasets, Nodes and framework images exist, and each Dataset is on
               its worker's node. False: ModelNotFound, DatasetNotFound, DatasetElsewhere, …. The
               plan then leaves running workers alone and creates nothing until the condition is
               True. Unknown while the spec is not accepted.
Training       True: the aggregator and every trainer run or are done. False: Waiting, Starting, or
               the reason that a pod's status gives. At the end: False, with reason Complete or
               Failed.
EdgeConnected  True: the LocalControllers of the trainers' nodes have a session. False: NoContact.
               Absent while no trainer has a node.
Overridden     True: somebody else sets fields of a child again after each correction, so edgeai
               leaves them. The message names child and fields. Absent otherwise.
Complete       True: every worker has succeeded. Final.
Failed         True: a worker has failed and the plan does not replace the worker. The message names
               the worker and the cause. Final.
"""

import enum
from collections.abc import Iterator
from typing import Annotated, Any, Final

import msgspec

from edgeai.api.resources import Object, ObjectRef
from edgeai.ids import WorkerName
from globalmanager.contract import InvalidSpec, Job, Observed
from globalmanager.rules import references as refs
from globalmanager.rules.replication import replica_name
from globalmanager.rules.specs import (
    NonEmpty,
    check_object_name,
    check_service_name,
    parse_spec,
)
from globalmanager.rules.status import Conditions, Metric, Time
from globalmanager.rules.storage import Source, check_bucket_url, secrets
from globalmanager.rules.transport import Transport
from globalmanager.rules.worker_form import WorkerForm, check, fixed_node

AGGREGATION: Final = "aggregation"
TRAIN: Final = "train"

TRAINING: Final = "Training"
COMPLETE: Final = "Complete"
FAILED: Final = "Failed"

MAX_TRAINERS: Final = 500


class Named(msgspec.Struct, frozen=True):
    """An object of the same namespace and API group."""

    name: NonEmpty
    """Its name."""


class AggregationWorker(WorkerForm, frozen=True, kw_only=True, rename="camel"):
    """Aggregates the trainers' updates; listens on port 7363. `model` receives the result."""

    model: Named


class TrainingWorker(WorkerForm, frozen=True, kw_only=True, rename="camel"):
    """Trains on the node of its Dataset."""

    dataset: Named


class WebSocketTransmitter(msgspec.Struct, frozen=True):
    """Weights go directly between trainers and aggregator."""


class S3Transmitter(msgspec.Struct, frozen=True, rename="camel"):
    """Weights go through a bucket."""

    agg_data_path: NonEmpty
    """Where the weights lie, for example s3://bucket/path."""
    credential_name: str = ""
    """Name of the Secret with the keys of the bucket."""


class Transmitter(msgspec.Struct, frozen=True):
    """Transport of the weights: ws or s3. A job without a transmitter uses ws. When both are given,
    s3 counts, as in Sedna.
    """

    ws: WebSocketTransmitter | None = None
    s3: S3Transmitter | None = None


class FederatedLearningJobSpec(msgspec.Struct, frozen=True, rename="camel"):
    aggregation_worker: AggregationWorker
    training_workers: Annotated[
        list[TrainingWorker], msgspec.Meta(min_length=1, max_length=MAX_TRAINERS)
    ]
    pretrained_model: Named | None = None
    transmitter: Transmitter | None = None
    transport: Transport = Transport.AUTO
    """How the trainers reach the aggregator: directly, through the relay of their node's
    LocalController, or (auto) directly where the aggregator's Service answers from the node."""


class Phase(enum.StrEnum):
    """The state of the job in one word, for display. Programs read the conditions."""

    PENDING = "Pending"  # waits for an object that the spec names, or workers are starting
    TRAINING = "Training"  # Running in group sedna.io
    SUCCEEDED = "Succeeded"  # final
    FAILED = "Failed"  # final
    INVALID = "Invalid"  # this generation of the spec is not accepted; Failed in group sedna.io


class FederatedLearningJobStatus(msgspec.Struct, frozen=True, rename="camel"):
    observed_generation: int = 0
    phase: str = ""
    conditions: Conditions = []
    start_time: Time | None = None
    """The time when the GlobalManager first accepted the spec."""
    result_time: Time | None = None
    """The time when the GlobalManager first saw that the aggregator had succeeded."""
    completion_time: Time | None = None
    """The time when the job ended."""
    edge_nodes: str = ""
    """Names of the trainers' nodes, joined by commas, for display."""
    active: int = 0
    """Number of pods that are neither finished nor being deleted."""
    succeeded: int = 0
    """Number of workers that are done."""
    failed: int = 0
    """Number of pods that failed."""
    finished: list[str] = []
    """Names of the pods of workers that are done. The plan never runs these workers again, also
    when their pods are gone."""
    round: int | None = None
    """The latest round that a trainer has reported. Absent while no trainer has told a round."""
    rounds: int | None = None
    """The number of rounds that a trainer expects. Absent while no trainer has told it: Sedna's
    library never does."""
    metrics: list[Metric] = []
    """Weighted means of the trainers' last reports. A weight is the number of samples that the
    trainer has told, at most the number in `samples`. For a trainer that `samples` lacks, the bound
    is the largest number there, or the lower median of the told numbers."""
    samples: dict[str, int] = {}
    """Trainer -> number of samples that a LocalController has counted in the trainer's Dataset. It
    does not change after the end of the job."""
    workers: dict[str, dict[str, Any]] = {}
    """Worker -> last report of each trainer. The edge side writes this field."""


def read(object_: Object) -> FederatedLearningJobSpec:
    """The accepted spec. Raises: InvalidSpec"""
    spec = parse_spec(object_, FederatedLearningJobSpec)
    check_service_name(object_["metadata"]["name"], f"-{AGGREGATION}")
    check(spec.aggregation_worker, AGGREGATION_PATH)
    check_object_name(spec.aggregation_worker.model.name, f"{AGGREGATION_PATH}.model.name", "Model")
    if spec.pretrained_model:
        check_object_name(spec.pretrained_model.name, f"{PRETRAINED_PATH}.name", "Model")
    for index, worker in enumerate(spec.training_workers):
        check(worker, training_path(index))
        check_object_name(worker.dataset.name, dataset_path(index), "Dataset")
    _check_transmitter(spec.transmitter)
    return spec


def _check_transmitter(transmitter: Transmitter | None) -> None:
    if transmitter is not None and transmitter.ws is None and transmitter.s3 is None:
        remedy = "give one of them, or leave it out for ws"
        raise InvalidSpec("spec.transmitter", "has neither ws nor s3", remedy)
    if transmitter is not None and transmitter.s3 is not None:
        check_bucket_url(transmitter.s3.agg_data_path, "spec.transmitter.s3.aggDataPath")


AGGREGATION_PATH: Final = "spec.aggregationWorker"
PRETRAINED_PATH: Final = "spec.pretrainedModel"


def training_path(index: int) -> str:
    return f"spec.trainingWorkers[{index}]"


def dataset_path(index: int) -> str:
    return f"{training_path(index)}.dataset.name"


def references(job: Job) -> frozenset[ObjectRef]:
    """The Models, Datasets, Nodes and the Secret that the spec names. Empty while the spec is not
    accepted.
    """
    spec: FederatedLearningJobSpec | None = job.spec
    if spec is None:
        return frozenset()
    pretrained = [spec.pretrained_model] if spec.pretrained_model else []
    return refs.named(
        job,
        models=[model.name for model in (spec.aggregation_worker.model, *pretrained)],
        datasets=[worker.dataset.name for worker in spec.training_workers],
        forms=[spec.aggregation_worker, *spec.training_workers],
    ) | {
        refs.secret_ref(job.ref.namespace, name)
        for name in filter(None, [_transmitter_secret(spec)])
    }


def missing(observed: Observed, spec: FederatedLearningJobSpec) -> tuple[refs.Missing, ...]:
    """What the job waits for: missing objects and images. When none is missing: Secrets that
    clash.
    """
    found = tuple(entry for entry in _missing(observed, spec) if entry is not None)
    return found or tuple(_clashing_keys(observed, spec))


def _missing(observed: Observed, spec: FederatedLearningJobSpec) -> Iterator[refs.Missing | None]:
    aggregation = spec.aggregation_worker
    yield refs.missing_model(observed, aggregation.model.name, f"{AGGREGATION_PATH}.model.name")
    if spec.pretrained_model:
        yield refs.missing_model(observed, spec.pretrained_model.name, f"{PRETRAINED_PATH}.name")
    for index, worker in enumerate(spec.training_workers):
        yield refs.missing_dataset(
            observed, worker.dataset.name, dataset_path(index), node=fixed_node(worker)
        )
    if keys := _transmitter_secret(spec):
        yield refs.missing_secret(observed, keys, "spec.transmitter.s3.credentialName")
    yield from refs.missing_for_worker(observed, aggregation, AGGREGATION_PATH)
    for index, worker in enumerate(spec.training_workers):
        yield from refs.missing_for_worker(observed, worker, training_path(index))


def _transmitter_secret(spec: FederatedLearningJobSpec) -> str:
    """Name of the Secret for the bucket of the weights; "" for none."""
    s3 = spec.transmitter.s3 if spec.transmitter else None
    return s3.credential_name if s3 else ""


def _clashing_keys(observed: Observed, spec: FederatedLearningJobSpec) -> Iterator[refs.Missing]:
    """Trainers whose container would need the keys of two Secrets. A container can use one Secret
    only.
    """
    s3 = spec.transmitter.s3 if spec.transmitter else None
    transmitted = (
        [Source(env="", url=s3.agg_data_path, credential=s3.credential_name)] if s3 else []
    )
    sent = [*transmitted, refs.model_source(observed, spec.aggregation_worker.model.name, env="")]
    pretrained = spec.pretrained_model
    start = [refs.model_source(observed, pretrained.name, env="")] if pretrained else []
    for worker in spec.training_workers:
        fetched = [refs.dataset_source(observed, worker.dataset.name, env=""), *start]
        for names in (secrets(sent), secrets(fetched)):
            if len(names) > 1:
                text = f"one worker would need the keys of the Secrets {' and '.join(names)}"
                yield refs.Missing("CredentialsDiffer", f"{text}: put them into one Secret")


def shared_dataset(spec: FederatedLearningJobSpec) -> str:
    """A hint that names two trainers with the same Dataset. "" when each has a Dataset of its own.

    Two trainers with different Datasets may share a node.
    """
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
    if index is None:
        return WorkerName(f"{job}-{AGGREGATION}")
    return replica_name(job, TRAIN, index)


def result(observed: Observed, spec: FederatedLearningJobSpec) -> ObjectRef:
    """The Model that the job makes."""
    name = spec.aggregation_worker.model.name
    return refs.model_ref(observed.type, observed.ref.namespace, name)


def node_of(observed: Observed, worker: TrainingWorker) -> str:
    """The node that the worker names, or else the node of the worker's Dataset. "" while the
    Dataset does not exist.
    """
    return fixed_node(worker) or refs.dataset_node(observed, worker.dataset.name)
