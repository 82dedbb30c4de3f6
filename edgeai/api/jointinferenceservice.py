"""JointInferenceService as the API holds it.

.status.conditions has these conditions, in this order:

Accepted       True: the spec can be carried out. False: InvalidSpec. The plan then leaves running
               workers alone.
ResolvedRefs   True: the Models, their Secrets, the Nodes and the framework images exist. False:
               ModelNotFound, ModelInvalid, SecretNotFound, SecretInvalid, NodeNotFound,
               FrameworkImageNotConfigured. The plan then creates nothing until the condition is
               True. Unknown while the spec is not accepted.
Running        True: both Deployments are available; of a fleet, the cloud worker and one edge
               worker. False: Waiting, Starting, NoNodes (no node has the labels of the fleet),
               ModelNotLoaded (edge workers have no model to load hot), or the reason that a pod's
               status gives (CrashLoopBackOff, Unschedulable, …). Unknown: NodeNotReady, while the
               node of the edge worker is silent. Never final.
RolledOut      True: every node of the fleet gets the newest version of the Model (Complete).
               Unknown: Progressing or Paused. False: RolledBack, or VersionFailed, when a person
               must decide. Absent without spec.rollout.
CloudReachable True: the cloud worker answers hard examples. False: NoAnswer or
               CloudWorkerUnavailable, when every hard example of the last minute was a fallback.
               Absent until a worker tells how its hard examples were answered; Sedna's library
               never tells.
EdgeConnected  True: the LocalControllers of the edge workers' nodes have a session. False:
               NoContact. Absent while no edge worker has a node.
Overridden     True: somebody else sets fields of a child again after each correction, so edgeai
               leaves them. The message names child and fields. Absent otherwise.
Stalled        True: a worker has a fault that somebody must repair. The message names the fault and
               what to do. Absent otherwise.

In group sedna.io there is the condition Failed, too, before EdgeConnected. Users of Sedna know it.
It is True while the phase is Failed, and absent otherwise.
"""

import enum
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

from edgeai.api.definitions import Definition, edge_types
from edgeai.api.resources import DEPLOYMENTS
from edgeai.api.rollouts import Rollout, RolloutStatus
from edgeai.api.schemas import kubernetes
from edgeai.api.specs import NonEmpty
from edgeai.api.status import Conditions, Int32, Metric, Time
from edgeai.api.workers import Parameter, Transport, WorkerForm

ParameterForm = Literal["number", "whole number", "text"]
PARAMETERS: Final[Mapping[str, Mapping[str, ParameterForm]]] = {
    "BertRouter": {"threshold": "number", "model": "text"},
    "CloudOnly": {},
    "CrossEntropy": {"threshold_cross_entropy": "number"},
    "EdgeOnly": {},
    "IBT": {"threshold_box": "number", "threshold_img": "number"},
    "Random": {"random_ratio": "number", "seed": "whole number"},
    "Threshold": {"threshold": "number"},
}
"""Algorithm -> parameter -> the form in which the worker reads the parameter."""


class Mining(msgspec.Struct, frozen=True):
    """The algorithm that decides which samples are hard, and its parameters."""

    name: Annotated[NonEmpty, msgspec.Meta(extra_json_schema={"enum": sorted(PARAMETERS)})]
    """The algorithm."""
    parameters: list[Parameter] = []


class ModelName(msgspec.Struct, frozen=True):
    """A Model of the same namespace and API group."""

    name: NonEmpty
    """Its name."""


class HotModel(ModelName, frozen=True, rename="camel"):
    """The Model of an edge worker. hotUpdate and hotUpdateEnabled have the same meaning."""

    hot_update: bool = False
    """Whether the worker loads a new version of the model while it runs. The LocalController of the
    node fetches the content. Otherwise a new pod loads the new version."""
    hot_update_enabled: bool = False
    """As hotUpdate, in Sedna's words."""
    poll_period_seconds: Annotated[int, msgspec.Meta(ge=1, le=86400)] = 5
    """How often the worker asks its LocalController for a new version."""

    @property
    def is_hot(self) -> bool:
        return self.hot_update or self.hot_update_enabled


