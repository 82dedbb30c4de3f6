"""The contract between the kinds and the engine: Observed, Action, Plan, Kind.

A kind is a folder of pure functions. The engine observes a job, calls the kind's `plan` and applies
the plan. It calls `assignments` to learn what each edge node must hold. The edge side calls `fold`
to learn how reports change the job's status.
"""

import enum
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from common.node_paths import DEFAULT_PREFIXES
from common.wire import AssignmentBody, ReportBody, WorkerGrant
from edgeai.api.definitions import Definition
from edgeai.api.resources import POD_CONTROLLERS, PODS, Object, ObjectRef, ResourceType, ref_of
from edgeai.api.rollouts import ModelVersion
from edgeai.api.schemas import Column, Validation
from edgeai.api.specs import InvalidSpec
from edgeai.errors import EdgeAIError
from edgeai.ids import NodeName, TaskKey, TaskRef, Uid, WorkerName

STORAGE_ANNOTATIONS: Final = ("s3-endpoint", "s3-usehttps")
"""The annotations of Secrets that plans read. Plans read nothing else of the Secrets of users."""


def task_key(ref: ObjectRef) -> TaskKey:
    return TaskRef(ref.type.plural, ref.type.group, ref.namespace, ref.name).key


class Contact(msgspec.Struct, frozen=True):
    """Whether a node's LocalController has a session, and since when this is so (UTC)."""

    connected: bool
    since: datetime


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the GlobalManager that shape workers."""

    root_key: bytes = b""
    """Key from which edgeai derives the secrets of workers: 32 random bytes, the same on every
    replica. Empty until the Kubernetes API has delivered it; the engine plans nothing before."""
    framework_images: dict[str, str] = {}
    """"<frameworkType>:<frameworkVersion>" of a workerSpec -> container image."""
    storage_initializer_image: str = "kubeedge/sedna-storage-initializer:v0.3.0"
    """Image of the init container that fetches models from s3 and http URLs."""
    node_path_prefixes: tuple[str, ...] = DEFAULT_PREFIXES
    """Where on a node the Models, Datasets and scripts of jobs may be. See common.node_paths."""
    worker_api_port: int = 9100
    """Port of the LocalController's worker API on each node."""
    cluster_domain: str = ""
    """The DNS domain, as "cluster.local". When it is empty, host names end with ".svc"."""
    gang_scheduler_name: str = ""
    """The scheduler that starts all pods of a training job together: "volcano", or the name of a
    scheduler with the coscheduling plugin. "" when there is none."""
    job_template_bytes: int = 64 * 1024 * 1024
    """Largest sum of the pod templates of one job, as JSON: replicas times the template's size."""
    contact_grace_s: float = 40.0
    """Seconds without a session after which a node is out of contact; as in Kubernetes."""


class Refusal(msgspec.Struct, frozen=True):
    """Why the API rejects an action of the plan. A second try at once would get the same answer."""

    reason: str
    """The reason for a condition: "NameConflict", "Invalid", "Forbidden"."""
    message: str
    """The message names the object, the fault and the remedy."""


class ReportRefused(EdgeAIError):
    """A report of an edge has no place in the job's .status. The text says why."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One job resource with its decoded spec."""

    type: ResourceType
    """The type under which the engine watches it, for example in group edgeai.io or sedna.io."""
    object: Object
    """The resource with metadata, spec and status."""
    spec: Any = None
    """The result of `Kind.read`. None when the spec is invalid. Then `invalid` says why."""
    invalid: InvalidSpec | None = None

    @property
    def ref(self) -> ObjectRef:
        return ref_of(self.type, self.object)

    @property
    def uid(self) -> Uid:
        return Uid(self.object["metadata"]["uid"])

    @property
    def generation(self) -> int:
        return int(self.object["metadata"].get("generation", 1))


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """A command that a plan wants to run in a container of one of the job's pods.

    The command runs at least once: again after a restart, or a connection that broke.
    """

    pod: str
    """Name of the pod, in the job's namespace."""
    uid: Uid
    """The command runs only while the pod has this uid."""
    container: str
    command: tuple[str, ...]
    """The program and its arguments. They stand in the URL of the request and in the audit log of
    the API server, so long or secret text belongs into `stdin`."""
    stdin: bytes = b""
    """What the command can read. The input has no end, so the command must know its length."""
    timeout_s: float
    """Seconds after which the engine gives up. The engine cannot end the process in the container,
    so the command should have a time limit of its own, too."""


