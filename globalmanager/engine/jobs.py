"""Answers questions about jobs from the caches: which exist, what belongs to them, what scales
them. No answer needs a request to the Kubernetes API.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from common import logs
from edgeai.api.objects import labels_of
from edgeai.api.pod_state import node_of
from edgeai.api.resources import (
    CONFIG_MAPS,
    NODES,
    POD_CONTROLLERS,
    PODS,
    SERVICES,
    Object,
    ObjectRef,
    ResourceType,
    ref_of,
)
from edgeai.api.status import mapping
from edgeai.ids import NodeName, TaskKey, Uid
from globalmanager.cache.store import controller_key, controller_of, uid_of
from globalmanager.contract import Job, Served, ServicePort
from globalmanager.engine.caches import Caches
from globalmanager.engine.relation import JobRelation

log = logs.get_logger(__name__)


class Owned(NamedTuple):
    """The children and pods of one job.

    An object belongs to a job when it is in the job's namespace and its chain of controllers ends
    at the job's uid. Labels prove nothing, because any user who may create a pod can copy them.
    """

    controllers: frozenset[str]
    """Keys of index "controller" for the job, its Deployments, and the ReplicaSets of these."""
    children: Mapping[ObjectRef, Object]
    pods: tuple[Object, ...]
    """The pods, ordered by name."""


class Jobs:
    """The job resources of all served kinds. Iterating gives (type, job resource)."""

    def __init__(self, caches: Caches) -> None:
        self.kinds = caches.kinds
        self.caches = caches
        self._scaled = JobRelation[ObjectRef]()  # scaler -> its jobs

    @property
    def types(self) -> Collection[ResourceType]:
        return self.kinds.keys()

    def __iter__(self) -> Iterator[tuple[ResourceType, Object]]:
        return ((type_, job) for type_ in self.kinds for job in self.caches.all_of(type_).list())

    def refs(self, namespace: str = "") -> list[ObjectRef]:
        """The names of all jobs, or of those in one namespace."""
        return [
            ref_of(type_, job)
            for type_ in self.kinds
            for job in self.caches.all_of(type_).list(namespace)
        ]

    # ---- one job --------------------------------------------------------------------------------

    def find(self, key: TaskKey) -> Served | None:
        resource, _, rest = key.partition("/")
        namespace, _, name = rest.partition("/")
        for type_, kind in self.kinds.items():
            ref = ObjectRef(type_, namespace, name)
            if str(type_) == resource and (object_ := self.get(ref)) is not None:
                return Served(kind, ref, object_)
        return None

    def get(self, ref: ObjectRef) -> Object | None:
        """A job resource, or an object that jobs refer to."""
        return self.caches.all_of(ref.type).get(ref)

    def by_uid(self, uid: Uid) -> Served | None:
        for type_, kind in self.kinds.items():
            for object_ in self.caches.all_of(type_).find("uid", uid):
                return Served(kind, ref_of(type_, object_), object_)
        return None

    def list(self, plural: str, namespace: str = "") -> tuple[Object, ...]:
        """Job resources by plural ("models") or by plural and group ("models.edgeai.io")."""
        return tuple(
            object_
            for type_ in self.kinds
            if plural in (type_.plural, str(type_))
            for object_ in self.caches.all_of(type_).list(namespace)
        )

    # ---- what belongs to a job ------------------------------------------------------------------

    def owned(self, ref: ObjectRef) -> Owned | None:
        """The children and pods of a job; None when the job is gone."""
        object_ = self.get(ref)
        return None if object_ is None else self.owned_by(Job(type=ref.type, object=object_))

    def owned_by(self, job: Job) -> Owned:
        cached, namespace = self.caches.children, job.ref.namespace

        def key(controller: Object) -> str:
            return controller_key(namespace, uid_of(controller))

        owner = key(job.object)
        children = {
            ref_of(type_, child): child
            for type_ in self.kinds[job.type].owns
            for child in cached(type_).find("controller", owner)
        }
        # Other children control no pods, and a training job may have a thousand of them.
        deployments = {
            key(child): POD_CONTROLLERS[child_ref.type]
            for child_ref, child in children.items()
            if child_ref.type in POD_CONTROLLERS
        }
        replica_sets = (
            key(replica_set)
            for deployment, type_ in deployments.items()
            for replica_set in cached(type_).find("controller", deployment)
        )
        controllers = frozenset({owner, *deployments, *replica_sets})
        pods = (pod for each in controllers for pod in cached(PODS).find("controller", each))
        return Owned(controllers, children, tuple(sorted(pods, key=_name)))

    def cluster_ip(self, uid: Uid, namespace: str, port: ServicePort) -> str:
        """The cluster IP of a Service that is a child of the job `uid`, or selects pods; or ""."""
        ref = ObjectRef(SERVICES, namespace, port.service)
        service = self._child(ref, uid) if port.is_child else self.get(ref)
        spec = mapping((service or {}).get("spec"))
        # Whoever makes a Service without a selector lets it lead to any address of the cluster.
        is_safe = port.is_child or bool(spec.get("selector"))
        address = str(spec.get("clusterIP") or "") if is_safe else ""
        return "" if address == "None" else address

    def slice(self, job: Object, name: str) -> Object | None:
        """The slice of the job with this name (see edgeai.api.slices)."""
        ref = ObjectRef(CONFIG_MAPS, job["metadata"].get("namespace", ""), name)
        return self._child(ref, Uid(uid_of(job)))

    def _child(self, ref: ObjectRef, uid: Uid) -> Object | None:
        """A child of the job `uid`; None where another controller has the object."""
        child = self.caches.children(ref.type).get(ref)
        is_own = child is not None and (controller_of(child) or {}).get("uid") == uid
        return child if is_own else None

    def pods_on(self, node: NodeName, namespace: str = "") -> tuple[Object, ...]:
        """The pods on a node, in all namespaces or in one, that may belong to jobs."""
        pods = self.caches.children(PODS).list(namespace)
        return tuple(sorted((pod for pod in pods if node_of(pod) == node), key=_name))

    def nodes(self) -> tuple[Object, ...]:
        return self.caches.all_of(NODES).list()

    def nodes_with(self, labels: Mapping[str, str]) -> dict[NodeName, Object]:
        return {
            NodeName(node["metadata"]["name"]): node
            for node in self.caches.all_of(NODES)
            if labels.items() <= labels_of(node).items()
        }

    # ---- scalers --------------------------------------------------------------------------------

    def scalers(self, ref: ObjectRef) -> dict[ObjectRef, Object]:
        """The scalers that name the job, the oldest first, those of the same second by name."""

        def age(scaler: tuple[ObjectRef, Object]) -> tuple[str, str]:
            metadata = scaler[1]["metadata"]
            return str(metadata.get("creationTimestamp", "")), str(metadata["name"])

        return dict(sorted(self.existing(self._scaled.jobs(ref)).items(), key=age))

    def scaler_changed(self, scaler: ObjectRef, object_: Object | None) -> frozenset[ObjectRef]:
        """Remember which jobs a scaler names. Args: object_: the scaler; None: it was deleted
        Returns: the jobs that it named before the change or names afterwards
        """
        before = self._scaled.targets(scaler)
        after = () if object_ is None else self._named_by(scaler, object_)
        self._scaled.set(scaler, after)
        return before | self._scaled.targets(scaler)

    def _named_by(self, scaler: ObjectRef, object_: Object) -> Iterator[ObjectRef]:
        for type_, kind in self.kinds.items():
            if scaler.type not in kind.scalers:
                continue
            try:
                name = kind.scalers[scaler.type](object_)
            except Exception:
                # A bug of one kind must not hide the scalers of other kinds.
                log.exception("it is not known what a scaler scales", scaler=str(scaler))
                continue
            if name:
                yield ObjectRef(type_, scaler.namespace, name)

    def existing(self, refs: Iterable[ObjectRef]) -> dict[ObjectRef, Object]:
        objects = ((ref, self.get(ref)) for ref in refs)
        return {ref: object_ for ref, object_ in objects if object_ is not None}


def _name(object_: Object) -> str:
    return str(object_["metadata"]["name"])
