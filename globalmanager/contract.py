"""All that kinds and engine say to each other: Observed, Action, Plan, Kind.

A kind is a folder of pure functions: the engine observes, calls `plan`, and applies the result; it
calls `assignments` for what each edge must hold and `fold` for what an edge report means. Nothing
here does I/O, reads a clock or logs.
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

    All versions of a resource show the same objects, so the text of a type leaves the version out:
    "deployments.apps" is what task keys, labels and file names are made of.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def is_built_in(self) -> bool:
        """Of Kubernetes itself, whose groups have no dot or end in .k8s.io; not of a CRD."""
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
"""Owned type -> type of what Kubernetes makes for it, and which controls the pods in its place."""


class ObjectRef(msgspec.Struct, frozen=True, order=False):
    """Names one object of the API; namespace is "" for cluster-scoped ones."""

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
    """Whether a node's LocalController has a session, and since when that is so (UTC)."""

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
    """A node without a session for so long is said to be out of contact; Kubernetes' own grace."""


class Refusal(msgspec.Struct, frozen=True):
    """Why the API will not have an action of the plan, however often it is asked."""

    reason: str
    """Fits a condition: "NameConflict", "Invalid", "Forbidden"."""
    message: str
    """Names the object, what is wrong with it, and what to do."""


class InvalidSpec(EdgeAIError):
    """`path` is the field, e.g. "spec.edgeWorker.model.name"; `remedy` an imperative clause."""

    def __init__(self, path: str, problem: str, remedy: str) -> None:
        self.path, self.problem, self.remedy = path, problem, remedy
        super().__init__(f"{path}: {problem}; {remedy}")


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One job resource, its spec decoded."""

    type: ResourceType
    """The type under which the resource is watched (of edgeai.io or of sedna.io)."""
    object: Object
    """metadata, spec and status."""
    spec: Any = None
    """What `Kind.read` made of the object; None where `invalid` says why it made nothing."""
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
    """Snapshot of one job resource and all that its plan may depend on."""

    children: Mapping[ObjectRef, Object]
    """Objects of its namespace of which it is the controller; of the kind's `owns` types."""
    pods: tuple[Object, ...]
    """Pods of its namespace of which it is the controller, or one of its children is, or what
    Kubernetes made for one of them (a Deployment's ReplicaSet); ordered by name."""
    references: Mapping[ObjectRef, Object]
    """Those of `Kind.references` that exist."""
    contacts: Mapping[NodeName, Contact]
    """Sessions of the nodes that were ever in contact since this GM started."""
    settings: WorkerSettings
    scalers: Mapping[ObjectRef, Object] = {}
    """The objects of the types in `Kind.scalers` that name this job; the oldest first."""
    refusal: Refusal | None = None
    """Set where the plan of this very state was refused: what is planned now is told, not done."""


class Create(msgspec.Struct, frozen=True):
    """Create; meeting the same name with the same owner is success, another owner an error."""

    type: ResourceType
    object: Object


class Replace(msgspec.Struct, frozen=True):
    """PUT the whole object with the resourceVersion that was observed; conflict → plan again."""

    type: ResourceType
    object: Object
    is_drift: bool = False
    """The job wants what it wanted before: somebody else changed the object. The engine slows down
    what it puts back again and again, since a webhook may be the other one."""


class Delete(msgspec.Struct, frozen=True):
    """Delete exactly the object of this uid; gone already is success. The job itself may be it."""

    ref: ObjectRef
    uid: Uid


class PatchStatus(msgspec.Struct, frozen=True):
    """Merge patch of .status of what a job refers to or is scaled by, for the job's part of it."""

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
    """What a user would ask about; repeats are counted."""

    severity: Severity
    reason: str
    message: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Next steps for one job. The default one means: converged, write nothing.

    The engine applies the stages in order, then writes `status`. What the API refuses for good
    becomes `Observed.refusal`, and status and events of the plan for that are written instead.
    """

    stages: tuple[tuple[Action, ...], ...] = ()
    """The actions of a stage are independent: all are tried, at the same time. After a failure no
    further stage begins; the next round plans anew."""
    status: Mapping[str, Any] | None = None
    """The reconciler's whole subtree of .status; only what differs from the observed is sent. A
    key with value None is removed. None as a whole: leave the status alone."""
    events: tuple[Event, ...] = ()
    """Emitted after the plan was applied; each action that was carried out has one already."""
    requeue_after_s: float | None = None
    """Plan again after so many seconds though nothing changed (a grace period that runs)."""

    @property
    def actions(self) -> tuple[Action, ...]:
        """Of all stages, in order."""
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
        """Args: spec: the excerpt that a node needs; workers: those that may report from there"""
        ref = observed.ref
        body = AssignmentBody(namespace=ref.namespace, name=ref.name, spec=spec, workers=workers)
        return cls(task_key(ref), observed.uid, observed.generation, body)


class WorkerReport(msgspec.Struct, frozen=True, kw_only=True):
    """A report as it left the session: who sent it is known from the session's credential."""

    node: NodeName
    instance: str
    """Identity of the node's ledger; a new one means that the old was lost."""
    worker: WorkerName
    attempt: int
    body: ReportBody


