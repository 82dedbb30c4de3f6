"""IncrementalLearningJob as the API holds it.

.status.conditions has these conditions, in this order:

Accepted       True: the spec can be carried out. False: InvalidSpec. The plan then leaves running
               workers alone and begins no round.
ResolvedRefs   True: the Dataset, the Models, their Secrets, the Nodes and the framework images
               exist, train and eval workers can run on the Dataset's node, and workers may have
               the models of the rounds. The plan creates nothing until the condition is True.
               Unknown while the spec is not accepted.
Learning       True: Watching (the job waits for new samples), Training, Evaluating, Deploying.
               False: Waiting, Starting, Suspended, the reason that a pod's status gives,
               NotCounted (the Dataset has no count), or why the last round ended without a
               deployment: TrainFailed, EvalFailed, DeployFailed, MetricMissing. The next round
               begins all the same. Never final.
Suspended      True: spec.suspend is true. False: Resumed. Absent for a job never suspended.
EdgeConnected  True: the LocalControllers of the workers' nodes have a session. False: NoContact.
Overridden     True: somebody else sets fields of a child again after each correction, so edgeai
               leaves them. The message names child and fields. Absent otherwise.
Stalled        True: a worker has a fault that somebody must repair. Absent otherwise.

In group sedna.io there are the conditions of Sedna, too, at the end: Completed or Failed of the
last stage that ended, with its models and metrics in `data`, and last the present one: Waiting,
Ready, Starting or Running. Their field `stage` is Train, Eval or Deploy.
"""

import enum
from typing import Annotated, Any, Final

import msgspec

from edgeai.api.definitions import Definition, Suspension, edge_types
from edgeai.api.jointinferenceservice import HotModel, Mining, ModelName
from edgeai.api.resources import DEPLOYMENTS
from edgeai.api.specs import NonEmpty
from edgeai.api.status import LIST_BY_TYPE, Condition, Int32, Metric, Time
from edgeai.api.workers import WorkerForm

MAX_OUTPUT_CHARS: Final = 120
"""Of outputDir: reports tell the path of a model in 256 characters."""
OPERATORS: Final = ("!=", "<", "<=", "=", "==", ">", ">=", "eq", "ge", "gt", "le", "lt", "ne")


class TrainingData(msgspec.Struct, frozen=True, rename="camel"):
    """The Dataset whose new samples begin a round."""

    name: NonEmpty
    """A Dataset of the same namespace and API group."""
    train_prob: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.8
    """Share of the new samples to train on, more than 0. The others are for the evaluation."""


class Timer(msgspec.Struct, frozen=True):
    """The time of day in which a round may begin, or its model be deployed, in UTC."""

    start: NonEmpty
    """As HH:MM."""
    end: NonEmpty
    """As HH:MM. Earlier than start: on the next day."""


class TriggerCondition(msgspec.Struct, frozen=True):
    """A comparison: metric, operator, threshold."""

    operator: Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(OPERATORS)})]
    """For example ">" or gt."""
    threshold: float
    """The number to compare with."""
    metric: NonEmpty
    """For training num_of_samples, the number of new samples to train on, or
    num_of_hard_examples, which the inference worker has found since the last round. For the
    deployment a metric of the evaluation: its value for the new model, or with the ending _delta
    its difference from the deployed model. precisions[3] is an item of a list."""