class ExecutionFailure(enum.Enum):
    """Why the end of an execution is not known."""

    POD_GONE = "PodGone"
    NOT_RUNNING = "ContainerNotRunning"
    FORBIDDEN = "Forbidden"
    TIMEOUT = "Timeout"
    REFUSED = "Refused"
    """The API server or the kubelet refused the command, e.g. the image lacks the program."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """How an execution ended. Either `exit_code` or `fault` is set."""

    exit_code: int | None = None
    output: str = ""
    """The last 4 KiB of standard output and standard error together."""
    fault: ExecutionFailure | None = None
    message: str = ""
    """What the fault is and what a user can do."""


class Observed(Job, frozen=True, kw_only=True):
    """A snapshot of one job resource and of everything that the job's plan may depend on."""

    children: Mapping[ObjectRef, Object]
    """Objects in the job's namespace whose controller is the job. `Kind.owns` has their types."""
    pods: tuple[Object, ...]
    """Pods in the job's namespace, ordered by name. The controller of each pod is the job, a child
    of the job, or an object that Kubernetes created for a child (a Deployment's ReplicaSet)."""
    references: Mapping[ObjectRef, Object]
    """The existing objects among those that `Kind.references` and `Kind.indirect_references` name.
    Of a Secret, only the name and the annotations of `STORAGE_ANNOTATIONS`."""
    nodes: Mapping[NodeName, Object] = {}
    """The existing nodes with the labels of `Kind.node_selector`."""
    contacts: Mapping[NodeName, Contact]
    """The contacts of all nodes that had a session since this GlobalManager started."""
    settings: WorkerSettings
    absent: frozenset[ResourceType] = frozenset()
    """The types among `Kind.owns` that the API server does not serve."""
    overridden: Mapping[ObjectRef, tuple[str, ...]] = {}
    """Children whose fields somebody else sets again after each correction -> paths of the fields.
    The engine leaves out the corrections of these children, also when the plan has them."""
    readers: Mapping[NodeName, ModelVersion | None] = {}
    """The nodes where other jobs need the content of this object (`Assignment.inputs`), and which
    content; None: what the object names now."""
    scalers: Mapping[ObjectRef, Object] = {}
    """The scalers that name this job, the oldest first. `Kind.scalers` has their types."""
    executions: Mapping[str, Result | None] = {}
    """Key of each execution that the last plan wanted -> its result; None until it ends."""
    refusal: Refusal | None = None
    """Set when the API refused an action of the plan for this same state. Then the engine writes
    the status and the events of the new plan and carries out no action of the new plan."""


class Create(msgspec.Struct, frozen=True):
    """Create the object, or find it, if the job owns it; with another owner the action fails."""

    type: ResourceType
    object: Object


class Replace(msgspec.Struct, frozen=True):
    """PUT the whole object with the observed resourceVersion; after a conflict, plan again."""

    type: ResourceType
    object: Object
    is_drift: bool = False
    """True when the job did not change but somebody changed the object. The engine leaves out the
    correction of a field that somebody changes again and again, for example a webhook."""


class Delete(msgspec.Struct, frozen=True):
    """Delete exactly the object with this uid, which may be gone already, or be the job itself."""

    ref: ObjectRef
    uid: Uid
    is_forced: bool = False
    """True to delete a pod without a kubelet that confirms the deletion."""


class PatchStatus(msgspec.Struct, frozen=True):
    """Send a merge patch for the .status of an object that the job refers to, or of the job's
    scaler. The patch touches only the fields that belong to the job.
    """

    ref: ObjectRef
    uid: Uid
    status: Mapping[str, Any]


class Adopt(msgspec.Struct, frozen=True):
    """Make the job the controller of a scaler or of an object that it refers to, so that Kubernetes
    deletes the object with the job.
    """

    ref: ObjectRef
    uid: Uid


class Patch(msgspec.Struct, frozen=True):
    """Send a merge patch for a child, or for an object that the job refers to, which the plan
    otherwise never touches. After any other change of the object the engine plans again.
    `Kind.patches` has the types of such objects.
    """

    ref: ObjectRef
    patch: Mapping[str, Any]


Action = Create | Replace | Delete | PatchStatus | Adopt | Patch


