"""The contract between kinds and engine: Observed, Action, Plan, Kind.

A kind is a folder of pure functions. The engine observes a job, calls the kind's `plan` and applies
the plan. It calls `assignments` to learn what each edge node must hold, and `fold` to learn how an
edge report changes the job's status. This module does no I/O, reads no clock and logs nothing.
"""

import enum
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from common.errors import EdgeAIError
from common.ids import NodeName, TaskKey, TaskRef, Uid, WorkerName
from common.wire import AssignmentBody, ReportBody, WorkerGrant

Object = dict[str, Any]  # a Kubernetes object as the API holds it; never changed in place


class ResourceType(msgspec.Struct, frozen=True):
    """One version of a resource: group, version, plural ("deployments"), kind ("Deployment").

    All versions of a resource show the same objects, so `str()` of a type leaves the version out.
    Task keys, labels and file names contain that text, for example "deployments.apps".
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def is_built_in(self) -> bool:
        """Whether the type belongs to Kubernetes itself and not to a CRD: its group has no dot or
        ends in .k8s.io.
        """
        return "." not in self.group or self.group.endswith(".k8s.io")

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """URL path of a collection (no name), an object or its subresource."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return "/".join(part for part in (root + scope, self.plural, name, subresource) if part)

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


NODES = ResourceType("", "v1", "nodes", "Node", namespaced=False)
PODS = ResourceType("", "v1", "pods", "Pod")
SERVICES = ResourceType("", "v1", "services", "Service")
SECRETS = ResourceType("", "v1", "secrets", "Secret")
DEPLOYMENTS = ResourceType("apps", "v1", "deployments", "Deployment")
REPLICASETS = ResourceType("apps", "v1", "replicasets", "ReplicaSet")
AUTOSCALERS = ResourceType(
    "autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"
)

POD_CONTROLLERS: Final[Mapping[ResourceType, ResourceType]] = {DEPLOYMENTS: REPLICASETS}
"""Type that a job owns -> type that Kubernetes creates for it, and that controls the pods."""


class ObjectRef(msgspec.Struct, frozen=True, order=False):
    """Names one object of the API; the namespace of a cluster-scoped object is ""."""

    type: ResourceType
    namespace: str
    name: str

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.type} {where}"


def ref_of(type_: ResourceType, object_: Object) -> ObjectRef:
    metadata = object_["metadata"]
    return ObjectRef(type_, metadata.get("namespace", ""), metadata["name"])


def task_key(ref: ObjectRef) -> TaskKey:
    return TaskRef(ref.type.plural, ref.type.group, ref.namespace, ref.name).key


class Contact(msgspec.Struct, frozen=True):
    """Whether a node's LocalController has a session, and since when it has or lacks one (UTC)."""

    connected: bool
    since: datetime


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The slice of the GlobalManager's settings that shapes workers."""

    root_key: bytes = b""
    """Key from which worker secrets are derived; 32 random bytes, the same on every replica. Empty
    only until the Kubernetes API has given the key; nothing is planned before."""
    framework_images: dict[str, str] = {}
    """workerSpec's "<frameworkType>:<frameworkVersion>" -> container image."""
    storage_initializer_image: str = "kubeedge/sedna-storage-initializer:v0.3.0"
    """Image of the init container that fetches s3/http models."""
    worker_api_port: int = 9100
    """Port of the LocalController's worker API on each node."""
    contact_grace_s: float = 40.0
    """Seconds without a session after which a node counts as out of contact; the same as the grace
    period of Kubernetes' node controller."""


class Refusal(msgspec.Struct, frozen=True):
    """Why the API rejects an action of the plan for good: trying again would not help."""

    reason: str
    """The reason of a condition: "NameConflict", "Invalid", "Forbidden"."""
    message: str
    """Names the object, the fault and the remedy."""


