"""FederatedLearningJob as the API holds it.

.status.conditions has these conditions, always in this order:

Accepted       True: the spec can be carried out. False: InvalidSpec. The plan then leaves running
               workers alone.
ResolvedRefs   True: the Models, Datasets, Nodes and framework images exist, and each Dataset is on
               its worker's node. False: ModelNotFound, DatasetNotFound, DatasetElsewhere, …. The
               plan then leaves running workers alone and creates nothing until the condition is
               True. Unknown while the spec is not accepted.
Training       True: the aggregator and every trainer run or are done. False: Waiting, Starting,
               Suspended, or the reason that a pod's status gives. At the end: False, with reason
               Complete or Failed.
EdgeConnected  True: the LocalControllers of the trainers' nodes have a session. False: NoContact.
               Absent while no trainer has a node.
Suspended      True: spec.suspend is true, and the job has no workers. False: Resumed. Absent for a
               job that was never suspended.
Overridden     True: somebody else sets fields of a child again after each correction, so edgeai
               leaves them. The message names child and fields. Absent otherwise.
Complete       True: every worker has succeeded. Final.
Failed         True: a worker has failed and the plan does not replace the worker. The message names
               the worker and the cause. Final.
"""

import enum
from typing import Annotated, Any, Final

import msgspec

from edgeai.api.definitions import Definition, Suspension, edge_types
from edgeai.api.specs import NonEmpty
from edgeai.api.status import Conditions, Int32, Metric, Time
from edgeai.api.workers import Transport, WorkerForm

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
    """Transport of the weights: ws or s3. When both are given, s3 counts, as in Sedna. ws when the
    field is missing.
    """

    ws: WebSocketTransmitter | None = None
    s3: S3Transmitter | None = None


class FederatedLearningJobSpec(msgspec.Struct, frozen=True, rename="camel"):
    """A model that trainers train together. Their data stays where it is."""

    aggregation_worker: AggregationWorker
    training_workers: Annotated[
        list[TrainingWorker], msgspec.Meta(min_length=1, max_length=MAX_TRAINERS)
    ]
    pretrained_model: Named | None = None
    transmitter: Transmitter | None = None
    transport: Transport = Transport.AUTO
    """How the trainers reach the aggregator: directly, through the relay of their node's
    LocalController, or (auto) directly where the aggregator's Service answers from the node."""
    suspend: bool | None = None
    """True: the workers are deleted until it is false again."""


class Phase(enum.StrEnum):
    """The state of the job in one word, for display. Programs read the conditions."""

    PENDING = "Pending"  # waits for an object that the spec names, or workers are starting
    TRAINING = "Training"  # Running in group sedna.io
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"  # final
    FAILED = "Failed"  # final
    INVALID = "Invalid"  # this generation of the spec is not accepted; Failed in group sedna.io


class MetricHistory(msgspec.Struct, frozen=True):
    """A metric over the rounds of a job. Of a long job it has not every round, and at most 100."""

    key: str
    """What is measured, as in `metrics`."""
    rounds: list[int] = []
    """Numbers of rounds, ascending."""
    values: list[str] = []
    """The value after each of these rounds, as text."""


class FederatedLearningJobStatus(msgspec.Struct, frozen=True, rename="camel"):
    observed_generation: int = 0
    phase: str = ""
    conditions: Conditions = []
    start_time: Time | None = None
    """The time when the GlobalManager first accepted the spec, or when the job was last resumed."""
    result_time: Time | None = None
    """The time when the GlobalManager first saw that the aggregator had succeeded."""
    completion_time: Time | None = None
    """The time when the job ended."""
    edge_nodes: str = ""
    """Names of the trainers' nodes, joined by commas, for display."""
    active: Int32 = 0
    """Number of pods that are neither finished nor being deleted. In a suspended job pods on edge
    nodes count until their nodes confirm their end."""
    succeeded: Int32 = 0
    """Number of workers that are done."""
    failed: Int32 = 0
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
    """Weighted means of the trainers' last reports. During a round they tell of the model with
    which the round began, at the end of the job of the result. A weight is the number of samples
    that the trainer has told, at most the number in `samples`. For a trainer that `samples` lacks,
    the bound is the largest number there, or the lower median of the told numbers."""
    history: list[MetricHistory] = []
    """The metrics after the rounds so far, at most six by name. It stays when the job has ended."""
    samples: dict[str, int] = {}
    """Trainer -> number of samples that a LocalController has counted in the trainer's Dataset. It
    does not change after the end of the job."""
    workers: dict[str, dict[str, Any]] = {}
    """Worker -> last report of each trainer. The edge side writes this field."""


DEFINITION: Final = Definition(
    types=edge_types("federatedlearningjobs", "FederatedLearningJob"),
    short_names={"edgeai.io": ("flj",), "sedna.io": ("fl",)},  # Sedna has the short name `fl`
    spec=FederatedLearningJobSpec,
    status=FederatedLearningJobStatus,
    suspensions=(Suspension(("spec", "suspend")),),
)