class Column(msgspec.Struct, frozen=True):
    """One additionalPrinterColumn; `type` string | integer | date; priority 1: only -o wide."""

    name: str
    type: str
    json_path: str
    priority: int = 0


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a resource as its CustomResourceDefinition describes it."""

    spec: type
    """Struct from which the schema of .spec is generated."""
    status: type
    """Struct that describes .status."""
    columns: tuple[Column, ...]


class UpdateRule(enum.Enum):
    """What becomes of a child that is not as the job wants it."""

    REPLACE = "replace"
    """Replaced in place. What others changed is put back."""
    RECREATE = "recreate"
    """Deleted; once it is gone, the next plan creates it anew."""
    KEEP = "keep"
    """Never touched: it stays as it is until it is gone."""
    REFUSE = "refuse"
    """Never touched, and the user is told that the change is not possible."""


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One job kind: all that the engine, the CRD generator and RBAC need to know of it."""

    types: Mapping[ResourceType, Schema]
    """Every version of every resource that is served; same behaviour in all. Of several versions of
    one resource the first is the one that is stored and watched; the others are converted to it by
    the API server, which changes nothing but apiVersion, so `read` understands them all. Each
    version has the fields of all of them: what a version lacks is lost when it is written."""
    singular: str
    short_names: Mapping[str, tuple[str, ...]]
    """By API group. One name in two groups would make kubectl warn with each use of it."""
    read: Callable[[Object], Any]
    """The job's spec as the kind's functions want it, decoded once for each change.
    Raises: InvalidSpec, and nothing else, whatever the object holds"""
    owns: Mapping[ResourceType, UpdateRule] = {}
    """Types of the objects it creates, and what becomes of one that is not as it should be."""
    scalers: Mapping[ResourceType, Callable[[Object], str]] = {}
    """Other job resources that act on one of this kind, and how they name it: object -> name of the
    job in the same namespace, "" for none. Total. The job's plan adopts and executes them."""
    grants: tuple[Mapping[str, Any], ...] = ()
    """Rules (apiGroups, resources, verbs) of the Roles that it creates. The API server lets nobody
    grant what they may not do themselves, so the GlobalManager has these rights, too."""
    deletes_itself: bool = False
    """Whether a plan may delete the job, as a time to live demands."""
    references: Callable[[Job], frozenset[ObjectRef]] = lambda _job: frozenset()
    """The objects the plan wants to look at, whether or not they exist. Total: never raises."""
    plan: Callable[[Observed, datetime], Plan]
    """Total: an invalid spec becomes a condition, never an exception."""
    assignments: Callable[[Observed], Mapping[NodeName, Assignment]] = lambda _observed: {}
    """What each node must hold; depends on the spec, pods' nodes and settings only. Total."""
    fold: Callable[[Mapping[str, Any], WorkerReport], Mapping[str, Any] | None] = (
        lambda _status, _report: None
    )
    """(.status, report) -> merge patch for .status, None when it changes nothing. Total."""

    @property
    def watched(self) -> tuple[ResourceType, ...]:
        """Types of what leads from a resource to its pods: without one of them pods are missed."""
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
        """The job resource with its spec decoded, or with what is wrong with its spec."""
        try:
            return Job(type=type_, object=object_, spec=self.read(object_))
        except InvalidSpec as error:
            return Job(type=type_, object=object_, invalid=error)


class Served(msgspec.Struct, frozen=True):
    """A job resource as the cache has it, and the kind that knows what to do with it."""

    kind: Kind
    ref: ObjectRef
    object: Object