class InvalidSpec(EdgeAIError):
    """`path` is the field, e.g. "spec.edgeWorker.model.name"; `remedy` an imperative clause."""

    def __init__(self, path: str, problem: str, remedy: str) -> None:
        self.path, self.problem, self.remedy = path, problem, remedy
        super().__init__(f"{path}: {problem}; {remedy}")


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One job resource with its decoded spec."""

    type: ResourceType
    """The type under which the resource is watched, e.g. in group edgeai.io or sedna.io."""
    object: Object
    """metadata, spec and status."""
    spec: Any = None
    """The result of `Kind.read`. None when the spec is invalid; `invalid` then says why."""
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


class Observed(Job, frozen=True, kw_only=True):
    """Snapshot of one job resource and of everything that its plan may depend on."""

    children: Mapping[ObjectRef, Object]
    """Objects in the job's namespace, of the types in `Kind.owns`, whose controller is the job."""
    pods: tuple[Object, ...]
    """Pods in the job's namespace whose controller is the job, one of its children, or an object
    that Kubernetes created for a child (a Deployment's ReplicaSet); ordered by name."""
    references: Mapping[ObjectRef, Object]
    """The objects named by `Kind.references` that exist."""
    contacts: Mapping[NodeName, Contact]
    """Contacts of all nodes that had a session since this GlobalManager started."""
    settings: WorkerSettings
    scalers: Mapping[ObjectRef, Object] = {}
    """The objects of the types in `Kind.scalers` that name this job; the oldest first."""
    refusal: Refusal | None = None
    """Set when the API refused the plan of this same state. The engine then writes the status and
    events of the new plan, but carries out none of its actions."""


class Create(msgspec.Struct, frozen=True):
    """Create the object. An existing object of that name is success when the job owns it, and an
    error when another owner does.
    """

    type: ResourceType
    object: Object


class Replace(msgspec.Struct, frozen=True):
    """PUT the whole object with the observed resourceVersion. After a conflict the engine plans
    again.
    """

    type: ResourceType
    object: Object
    is_drift: bool = False
    """True when somebody else changed the object, and not the job. The engine waits longer before
    each repeated correction of drift, because a webhook may make the same change every time."""


class Delete(msgspec.Struct, frozen=True):
    """Delete exactly the object with this uid; an object that is gone already is success. `ref` may
    name the job itself.
    """

    ref: ObjectRef
    uid: Uid


class PatchStatus(msgspec.Struct, frozen=True):
    """Merge patch for .status of an object that the job refers to, or of a scaler of the job. The
    patch touches only the fields that belong to the job.
    """

    ref: ObjectRef
    uid: Uid
    status: Mapping[str, Any]


class Adopt(msgspec.Struct, frozen=True):
    """Make the job the controller of a scaler, so that the scaler is deleted with the job."""

    ref: ObjectRef
    uid: Uid


Action = Create | Replace | Delete | PatchStatus | Adopt


class Severity(enum.Enum):
    """Type of a Kubernetes Event."""

    NORMAL = "Normal"
    WARNING = "Warning"


class Event(msgspec.Struct, frozen=True):
    """An event that a user would ask about; Kubernetes counts repeated events."""

    severity: Severity
    reason: str
    message: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Next steps for one job. The default plan means: the job has converged, write nothing.

    The engine applies the stages in order and then writes `status`. When the API refuses an action
    for good, the engine plans again with `Observed.refusal` set, and writes the status and events
    of the second plan instead.
    """

    stages: tuple[tuple[Action, ...], ...] = ()
    """The actions of one stage are independent: the engine tries all of them at the same time. When
    an action fails, no further stage begins and the job is planned again later."""
    status: Mapping[str, Any] | None = None
    """The reconciler's whole subtree of .status; the engine sends only the fields that differ from
    the observed status. A key with value None is removed. None instead of a mapping leaves the
    status unchanged."""
    events: tuple[Event, ...] = ()
    """Emitted after the plan was applied. The engine itself emits an event for each action."""
    requeue_after_s: float | None = None
    """Seconds after which the job is planned again although nothing changed, for example because a
    grace period ends; None: only a change causes a new plan."""

    @property
    def actions(self) -> tuple[Action, ...]:
        """The actions of all stages, in order."""
        return tuple(action for stage in self.stages for action in stage)


class Assignment(msgspec.Struct, frozen=True):
    """What one node must hold of one task; `version` only grows for one `uid`."""

    key: TaskKey
    uid: Uid
    version: int
    body: AssignmentBody

    @classmethod
    def of(
        cls,
        observed: Observed,
        *,
        spec: dict[str, Any],
        workers: dict[WorkerName, WorkerGrant],
    ) -> "Assignment":
        """The assignment of one node, with the job's generation as version.

        Args:
            spec: the part of the spec that the node needs
            workers: the workers that may report from the node
        """
        ref = observed.ref
        body = AssignmentBody(namespace=ref.namespace, name=ref.name, spec=spec, workers=workers)
        return cls(task_key(ref), observed.uid, observed.generation, body)


class WorkerReport(msgspec.Struct, frozen=True, kw_only=True):
    """A report as the session delivers it; `node` is known from the session's credential."""

    node: NodeName
    ledger_id: str
    """Identity of the node's ledger; the field `instance` on the wire and in .status. A new
    identity means that the old ledger was lost."""
    worker: WorkerName
    attempt: int
    body: ReportBody