class Trigger(msgspec.Struct, frozen=True, rename="camel"):
    """When a round begins, or a model is deployed."""

    condition: TriggerCondition | None = None
    """Without it, any new sample begins a round, and each evaluated model is deployed."""
    timer: Timer | None = None
    """When a round may begin, or a model be deployed. Any time of day when the field is missing."""
    check_period_seconds: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Without effect, as in Sedna: the trigger is looked at when the Dataset has been counted."""


class TrainSpec(WorkerForm, frozen=True, kw_only=True, rename="camel"):
    """The worker that trains on new samples, on the node of the Dataset."""

    trigger: Trigger = Trigger()


class EvalSpec(WorkerForm, frozen=True, kw_only=True, rename="camel"):
    """The worker that evaluates the new model and the deployed one, on the node of the Dataset."""

    initial_eval_model: ModelName | None = None
    """The Model to compare with until the first deployment. That of deploySpec when the field is
    missing."""


class DeploySpec(WorkerForm, frozen=True, kw_only=True, rename="camel"):
    """The worker that answers samples. It runs from the start, on the Dataset's node if it names
    no other.
    """

    model: HotModel
    """The Model that the worker has until the first deployment."""
    publish: ModelName | None = None
    """A Model whose URL becomes that of each deployed model. The services that use it give it out,
    in the waves and under the guard of their rollouts. It needs an s3 URL in outputDir."""
    trigger: Trigger = Trigger()
    hard_example_mining: Mining | None = None
    """The algorithm that decides which samples are hard."""


class IncrementalLearningJobSpec(msgspec.Struct, frozen=True, rename="camel"):
    """A model that is trained again and again with new samples of a Dataset."""

    initial_model: ModelName
    """The Model from which the first round trains."""
    dataset: TrainingData
    train_spec: TrainSpec
    eval_spec: EvalSpec
    deploy_spec: DeploySpec
    output_dir: Annotated[NonEmpty, msgspec.Meta(max_length=MAX_OUTPUT_CHARS)]
    """Directory of the node, or s3 URL, below which each round has a directory for its model."""
    credential_name: str = ""
    """Name of the Secret with the keys of an s3 URL in outputDir."""
    suspend: bool | None = None
    """True: no round begins or goes on, and the pods of train and eval are deleted, until it is
    false again. The inference worker goes on."""


class Stage(enum.StrEnum):
    """What a round is doing."""

    TRAIN = "Train"
    EVAL = "Eval"
    DEPLOY = "Deploy"


class Phase(enum.StrEnum):
    """The state of the job in one word, for display. Programs read the conditions. No phase is
    final.
    """

    PENDING = "Pending"  # waits for an object that the spec names
    WATCHING = "Watching"  # waits for new samples
    TRAINING = "Training"
    EVALUATING = "Evaluating"
    DEPLOYING = "Deploying"
    SUSPENDED = "Suspended"
    INVALID = "Invalid"  # this generation of the spec is not accepted; Failed in group sedna.io


class StageCondition(Condition, frozen=True, kw_only=True, rename="camel"):
    """A condition, with the fields that Sedna adds."""

    stage: str = ""
    """Train, Eval or Deploy, of a condition of Sedna."""
    last_heartbeat_time: Time | None = None
    """As `lastTransitionTime`, of a condition of Sedna."""
    data: str = ""
    """JSON with the models of the stage, and their metrics once they are evaluated."""


MAX_NUMBER: Final = 2**53
Number = Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)]
# The pause before an attempt doubles with each, so it is bounded here.
Attempt = Annotated[int, msgspec.Meta(ge=0, le=15)]


class Samples(msgspec.Struct, frozen=True):
    """The samples from number `start`, and before number `end`. The first sample has number 0."""

    start: Number
    """The first sample."""
    end: Number
    """The first sample after them."""


class TrainedModel(msgspec.Struct, frozen=True):
    """A model that a train worker has saved."""

    url: str
    """Path on the node, or s3 URL."""
    format: str = ""
    """As the worker tells it: the ending of the file."""


class Deployed(msgspec.Struct, frozen=True):
    """The model that the inference worker has."""

    round: Number
    """The round that has trained it."""
    model: str
    """The Model of deploySpec in place of which it was deployed."""
    url: str
    """Path on the node, or s3 URL."""
    time: Time
    """When that was decided."""
    models: list[TrainedModel] = []
    """The models of the round, in one or several formats."""


class Published(msgspec.Struct, frozen=True):
    """The model that a Model got last. Each deployed model is published once."""

    round: Number
    """The round that has trained it."""
    model: str
    """The Model of deploySpec.publish."""
    url: str
    """The URL that it got."""


class Round(msgspec.Struct, frozen=True, rename="camel"):
    """The round in progress. What it works on does not change until it ends."""

    number: Number
    """Its number; the first round has 1."""
    stage: Stage
    """What it is doing."""
    since: Time
    """When the stage, or its present attempt, began."""
    url: str
    """The data of the Dataset."""
    node: str
    """The node of the Dataset."""
    directory: str
    """Where the present attempt of the training, or the one that ended well, saves its model."""
    attempt: Attempt = 0
    """Number of attempts of the stage before the present one."""
    last_report: Number | msgspec.UnsetType = msgspec.UNSET
    """Of a deployment: number of the inference worker's last report before."""
    succeeded: str = ""
    """When the pod of the attempt was seen to have succeeded. Its report is waited for."""
    format: str = ""
    """The format of the Dataset."""
    train: list[Samples] = []
    """What it trains on."""
    valid: list[Samples] = []
    """What it evaluates on: of the latest rounds, too."""
    end: Number = 0
    """Number of samples in the Dataset when the round began."""
    base: str = ""
    """The model that it trains on."""
    models: list[TrainedModel] = []
    """The models that it has trained, in one or several formats."""


