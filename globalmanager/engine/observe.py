"""Builds the Observed of a job from the stores, and finds the jobs that a change concerns.

The observer sends no request to the Kubernetes API, so observing a job takes microseconds.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from common import logs
from globalmanager.cache.followed import CacheOf
from globalmanager.cache.store import StoreOf, by_controller, controller_key, uid_of
from globalmanager.contract import (
    POD_CONTROLLERS,
    PODS,
    Job,
    Kind,
    Object,
    ObjectRef,
    Observed,
    ResourceType,
    WorkerSettings,
    ref_of,
)
from globalmanager.engine.relation import JobRelation
from globalmanager.ha.contacts import Contacts

log = logs.get_logger(__name__)


class Owned(NamedTuple):
    """The children and pods of one job.

    An object belongs to a job when it is in the job's namespace and its chain of controllers ends
    at the job's uid. Labels prove nothing, because any user who may create a pod can copy them.
    """

    controllers: frozenset[str]
    """Keys of index "controller" for the job, its children, and the ReplicaSets of its children."""
    children: Mapping[ObjectRef, Object]
    pods: tuple[Object, ...]
    """The pods, ordered by name."""


def find_owned(kind: Kind, job: Job, cached: CacheOf) -> Owned:
    """The children and pods of `job` in the stores.

    Args: cached: caches of the objects that may be children
    """
    namespace = job.ref.namespace

    def key(controller: Object) -> str:
        return controller_key(namespace, uid_of(controller))

    owner = key(job.object)
    children = {
        ref_of(type_, child): child
        for type_ in kind.owns
        for child in cached(type_).find("controller", owner)
    }
    replica_sets = (
        replica_set
        for child_ref, child in children.items()
        if (type_ := POD_CONTROLLERS.get(child_ref.type)) is not None
        for replica_set in cached(type_).find("controller", key(child))
    )
    controllers = frozenset({owner, *map(key, children.values()), *map(key, replica_sets)})
    pods = (pod for each in controllers for pod in cached(PODS).find("controller", each))
    by_name = sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))
    return Owned(controllers, children, tuple(by_name))


class Observer:
    """Builds snapshots of jobs, and knows which jobs a changed object belongs to.

    The observer remembers three things about each job: the decoded spec, the objects that the job
    refers to, and the keys of the job's controllers. The observer also remembers which job each
    scaler names.

    Args:
        kinds: the served job resources
        all_of: stores with all objects of a type
        children: caches with the objects of a type that may be children
        contacts: knows which nodes have a session
        is_absent: whether the API server does not serve a type
        settings: settings that shape workers. The kinds get the settings in each Observed. The
            engine adds the root key before it observes the first job
    """

    def __init__(
        self,
        kinds: Mapping[ResourceType, Kind],
        *,
        all_of: StoreOf,
        children: CacheOf,
        contacts: Contacts,
        settings: WorkerSettings,
        is_absent: Callable[[ResourceType], bool] = lambda _type: False,
    ) -> None:
        self._kinds = kinds
        self._is_absent = is_absent
        self._all_of = all_of
        self._children = children
        self._contacts = contacts
        self.settings = settings
        self._jobs: dict[ObjectRef, Job] = {}  # job -> the job at its last `observe`
        self._references: JobRelation[ObjectRef, ObjectRef] = JobRelation()  # job -> references
        self._controllers: JobRelation[ObjectRef, str] = JobRelation()  # job -> `Owned.controllers`
        self._jobs_of_scaler: JobRelation[ObjectRef, ObjectRef] = (
            JobRelation()
        )  # scaler -> its jobs

    def observe(self, ref: ObjectRef) -> Observed | None:
        """A snapshot of a job resource; None when the resource is gone.

        Raises: an exception that the kind's `read` or `references` raises against the contract
        """
        object_ = self.find(ref)
        if object_ is None:
            self._forget(ref)
            return None
        kind = self._kinds[ref.type]
        job = self._decode_job(ref, object_)
        named = kind.references(job)
        references = self._existing_objects(named)
        indirect = kind.indirect_references(references) - named
        self._references.set(ref, named | indirect)
        owned = find_owned(kind, job, self._children)
        self._controllers.set(ref, owned.controllers)
        return Observed(
            type=job.type,
            object=job.object,
            spec=job.spec,
            invalid=job.invalid,
            children=owned.children,
            pods=owned.pods,
            references=references | self._existing_objects(indirect),
            contacts=self._contacts.by_node(),
            settings=self.settings,
            absent=frozenset(type_ for type_ in kind.owns if self._is_absent(type_)),
            scalers=self.scalers(ref),
        )

    def owned(self, ref: ObjectRef) -> Owned | None:
        """The children and pods of a job; None when the job is gone."""
        object_ = self.find(ref)
        job = None if object_ is None else Job(type=ref.type, object=object_)
        return None if job is None else find_owned(self._kinds[ref.type], job, self._children)

    def scalers(self, ref: ObjectRef) -> dict[ObjectRef, Object]:
        """The scalers that name the job, the oldest first. Scalers of the same second are ordered
        by name.
        """

        def age(scaler: tuple[ObjectRef, Object]) -> tuple[str, str]:
            metadata = scaler[1]["metadata"]
            return str(metadata.get("creationTimestamp", "")), str(metadata["name"])

        return dict(sorted(self._existing_objects(self._jobs_of_scaler.jobs(ref)).items(), key=age))

    def find(self, ref: ObjectRef) -> Object | None:
        """A job resource or an object that jobs refer to, as the store has it."""
        return self._all_of(ref.type).get(ref)

    def references(self, ref: ObjectRef) -> frozenset[ObjectRef]:
        """The objects that the job referred to at its last `observe`. Some of them may not
        exist.
        """
        return self._references.targets(ref)

    # ---- which jobs a change concerns -----------------------------------------------------------

    def referrers(self, ref: ObjectRef) -> tuple[ObjectRef, ...]:
        """The jobs that refer to the object `ref`, in an order that stays."""
        return self._references.jobs(ref)

    def controllers(self, object_: Object) -> set[ObjectRef]:
        """The jobs of which `object_` is a child or a pod."""
        return {ref for key in by_controller(object_) for ref in self._controllers.jobs(key)}

    def scaled(self, scaler: ObjectRef, object_: Object | None) -> frozenset[ObjectRef]:
        """The jobs that a scaler named before a change, and the jobs that the scaler names
        afterwards.

        Args: object_: the scaler after the change; None when the scaler was deleted
        """
        before = self._jobs_of_scaler.targets(scaler)
        after = () if object_ is None else self._jobs_named_by(scaler, object_)
        self._jobs_of_scaler.set(scaler, after)
        return before | self._jobs_of_scaler.targets(scaler)

    def _jobs_named_by(self, scaler: ObjectRef, object_: Object) -> Iterator[ObjectRef]:
        for type_, kind in self._kinds.items():
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

    # ---- parts of a snapshot --------------------------------------------------------------------

    def _decode_job(self, ref: ObjectRef, object_: Object) -> Job:
        known = self._jobs.get(ref)
        if known is not None and _is_spec_same(known.object, object_):
            job = msgspec.structs.replace(known, object=object_)
        else:
            job = self._kinds[ref.type].decode(ref.type, object_)
        self._jobs[ref] = job
        return job

    def _existing_objects(self, refs: Iterable[ObjectRef]) -> dict[ObjectRef, Object]:
        found = ((ref, self.find(ref)) for ref in refs)
        return {ref: object_ for ref, object_ in found if object_ is not None}

    def _forget(self, ref: ObjectRef) -> None:
        self._jobs.pop(ref, None)
        self._references.drop(ref)
        self._controllers.drop(ref)


def _is_spec_same(old: Object, new: Object) -> bool:
    """Whether `Kind.read` gives the same spec for two states of a job.

    The function compares the specs, because `generation` is not enough. In a cluster that was
    restored from a backup, a job may have the same generation with another spec.
    """
    before, after = old["metadata"], new["metadata"]
    return (
        before.get("uid") == after.get("uid")
        and before.get("annotations") == after.get("annotations")
        and old.get("spec") == new.get("spec")
    )
