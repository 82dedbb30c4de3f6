"""All informers of the engine, one for each type and selector, created at the first use.

They watch the objects that edgeai creates by their label, so that the other pods of the cluster
cost nothing, and those further children whose labels a kind names (`Kind.follows`). They watch job
resources and the objects that jobs refer to without a label.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final, NamedTuple

from common.clock import SYSTEM_CLOCK, Clock
from common.tasks import TaskGroup
from edgeai.api.objects import LABEL_KIND, LABEL_NAME
from edgeai.api.resources import (
    NAMESPACES,
    POD_CONTROLLERS,
    SECRETS,
    SERVICES,
    Object,
    ResourceType,
)
from edgeai.api.status import mapping
from edgeai.kube.client import KubeClient, PartOf, whole
from globalmanager.cache.followed import Followed
from globalmanager.cache.informer import Informer, InformerSettings, InformerSubscriber
from globalmanager.cache.shared import SharedValues
from globalmanager.cache.store import Store, by_controller, by_uid, controller_of
from globalmanager.contract import STORAGE_ANNOTATIONS

MANAGED: Final = "app.kubernetes.io/managed-by=edgeai"
ALL: Final = ""
_IDENTITY: Final = ("name", "namespace", "uid", "resourceVersion")
_NAMING_A_JOB: Final = (LABEL_KIND, LABEL_NAME)


class Scope(NamedTuple):
    """The objects that one informer follows."""

    type: ResourceType
    label_selector: str


class Subscriber(InformerSubscriber):
    """Gets the news of all informers. A subclass overrides the methods whose news it needs."""

    def changed(self, scope: Scope, old: Object | None, new: Object | None) -> None:
        """An object in a store has changed. Args: old, new: None where it does not exist"""

    def opened(self, informer: Informer) -> None:
        """A new informer will run soon."""


def _metadata(object_: Object) -> Object:
    return _part(object_, (*_IDENTITY, "labels", "ownerReferences"))


def _stub(object_: Object) -> Object:
    """What is kept of an object with the label of a child that belongs to no job: its name, and the
    job that its labels name, because this job may wait for the name.
    """
    labels = object_["metadata"].get("labels") or {}
    stub = _part(object_, _IDENTITY)
    stub["metadata"]["labels"] = {key: labels[key] for key in _NAMING_A_JOB if key in labels}
    return stub


def _part(object_: Object, fields: Iterable[str]) -> Object:
    metadata = object_["metadata"]
    return {"metadata": {field: metadata[field] for field in fields if field in metadata}}


def _storage_annotations(secret: Object) -> Object:
    """The name and what plans read. `kubectl apply` writes keys into another annotation, so nothing
    else may stay.
    """
    value = secret["metadata"].get("annotations")
    annotations = value if isinstance(value, dict) else {}
    texts = {name: annotations[name] for name in STORAGE_ANNOTATIONS if name in annotations}
    part = _part(secret, _IDENTITY)
    part["metadata"]["annotations"] = texts
    return part


def _address(service: Object) -> Object:
    """The name, and what the relay reads of a Service that is no child."""
    spec = mapping(service.get("spec"))
    part = {field: spec[field] for field in ("clusterIP", "selector") if field in spec}
    return {**_part(service, _IDENTITY), "spec": part}


def _metadata_part(scope: Scope) -> PartOf | None:
    """Gives what the store keeps of objects whose metadata suffice; None for other objects."""
    if scope == (SECRETS, ALL):
        return _storage_annotations
    # A cluster has many ReplicaSets, and plans read only their owner references. Of Namespaces the
    # engine reads the labels.
    return _metadata if scope.type in (*POD_CONTROLLERS.values(), NAMESPACES) else None


class Informers:
    """Creates, keeps and runs the informers. Call `subscribe` before the first `get`.

    Args:
        namespace: the namespace to watch; "" for all namespaces
        owners: types of the controllers that a child of a job, or a pod of such a child, can have
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str,
        owners: Iterable[ResourceType],
        settings: InformerSettings,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._owners = frozenset((type_.group, type_.kind) for type_ in owners)
        self._settings = settings
        self._subscriber = Subscriber()
        self._clock = clock
        self._shared = SharedValues()
        self._by_scope: dict[Scope, Informer] = {}
        self._children: dict[ResourceType, Followed] = {}
        self._tasks: TaskGroup | None = None

    def __iter__(self) -> Iterator[Informer]:
        return iter(tuple(self._by_scope.values()))

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscriber = subscriber

    def start(self, tasks: TaskGroup) -> None:
        """Run all informers in `tasks`, also the informers that are created later."""
        self._tasks = tasks
        for scope, informer in self._by_scope.items():
            self._launch(tasks, scope, informer)

    def get(self, type_: ResourceType, label_selector: str = ALL) -> Informer:
        scope = Scope(type_, label_selector)
        return self._by_scope.get(scope) or self._open(scope)

    def children(self, type_: ResourceType) -> Followed:
        """The objects of a type with edgeai's label, and those of other label selectors."""
        if type_ not in self._children:
            own = self.get(type_, MANAGED).store
            others = [
                informer.store
                for scope, informer in self._by_scope.items()
                if scope.type == type_ and scope.label_selector not in (ALL, MANAGED)
            ]
            self._children[type_] = Followed([own, *others])
        return self._children[type_]

    def _open(self, scope: Scope) -> Informer:
        store = Store(
            scope.type,
            # jobs have no controller, and nobody asks for a child by its uid
            {"uid": by_uid} if scope.label_selector == ALL else {"controller": by_controller},
            # `Followed` says what the stores of others' children take
            label=MANAGED if scope.label_selector == MANAGED else ALL,
            part_of=self._part_of(scope),
            shared=self._shared,
            clock=self._clock,
        )
        store.subscribe(partial(self._subscriber.changed, scope))
        informer = Informer(
            self._client,
            store,
            namespace=self._namespace,
            label_selector=scope.label_selector,
            settings=self._settings,
            subscriber=self._subscriber,
            metadata_only=_metadata_part(scope) is not None,
        )
        self._by_scope[scope] = informer
        self._children.pop(scope.type, None)
        self._subscriber.opened(informer)
        if self._tasks is not None:
            self._launch(self._tasks, scope, informer)
        return informer

    def _part_of(self, scope: Scope) -> PartOf:
        """Gives what the store keeps of each object."""
        if scope == (SERVICES, ALL):
            return _address
        return _metadata_part(scope) or (whole if scope.label_selector == ALL else self._child)

    def _child(self, object_: Object) -> Object:
        """The object, or its stub when no job can own it: anybody can set a label."""
        owner = controller_of(object_) or {}
        group = str(owner.get("apiVersion", "")).rpartition("/")[0]
        return object_ if (group, owner.get("kind")) in self._owners else _stub(object_)

    def _launch(self, tasks: TaskGroup, scope: Scope, informer: Informer) -> None:
        tasks.create_task(informer.run(), name=f"informer {scope.type} {scope.label_selector}")
