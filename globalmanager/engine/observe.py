"""Builds what a plan sees, from the stores alone: no request, so it costs microseconds."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from common import logs
from globalmanager.cache.index import Relation
from globalmanager.cache.store import Store, by_controller, controller_key, uid_of
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
from globalmanager.ha.contacts import Contacts

log = logs.get_logger(__name__)

StoreOf = Callable[[ResourceType], Store]


class Owned(NamedTuple):
    """What belongs to one job resource.

    An object belongs to a job when it is in the job's namespace and its controllers lead to the
    job's uid. Labels are no proof: anybody who may create a pod in any namespace can copy them.
    """

    controllers: frozenset[str]
    """Keys of index "controller" for the job, its children, and what Kubernetes made for them."""
    children: Mapping[ObjectRef, Object]
    pods: tuple[Object, ...]
    """Ordered by name."""


def find_owned(kind: Kind, job: Job, managed: StoreOf) -> Owned:
    """Args: managed: stores of what carries the label of what edgeai created"""

    namespace = job.ref.namespace

    def key(controller: Object) -> str:
        return controller_key(namespace, uid_of(controller))

    owner = key(job.object)
    children = {
        ref_of(type_, child): child
        for type_ in kind.owns
        for child in managed(type_).find("controller", owner)
    }
    between = (
        made
        for child_ref, child in children.items()
        if (type_ := POD_CONTROLLERS.get(child_ref.type)) is not None
        for made in managed(type_).find("controller", key(child))
    )
    controllers = frozenset({owner, *map(key, children.values()), *map(key, between)})
    pods = (pod for each in controllers for pod in managed(PODS).find("controller", each))
    by_name = sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))
    return Owned(controllers, children, tuple(by_name))


class Observer:
    """What the stores say of each job resource, and which jobs a change of a store concerns.

    Called by loop and assign. Keeps, for each job that is there: the job with its spec decoded,
    what the job refers to, and the keys of the job's controllers. Keeps for each scaler which job
    it names.

    Args:
        kinds: the served job resources
        all_of: stores of everything of a type
        managed: stores of what edgeai created of a type
        contacts: knows which nodes have a session
        settings: settings that shape workers; handed to the kinds. Their root key is filled in
            before anything is observed
    """

    def __init__(
        self,
        kinds: Mapping[ResourceType, Kind],
        *,
        all_of: StoreOf,
        managed: StoreOf,
        contacts: Contacts,
        settings: WorkerSettings,
    ) -> None:
        self._kinds = kinds
        self._all_of = all_of
        self._managed = managed
        self._contacts = contacts
        self.settings = settings
        self._jobs: dict[ObjectRef, Job] = {}  # as they were observed last
        self._references: Relation[ObjectRef, ObjectRef] = Relation()  # job -> what it refers to
        self._controllers: Relation[ObjectRef, str] = Relation()  # job -> `Owned.controllers`
        self._scaled: Relation[ObjectRef, ObjectRef] = Relation()  # scaler -> the jobs it names

    def observe(self, ref: ObjectRef) -> Observed | None:
        """Snapshot of a job resource; None when it is gone.

        Raises: whatever the kind's `read` or `references` raises against the contract
        """
        object_ = self.find(ref)
        if object_ is None:
            self._forget(ref)
            return None
        kind = self._kinds[ref.type]
        job = self._decoded(ref, object_)
        self._references.set(ref, kind.references(job))
        owned = find_owned(kind, job, self._managed)
        self._controllers.set(ref, owned.controllers)
        return Observed(
            type=job.type,
            object=job.object,
            spec=job.spec,
            invalid=job.invalid,
            children=owned.children,
            pods=owned.pods,
            references=self._present(self._references.targets(ref)),
            contacts=self._contacts.by_node(),
            settings=self.settings,
            scalers=self._scalers(ref),
        )

    def find(self, ref: ObjectRef) -> Object | None:
        """An object of which the stores have everything: a job resource or what one refers to."""
        return self._all_of(ref.type).get(ref)

    def references(self, ref: ObjectRef) -> frozenset[ObjectRef]:
        """What the job referred to when it was observed last, present or not."""
        return self._references.targets(ref)

    # ---- which jobs a change concerns -----------------------------------------------------------

    def referrers(self, ref: ObjectRef) -> frozenset[ObjectRef]:
        """The jobs that refer to an object."""
        return self._references.of(ref)

    def controllers(self, object_: Object) -> set[ObjectRef]:
        """The jobs whose pod or child an object is. Both are of one namespace."""
        return {ref for key in by_controller(object_) for ref in self._controllers.of(key)}

    def scaled(self, scaler: ObjectRef, object_: Object | None) -> frozenset[ObjectRef]:
        """The jobs that a scaler named until now or names from now on.

        Args: object_: the scaler as it is now; None: it is gone
        """
        before = self._scaled.targets(scaler)
        self._scaled.set(scaler, self._named(scaler, object_) if object_ is not None else ())
        return before | self._scaled.targets(scaler)

    def _named(self, scaler: ObjectRef, object_: Object) -> Iterator[ObjectRef]:
        for type_, kind in self._kinds.items():
            if scaler.type not in kind.scalers:
                continue
            try:
                name = kind.scalers[scaler.type](object_)
            except Exception:
                # A kind's bug must not keep the job from what other scalers want of it.
                log.exception("it is not known what a scaler scales", scaler=str(scaler))
                continue
            if name:
                yield ObjectRef(type_, scaler.namespace, name)

    # ---- parts of a snapshot --------------------------------------------------------------------

    def _decoded(self, ref: ObjectRef, object_: Object) -> Job:
        known = self._jobs.get(ref)
        if known is not None and _is_spec_same(known.object, object_):
            job = msgspec.structs.replace(known, object=object_)
        else:
            job = self._kinds[ref.type].decode(ref.type, object_)
        self._jobs[ref] = job
        return job

    def _present(self, refs: Iterable[ObjectRef]) -> dict[ObjectRef, Object]:
        found = ((ref, self.find(ref)) for ref in refs)
        return {ref: object_ for ref, object_ in found if object_ is not None}

    def _scalers(self, ref: ObjectRef) -> dict[ObjectRef, Object]:
        """The oldest first; of those that were created in the same second, by name."""

        def age(scaler: tuple[ObjectRef, Object]) -> tuple[str, str]:
            metadata = scaler[1]["metadata"]
            return str(metadata.get("creationTimestamp", "")), str(metadata["name"])

        return dict(sorted(self._present(self._scaled.of(ref)).items(), key=age))

    def _forget(self, ref: ObjectRef) -> None:
        self._jobs.pop(ref, None)
        self._references.drop(ref)
        self._controllers.drop(ref)


def _is_spec_same(old: Object, new: Object) -> bool:
    """Whether two states of one name are the same to `Kind.read`.

    `generation` is no proof: in a cluster that was restored from a backup, the same generation can
    have another spec.
    """
    before, after = old["metadata"], new["metadata"]
    return (
        before.get("uid") == after.get("uid")
        and before.get("annotations") == after.get("annotations")
        and old.get("spec") == new.get("spec")
    )