class Progress(msgspec.Struct, frozen=True, rename="camel"):
    """What the rounds before have done."""

    url: str = ""
    """The data of the Dataset. Other data begin anew."""
    trained: Number = 0
    """Number of samples that have been trained on, or evaluated on."""
    triggered: Number = 0
    """Number of samples when the last round began. Only later samples begin the next one."""
    hard: Number = 0
    """Number of hard examples when the last round began."""
    valid: list[Samples] = []
    """The samples of the latest rounds that are for evaluation."""
    initial: str = ""
    """The URL of the initial Model from which the models come. Another one begins anew."""
    models: list[TrainedModel] = []
    """The models of the last round that was evaluated. The next one trains on."""
    node: str = ""
    """The node of the Dataset. Models that are files of another one are left behind."""


class Outcome(msgspec.Struct, frozen=True):
    """How the last round ended."""

    round: Number
    """Its number."""
    stage: Stage
    """The last stage that it reached."""
    reason: str
    """Deployed, NotDeployed, RoundOutdated, MetricMissing, TrainFailed, EvalFailed or
    DeployFailed."""
    message: str
    """The reason in words."""
    time: Time
    """When it ended."""


class IncrementalLearningJobStatus(msgspec.Struct, frozen=True, rename="camel"):
    observed_generation: int = 0
    phase: str = ""
    conditions: Annotated[list[StageCondition], LIST_BY_TYPE] = []
    start_time: Time | None = None
    """The time when the GlobalManager first accepted the spec."""
    edge_nodes: str = ""
    """Names of the workers' nodes, joined by commas, for display."""
    active: Int32 = 0
    """Number of pods that are neither finished nor being deleted."""
    failed: Int32 = 0
    """Number of pods that failed."""
    round: Number = 0
    """The number of the last round that began."""
    current: Round | None = None
    """The round in progress. Absent while the job waits for samples."""
    progress: Progress | None = None
    """What the rounds before have done."""
    deployed: Deployed | None = None
    """The model that was deployed last. Absent before the first deployment."""
    former: Deployed | None = None
    """While a model is being deployed: the one before, which comes back when this one fails."""
    published: Published | None = None
    """The model that the Model of deploySpec.publish got last."""
    last: Outcome | None = None
    """How the last round ended."""
    metrics: list[Metric] = []
    """Of the last evaluation: of the new model, and with the ending _delta its differences from the
    deployed model."""
    workers: dict[str, dict[str, Any]] = {}
    """Worker -> last report of each worker. The edge side writes this field."""


DEFINITION: Final = Definition(
    types=edge_types("incrementallearningjobs", "IncrementalLearningJob"),
    short_names={"edgeai.io": ("ilj",), "sedna.io": ("il",)},  # Sedna has the short name `il`
    spec=IncrementalLearningJobSpec,
    status=IncrementalLearningJobStatus,
    pod_owners=(DEPLOYMENTS,),
    suspensions=(Suspension(("spec", "suspend")),),
)
