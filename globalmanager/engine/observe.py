"""Builds the Observed of a job from the stores, and finds the jobs that a change concerns: without
a request to the Kubernetes API, so observing a job takes microseconds.
"""

from collections.abc import Mapping

import msgspec

from edgeai.api.objects import labels_of
from edgeai.api.resources import Object, ObjectRef
from edgeai.api.status import condition_of
from globalmanager.cache.store import by_controller
from globalmanager.contract import Job, Observed, WorkerSettings
from globalmanager.engine.jobs import Jobs
from globalmanager.engine.readers import Readers
from globalmanager.engine.relation import JobRelation
from globalmanager.ha.contacts import Contacts


class Observer:
    """Builds snapshots of jobs, and knows which jobs a changed object belongs to.

    Args: settings: of workers. The engine adds the root key before it observes the first job
    """

    def __init__(self, jobs: Jobs, contacts: Contacts, settings: WorkerSettings) -> None:
        self.jobs = jobs
        self._contacts = contacts
        self.settings = settings
        self.readers = Readers()
        self._decoded: dict[ObjectRef, Job] = {}  # job -> the job at its last `observe`
        self._references = JobRelation[ObjectRef]()  # job -> references
        self._controllers = JobRelation[str]()  # job -> `Owned.controllers`
        self._selectors: dict[ObjectRef, Mapping[str, str]] = {}  # job -> `Kind.node_selector`

    def observe(self, ref: ObjectRef) -> Observed | None:
        """A snapshot of a job resource; None when the resource is gone.

        Raises: an exception that the kind's `read` or `references` raises against the contract
        """
        object_ = self.jobs.get(ref)
        if object_ is None:
            self._forget(ref)
            return None
        kind = self.jobs.kinds[ref.type]
        job = self._decode_job(ref, object_)
        named = kind.references(job)
        references = self.jobs.existing(named)
        caches = self.jobs.caches
        indirect = kind.indirect_references(references) - named
        self._references.set(ref, named | indirect)
        selector = kind.node_selector(job) if kind.node_selector else {}
        self._selectors.pop(ref, None)
        if selector:
            self._selectors[ref] = selector
        objects = self.jobs.owned_by(job)
        self._controllers.set(ref, objects.controllers)
        return Observed(
            type=job.type,
            object=job.object,
            spec=job.spec,
            invalid=job.invalid,
            children=objects.children,
            pods=objects.pods,
            references=references | self.jobs.existing(indirect),
            nodes=self.jobs.nodes_with(selector) if selector else {},
            contacts=self._contacts.by_node(),
            settings=self.settings,
            absent=frozenset(type_ for type_ in kind.owns if caches.lacks_children(type_)),
            readers=self.readers.nodes(ref),
            scalers=self.jobs.scalers(ref),
        )

    def references(self, ref: ObjectRef) -> frozenset[ObjectRef]:
        """The objects that the job referred to at its last `observe`; some may not exist."""
        return self._references.targets(ref)

    def lacks_nodes(self, ref: ObjectRef) -> bool:
        """Whether the job read nodes by their labels at its last `observe`, and the list of nodes
        was not complete. A fleet would lose the workers of the nodes that come later.
        """
        return ref in self._selectors and not self.jobs.caches.has_all_nodes()

    # ---- which jobs a change concerns -----------------------------------------------------------

    def referrers(self, ref: ObjectRef) -> tuple[ObjectRef, ...]:
        """The jobs that refer to the object `ref`, in an order that stays."""
        return self._references.jobs(ref)

    def selecting(self, old: Object | None, new: Object | None) -> tuple[ObjectRef, ...]:
        """The jobs that read a node by its labels, before or after a change of these labels or of
        the condition Ready; none for another change.

        Args: old, new: the node; None where it does not exist
        """
        nodes = [node for node in (old, new) if node is not None]
        states = [labels_of(node) for node in nodes]
        conditions = [condition_of(node, "Ready").get("status") for node in nodes]
        # The kubelets of a large cluster write the status of their nodes all the time.
        if states[1:] == states[:1] and conditions[1:] == conditions[:1]:
            return ()
        return tuple(
            ref
            for ref, selector in self._selectors.items()
            if any(selector.items() <= labels.items() for labels in states)
        )

    def controllers(self, object_: Object) -> set[ObjectRef]:
        """The jobs of which `object_` is a child or a pod."""
        return {ref for key in by_controller(object_) for ref in self._controllers.jobs(key)}

    # ---- parts of a snapshot --------------------------------------------------------------------

    def _decode_job(self, ref: ObjectRef, object_: Object) -> Job:
        entry = self._decoded.get(ref)
        if entry is not None and _is_spec_same(entry.object, object_):
            job = msgspec.structs.replace(entry, object=object_)
        else:
            job = self.jobs.kinds[ref.type].decode(ref.type, object_)
        self._decoded[ref] = job
        return job

    def _forget(self, ref: ObjectRef) -> None:
        self._decoded.pop(ref, None)
        self._references.drop(ref)
        self._controllers.drop(ref)
        self._selectors.pop(ref, None)


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