class Severity(enum.Enum):
    """The type of a Kubernetes Event."""

    NORMAL = "Normal"
    WARNING = "Warning"


class Event(msgspec.Struct, frozen=True):
    """An event that explains to a user what happened. Kubernetes counts repeated events."""

    severity: Severity
    reason: str
    message: str
    about: ObjectRef | None = None
    """The scaler that the event is about; None for the job itself."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The next steps for one job. The default plan says that the job has converged: write nothing.

    The engine applies the stages in order and then writes `status`. The API may refuse an action in
    a way that a second try cannot change. Then the engine plans again with `Observed.refusal` set,
    and writes the status and the events of the second plan instead.
    """

    stages: tuple[tuple[Action, ...], ...] = ()
    """The actions of one stage are independent of each other, so the engine tries all actions of a
    stage at the same time. After a failure it begins no further stage, and plans again later."""
    status: Mapping[str, Any] | None = None
    """Fields of .status that the plan sets, or removes where the value is None. The engine sends
    only those that differ from the observed status. None: .status stays unchanged."""
    events: tuple[Event, ...] = ()
    """Emitted after the plan is applied, beside an event of the engine's own for each action."""
    executions: Mapping[str, Execution] = {}
    """Key -> a command that must run, or has run, in a pod of the job. After the stages and the
    status the engine starts the executions that it does not know yet, and plans the job again when
    one has ended. It cancels and forgets those that a plan no longer names. The same key with
    another Execution is a new one."""
    requeue_after_s: float | None = None
    """Seconds after which the engine plans the job again although nothing changed, for example
    because a grace period ends. None: only a change causes a new plan."""
    is_decision: bool = False
    """Whether `status` only writes down a decision, and the next plan has the actions that rest on
    the decision. Then the engine plans the job again without the pause between two plans."""

    @property
    def actions(self) -> tuple[Action, ...]:
        """The actions of all stages, in order."""
        return tuple(action for stage in self.stages for action in stage)


class ServicePort(NamedTuple):
    """A port of a Service in the job's namespace."""

    service: str
    port: int
    is_child: bool = True
    """False: a Service that the user made, and that the job refers to."""


class Assignment(msgspec.Struct, frozen=True):
    """What one node must hold of one task. A kind computes the assignment, the engine passes it on,
    and the edge side sends it to the node. For one `uid`, `version` never decreases.
    """

    key: TaskKey
    uid: Uid
    version: int
    body: AssignmentBody
    reporting: frozenset[WorkerName] | None = None
    """The workers whose reports the GlobalManager takes from this node now. None: all workers in
    `body`. The body cannot follow a worker that moves without a new version; this field can."""
    former: frozenset[WorkerName] = frozenset()
    """Those of them that belong to another node now, and still run here."""
    targets: frozenset[ServicePort] = frozenset()
    """What these workers may reach through the relay. The GlobalManager decides, so the node does
    not get this field."""
    inputs: Mapping[ObjectRef, ModelVersion | None] = {}
    """The job resources whose content these workers read, and which content; None: what the
    resource names now. The node gets them as tasks: `Observed.readers` tells their kind."""
    generation: int | None = None
    """The job's metadata.generation, on which the assignment rests. None: as the version."""

    @classmethod
    def of(
        cls,
        observed: Observed,
        *,
        spec: dict[str, Any],
        workers: dict[WorkerName, WorkerGrant],
        reporting: frozenset[WorkerName] | None = None,
        targets: Iterable[ServicePort] = (),
        version: int | None = None,
    ) -> "Assignment":
        """The assignment of one node, for the kinds.

        Args:
            spec: the part of the spec that the node needs
            workers: the workers that may report from the node
            version: None: the job's generation
        """
        ref = observed.ref
        body = AssignmentBody(namespace=ref.namespace, name=ref.name, spec=spec, workers=workers)
        return cls(
            key=task_key(ref),
            uid=observed.uid,
            version=observed.generation if version is None else version,
            body=body,
            reporting=reporting,
            targets=frozenset(targets),
            generation=observed.generation,
        )