class Autoscaling(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Limits and metrics of a HorizontalPodAutoscaler (autoscaling/v2)."""

    max_replicas: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    """The largest number of pods."""
    min_replicas: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None
    """The smallest number of pods. 1 when the field is missing."""
    metrics: list[Annotated[dict[str, Any], kubernetes("MetricSpec")]] = []
    """As of a HorizontalPodAutoscaler."""
    behavior: Annotated[dict[str, Any], kubernetes("HorizontalPodAutoscalerBehavior")] | None = None
    """As of a HorizontalPodAutoscaler."""

    def __post_init__(self) -> None:
        if (self.min_replicas or 1) > self.max_replicas:
            raise ValueError("minReplicas is greater than maxReplicas")


class HardExamples(msgspec.Struct, frozen=True, rename="camel"):
    """Where the cloud worker keeps the samples that edge workers send, and its answers."""

    dataset: NonEmpty
    """A Dataset of the same namespace and API group: a file with the format jsonl on the node of
    the cloud worker."""
    max_bytes: Annotated[int, msgspec.Meta(ge=1024, le=2**53)] = 64 * 1024**2
    """The largest size of the file. The older half goes when it is full."""


class CloudWorker(WorkerForm, frozen=True, kw_only=True, rename="camel"):
    """Serves the big model on port 5000."""

    model: ModelName
    hard_examples: HardExamples | None = None
    """Consent to keep samples. Without it, the cloud worker of edgeai.worker keeps none."""
    hpa: Autoscaling | None = None


class EdgeWorker(WorkerForm, frozen=True, kw_only=True, rename="camel"):
    """Runs the small model."""

    model: HotModel
    per_node: bool = False
    """Whether each node with the labels of nodeSelector runs one worker."""
    node_selector: Annotated[dict[str, str], msgspec.Meta(max_length=16)] = {}
    """With perNode: the labels of the nodes. A node that gets these labels gets a worker, and a
    node that loses one of them loses its worker."""
    hard_example_mining: Mining | None = None
    """The algorithm that decides which samples are hard. No sample is hard when the field is
    missing."""
    hard_example_algorithm: Mining | None = None
    """Another name of `hardExampleMining`, from the proposal of joint inference."""
    hpa: Autoscaling | None = None

    @property
    def mining(self) -> Mining | None:
        return self.hard_example_mining or self.hard_example_algorithm


class JointInferenceServiceSpec(msgspec.Struct, frozen=True, rename="camel"):
    """A small model at the edge, and a large one in the cloud for hard samples."""

    edge_worker: EdgeWorker
    cloud_worker: CloudWorker
    transport: Transport = Transport.AUTO
    """How the edge workers reach the cloud worker: directly, through the relay of their node's
    LocalController, or (auto) directly where the cloud worker's Service answers from the node."""
    rollout: Rollout | None = None
    """How a new version of the edge workers' Model goes to the nodes of a fleet that loads it hot.
    Without it, every node gets it at once."""


class Phase(enum.StrEnum):
    """The state of the service in one word, for display. Programs read the conditions. No phase is
    final.
    """

    PENDING = "Pending"  # waits for an object that the spec names, or workers are starting
    RUNNING = "Running"  # both workers are available
    FAILED = "Failed"  # a worker's pod cannot run; Kubernetes tries again for ever
    INVALID = "Invalid"  # this generation of the spec is not accepted; Failed in group sedna.io


class FleetNode(msgspec.Struct, frozen=True, rename="camel"):
    """A node whose worker does not serve, or of which nobody knows."""

    node: str
    """Its name."""
    state: str
    """failed, silent or starting."""


class FleetVersion(msgspec.Struct, frozen=True, rename="camel"):
    version: int
    """As the workers report it (`details.modelVersion`)."""
    nodes: Int32
    """Number of nodes whose worker answers with it."""


class FleetStatus(msgspec.Struct, frozen=True, rename="camel"):
    """How the workers of a fleet are. Each node counts in one state."""

    nodes: Int32
    """Number of nodes with the labels of nodeSelector."""
    ready: Int32
    """Number of nodes whose worker serves."""
    failed: Int32
    """Number of nodes whose worker has a fault."""
    silent: Int32
    """Number of nodes with a worker from which Kubernetes has not heard for a while. The worker may
    go on."""
    starting: Int32
    """Number of nodes whose worker starts."""
    worst: list[FleetNode] = []
    """Ten nodes that do not serve, the failed ones first."""
    versions: list[FleetVersion] = []
    """Of a Model that is loaded hot: the five versions that most workers answer with."""
    update_time: Time | None = None
    """When the GlobalManager last wrote the status. It writes mere numbers only now and then."""


class JointInferenceServiceStatus(msgspec.Struct, frozen=True, rename="camel"):
    observed_generation: int = 0
    phase: str = ""
    conditions: Conditions = []
    start_time: Time | None = None
    """The time when the GlobalManager first accepted the spec."""
    fleet: FleetStatus | None = None
    """The workers of a fleet. Absent without perNode."""
    rollout: RolloutStatus | None = None
    """Which version of its Model each node of a fleet gets. Absent until spec.rollout is set."""
    edge_nodes: str = ""
    """Names of the edge workers' nodes, joined by commas, for display."""
    active: Int32 = 0
    """Number of pods that are neither finished nor being deleted."""
    failed: Int32 = 0
    """Number of pods that failed."""
    upload_count: int | None = None
    """Number of samples that all edge workers together have sent to the cloud. Absent while no
    worker has told this number."""
    metrics: list[Metric] = []
    """Totals over all edge workers: seen, hard, uploaded, answeredByCloud, fallbacks, and
    uploadCloudRatio, which is uploaded / seen with four decimals. In group sedna.io the ratio has
    all digits, and Sedna's inferenceNumber (seen) and hardExampleNumber (hard) follow. A count that
    no worker has told is left out."""
    fallbacks_in_a_row: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Number of hard examples, over all edge workers, that were answered at the edge since the
    cloud worker last answered one. The edge side writes this field."""
    fallbacks_since: Time | None = None
    """The time when the GlobalManager learned of the first of these fallbacks."""
    answered_before_fallbacks: int = 0
    """Number of answers of the cloud at this time. More answers end the row of fallbacks."""
    counted_in_slices: dict[str, int] = {}
    """Counts of the workers whose reports are in ConfigMaps, as the last plan found them."""
    workers: dict[str, dict[str, Any]] = {}
    """Worker -> last report of each edge worker. The edge side writes this field. The reports of a
    fleet are in its ConfigMaps `<name>-workers-0` to `-3`."""


DEFINITION: Final = Definition(
    types=edge_types("jointinferenceservices", "JointInferenceService"),
    # `jis` is in the proposal, `ji` in Sedna
    short_names={"edgeai.io": ("jis",), "sedna.io": ("ji",)},
    spec=JointInferenceServiceSpec,
    status=JointInferenceServiceStatus,
    pod_owners=(DEPLOYMENTS,),
)