class Column(msgspec.Struct, frozen=True):
    """One additionalPrinterColumn. `type`: string, integer or date. A column of priority 1 is shown
    only by `kubectl get -o wide`.
    """

    name: str
    type: str
    json_path: str
    priority: int = 0


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a resource, as the CustomResourceDefinition describes the version."""

    spec: type
    """Struct from which the schema of .spec is generated."""
    status: type
    """Struct that describes .status."""
    columns: tuple[Column, ...]


class UpdateRule(enum.Enum):
    """What a plan does with a child that differs from what the job wants."""

    REPLACE = "replace"
    """The plan replaces the child in place, also when somebody else changed the child."""
    RECREATE = "recreate"
    """The plan deletes the child; a later plan creates it again once it is gone."""
    KEEP = "keep"
    """The plan never touches a child that exists."""
    REFUSE = "refuse"
    """The plan never touches the child, and tells the user that the change is not possible."""


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One job kind: everything that the engine and the generators of CRDs and RBAC know of it.

    A function marked "Total" never raises an exception, whatever the objects hold.
    """

    types: Mapping[ResourceType, Schema]
    """Every version of every resource of the kind; all behave the same. The first version of a
    resource is stored and watched. The API server converts the other versions to the first and
    changes only apiVersion, so `read` understands every version. Each version has the fields of all
    versions, because a write through a version would lose the fields that the version lacks."""
    singular: str
    short_names: Mapping[str, tuple[str, ...]]
    """API group -> short names. kubectl warns about a short name that two groups share."""
    read: Callable[[Object], Any]
    """The job's spec as the kind's functions want it, decoded once for each change.
    Raises: InvalidSpec, and no other exception, whatever the object holds"""
    owns: Mapping[ResourceType, UpdateRule] = {}
    """Type of the children -> what a plan does with a child that differs from what is wanted."""
    scalers: Mapping[ResourceType, Callable[[Object], str]] = {}
    """Type of a scaler -> function from the scaler to the name of its job in the same namespace, ""
    for no job. Total. A scaler is another job resource that changes the size of a job of this kind;
    the job's plan adopts and executes its scalers."""
    role_rules: tuple[Mapping[str, Any], ...] = ()
    """Rules (apiGroups, resources, verbs) of the Roles that the kind creates. The GlobalManager has
    these rights too, because the API server lets nobody grant a right that they lack."""
    deletes_itself: bool = False
    """Whether a plan may delete the job, as a time to live demands."""
    references: Callable[[Job], frozenset[ObjectRef]] = lambda _job: frozenset()
    """The objects that the plan looks at, whether or not they exist. Total."""
    plan: Callable[[Observed, datetime], Plan]
    """Total: an invalid spec becomes a condition."""
    assignments: Callable[[Observed], Mapping[NodeName, Assignment]] = lambda _observed: {}
    """Node -> what the node must hold. Depends only on spec, settings and the nodes of pods. Total.
    """
    fold: Callable[[Mapping[str, Any], WorkerReport], Mapping[str, Any] | None] = (
        lambda _status, _report: None
    )
    """(.status, report) -> merge patch for .status, None when it changes nothing. Total."""

    @property
    def watched(self) -> tuple[ResourceType, ...]:
        """The types that the engine watches to find the children and pods of a job."""
        between = (POD_CONTROLLERS[type_] for type_ in self.owns if type_ in POD_CONTROLLERS)
        return tuple(dict.fromkeys((*self.owns, *between, PODS)))

    @property
    def resources(self) -> tuple[ResourceType, ...]:
        """One type for each resource: the version that is stored, watched and written."""
        first: dict[str, ResourceType] = {}
        for type_ in self.types:
            first.setdefault(str(type_), type_)
        return tuple(first.values())

    @property
    def plural(self) -> str:
        return self.resources[0].plural

    @property
    def name(self) -> str:
        return self.resources[0].kind

    def decode(self, type_: ResourceType, object_: Object) -> Job:
        """The job with its decoded spec, or with the fault of its spec in `invalid`."""
        try:
            return Job(type=type_, object=object_, spec=self.read(object_))
        except InvalidSpec as error:
            return Job(type=type_, object=object_, invalid=error)


class Served(msgspec.Struct, frozen=True):
    """A job resource as the cache has it, and the kind that knows what to do with it."""

    kind: Kind
    ref: ObjectRef
    object: Object