class WorkerReport(msgspec.Struct, frozen=True, kw_only=True):
    """A report as the session delivers it. The session's credential says which `node` it is."""

    node: NodeName
    ledger_id: str
    """Identity of the node's ledger. The wire and .status name this field `instance`. A new
    identity means that the node has lost its old ledger."""
    worker: WorkerName
    attempt: int
    body: ReportBody
    group: str = ""
    """API group of the worker's job."""
    revision: int = 0
    """Number of the report in its ledger. A later report has a higher number. 0: not known."""
    is_former: bool = False
    """Whether the worker belongs to another node now, and still runs on `node`."""
    generation: int | None = None
    """Generation of the job whose assignment says so. None: not known."""
    replaces: frozenset[str] | None = None
    """Ledgers of the node that .status named when the session began. The report may take the place
    of their reports, because the node has lost these ledgers. None: of any ledger's reports."""


class Fold(Protocol):
    """Puts the reports of one job into its .status. Total, but for ReportRefused."""

    def add(self, report: WorkerReport) -> None:
        """Raises: ReportRefused when .status has no room. The report then changes nothing"""

    def patch(self) -> Mapping[str, Any]:
        """The merge patch of .status for all reports that were added; empty: nothing changes."""


class NoFold:
    """Of a kind whose workers report nothing."""

    def __init__(self, _status: Mapping[str, Any]) -> None:
        pass

    def add(self, report: WorkerReport) -> None:
        pass

    def patch(self) -> Mapping[str, Any]:
        return {}


class UpdateRule(enum.Enum):
    """What a plan does with a child that differs from the child that the job wants."""

    REPLACE = "replace"
    """The plan replaces the child in place. The plan does so also after somebody else's change."""
    RECREATE = "recreate"
    """The plan deletes the child. A later plan creates it again when the old child is gone."""
    KEEP = "keep"
    """The plan never touches a child that exists."""
    REFUSE = "refuse"
    """The plan never touches the child. The status says that the change is not possible."""


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One job kind: everything that the engine and the generators of CRDs and RBAC need to know.

    A function marked "Total" never raises an exception, whatever the objects contain.
    """

    definition: Definition
    """All versions and resources behave in the same way. The engine watches the first version of a
    resource, which the API server stores. The API server converts the other versions to the first
    version and changes only apiVersion, so `read` understands every version."""
    columns: tuple[Column, ...] = ()
    keywords: Mapping[str, Mapping[str, Any]] = {}
    """Path of a field -> OpenAPI keywords that the structs do not have. In a path, "*" stands for
    each key of a map: "spec.tfReplicaSpecs.*.replicas"."""
    validations: tuple[Validation, ...] = ()
    """Rules in CEL, for the API server."""
    read: Callable[[Object], Any]
    """Decodes the job's spec for the kind's other functions, once for each change of the job.
    Raises: InvalidSpec, and no other exception, whatever the object contains"""
    owns: Mapping[ResourceType, UpdateRule] = {}
    """Type of the children -> what a plan does with a child that differs from the wanted child."""
    patches: frozenset[ResourceType] = frozenset()
    """Types among `owns`, and job resources among `references`, which a plan changes by Patch."""
    follows: Mapping[ResourceType, tuple[str, ...]] = {}
    """Type of the children -> label selectors of children that another controller made for jobs of
    this kind, before edgeai served the jobs. The engine follows these children too. A selector says
    only what the engine watches. As with every child, the controller must be the job. The selectors
    of one type exclude each other and exclude the children with edgeai's own label."""
    needed: Mapping[ResourceType, Callable[[WorkerSettings], bool]] = {}
    """Type among `owns` that only some settings need -> whether these settings need it. Under all
    other settings the engine neither watches nor writes objects of the type."""
    scalers: Mapping[ResourceType, Callable[[Object], str]] = {}
    """Type of a scaler -> function from a scaler to the name of the scaler's job, which is in the
    same namespace; "" means that the scaler names no job. Total. A scaler is another job resource
    that changes the size of a job of this kind. The job's plan adopts and executes the scalers."""
    role_rules: tuple[Mapping[str, Any], ...] = ()
    """Rules (apiGroups, resources, verbs) of the Roles that the kind creates. The GlobalManager has
    these rights too: the API server lets no client grant a right that it lacks."""
    framework: str = ""
    """The value of the label "framework" in the metrics of training jobs, as dashboards for the
    Kubeflow operators know it. "" for a kind that the operators do not have."""
    outcomes: Callable[[Mapping[str, Any], Mapping[str, Any]], Mapping[str, int]] = (
        lambda _before, _after: {}
    )
    """(.status before a write, .status after) -> outcome -> its count, for metrics. Total."""
    event_reason: Callable[[str, ResourceType], str] = lambda action, _type: action
    """(action, type of its object) -> reason of the Event about the action. The action is a word of
    the engine: "Created", "Replaced", "Restored", "Deleted" or "Adopted". Total."""
    makes_scalers: bool = False
    """Whether a plan may create scalers, for example for `kubectl scale`."""
    executes: bool = False
    """Whether a plan may run commands in the job's pods: a right that holds for every pod."""
    deletes_itself: bool = False
    """Whether a plan may delete the job, for example when a time to live is over."""
    references: Callable[[Job], frozenset[ObjectRef]] = lambda _job: frozenset()
    """The objects that plan, assignments or relay read, also some that do not exist. Total."""
    node_selector: Callable[[Job], Mapping[str, str]] | None = None
    """Labels of the nodes that the plan and the assignments read, for a job that runs a worker on
    each of them; empty: the job reads no nodes by label. Total. None: no job of the kind does."""
    foreign: frozenset[ResourceType] = frozenset()
    """Types of other systems among `references`, which a plan adopts and whose .status it sets."""
    indirect_references: Callable[[Mapping[ObjectRef, Object]], frozenset[ObjectRef]] = (
        lambda _references: frozenset()
    )
    """Existing objects of `references` -> objects that these name and the plan reads. Total."""
    plan: Callable[[Observed, datetime], Plan]
    """Computes the next actions and the whole status, from the job and the time in UTC. A default
    Plan means that the job has converged. Total: an invalid spec becomes a condition."""
    assignments: Callable[[Observed], Mapping[NodeName, Assignment]] = lambda _observed: {}
    """Node -> what the node must hold. Depends only on the spec, the settings, `decisions`, the
    readers, the nodes of pods and of their controllers, the nodes of `node_selector`, and
    referenced Secrets. Total."""
    fold: Callable[[Mapping[str, Any]], Fold] = NoFold
    """.status -> what puts reports into it."""
    is_sliced: Callable[[ObjectRef, WorkerName], bool] | None = None
    """Whether a slice (see edgeai.api.slices) has the entry of the job's worker, because .status
    has no room for it. `fold` then gets the slice in place of .status. Total. None: no
    job of the kind has slices."""
    sums: frozenset[str] = frozenset()
    """Fields of .status in which `fold` keeps sums over the counts of the workers. A report that
    changes only counts and these fields needs no plan at once. Empty: every report needs one."""
    decisions: frozenset[str] = frozenset()
    """Fields of .status on which `assignments` rest."""
    has_readers: bool = False
    """Whether `plan` reads `Observed.readers`, for which all assignments must be known first."""

    @property
    def watched(self) -> tuple[ResourceType, ...]:
        """The types that the engine watches in order to find the children and pods of a job."""
        between = (POD_CONTROLLERS[type_] for type_ in self.owns if type_ in POD_CONTROLLERS)
        return tuple(dict.fromkeys((*self.owns, *between, PODS)))

    @property
    def followed(self) -> frozenset[tuple[ResourceType, str]]:
        """(type, label selector) of the entries of `follows` whose type the jobs have."""
        entries = ((type_, labels) for type_, labels in self.follows.items() if type_ in self.owns)
        return frozenset((type_, selector) for type_, labels in entries for selector in labels)

    def under(self, settings: WorkerSettings) -> "Kind":
        """The kind with those types of `owns` that the settings need."""
        owns = {
            type_: rule
            for type_, rule in self.owns.items()
            if type_ not in self.needed or self.needed[type_](settings)
        }
        return msgspec.structs.replace(self, owns=owns)

    def decode(self, type_: ResourceType, object_: Object) -> Job:
        """The job with its decoded spec, or with the fault of a wrong one in `invalid`."""
        try:
            return Job(type=type_, object=object_, spec=self.read(object_))
        except InvalidSpec as error:
            return Job(type=type_, object=object_, invalid=error)


class Served(msgspec.Struct, frozen=True):
    """A job resource from the cache, with the kind that has the functions for this resource."""

    kind: Kind
    ref: ObjectRef
    object: Object

    def with_type(self) -> Object:
        """The object with apiVersion and kind, which an object of a list does not have."""
        type_ = self.ref.type
        return {**self.object, "apiVersion": type_.api_version, "kind": type_.kind}
