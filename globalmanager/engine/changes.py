"""Turns each change of a cached object into the keys of the jobs that the change concerns.

A job with a new assignment goes to the assigner at once, on every replica. Each job that the change
concerns waits in the queue for its plan. Jobs that only name the object, of which there may be
thousands, get there a few at a time (see fan_out).
"""

from collections.abc import Mapping
from typing import Any, Final

from edgeai.api import slices
from edgeai.api.objects import LABEL_KIND, LABEL_NAME, has_role, label_of
from edgeai.api.resources import (
    CONFIG_MAPS,
    NAMESPACES,
    NODES,
    POD_CONTROLLERS,
    PODS,
    Object,
    ObjectRef,
    ref_of,
)
from edgeai.api.status import mapping
from edgeai.ids import TaskKey
from globalmanager.cache.informers import ALL, Scope
from globalmanager.cache.store import controller_of
from globalmanager.contract import Kind
from globalmanager.engine.assign import Assigner, concerns_assignments
from globalmanager.engine.fan_out import FanOut
from globalmanager.engine.job_metrics import JobMetrics, has_just_failed
from globalmanager.engine.observe import Observer
from globalmanager.engine.owners import Owners
from globalmanager.engine.pod_admission import concerns_pods
from globalmanager.engine.queue import WorkQueue
from globalmanager.engine.reconcile import JobReconciler
from globalmanager.engine.status import status_of
from globalmanager.ha.fence import Fence

# Fields of a worker's entry of .status.workers that a plan of a kind with `sums` may read later.
_COUNTS: Final = frozenset({"taskInfo", "revision", "details", "observedAt"})


class ChangeHandler:
    """
    Args:
        reconciler: learns which jobs are in a namespace that asks for another Pod Security Standard
        fence: open while this replica leads; only the leader counts
        counts_s: as `EngineSettings.counts_s`
    """

    def __init__(
        self,
        observer: Observer,
        *,
        queue: WorkQueue,
        fan_out: FanOut,
        assigner: Assigner,
        owners: Owners,
        reconciler: JobReconciler,
        fence: Fence,
        metrics: JobMetrics,
        counts_s: float,
    ) -> None:
        self._jobs = observer.jobs
        self._observer = observer
        self._queue = queue
        self._fan_out = fan_out
        self._assigner = assigner
        self._owners = owners
        self._reconciler = reconciler
        self._fence = fence
        self._metrics = metrics
        self._counts_s = counts_s

    def changed(self, scope: Scope, old: Object | None, new: Object | None) -> None:
        """Args: old, new: the object before and after the change; None where it is not there"""
        # A ReplicaSet that still connects the same pods with the same controller is no news.
        is_link = scope.type in POD_CONTROLLERS.values()
        if is_link and old and new and controller_of(old) == controller_of(new):
            return
        if scope.type == NAMESPACES:
            self._namespace_changed(old, new)
            return
        self._tell_owners(scope, old, new)
        self._count(scope, old, new)
        concerned = sorted(self._concerned(scope, old, new), key=str)
        kind = self._jobs.kinds.get(scope.type)
        decisions = kind.decisions if kind else ()
        is_news_for_nodes = concerns_assignments(scope.type, old, new, decisions)
        if is_news_for_nodes:
            for ref in concerned:
                self._assigner.changed(ref)
        # The plan has nothing to decide about the change.
        may_wait = kind is not None and only_counts_differ(kind, old, new)
        later = ref_of(scope.type, new) if may_wait and new is not None else None
        is_slice = old and new and scope.type == CONFIG_MAPS and has_role(new, slices.ROLE)
        for ref in concerned:
            if ref == later or is_slice:
                self._queue.add_after(ref, self._counts_s)
            else:
                self._queue.add(ref)
        self._fan_out_to_referrers(scope, old, new, is_news_for_nodes=is_news_for_nodes)

    def _fan_out_to_referrers(
        self, scope: Scope, old: Object | None, new: Object | None, *, is_news_for_nodes: bool
    ) -> None:
        """Queue the jobs that name the changed object, or read it as a node by its labels."""
        object_ = new or old
        if scope.label_selector != ALL or object_ is None:
            return
        ref = ref_of(scope.type, object_)
        referrers = self._observer.referrers(ref)
        if scope.type == NODES:
            referrers = tuple(dict.fromkeys((*referrers, *self._observer.selecting(old, new))))
        self._fan_out.changed(ref, referrers)
        if is_news_for_nodes:
            self._assigner.reference_changed(ref, referrers)

    def _namespace_changed(self, old: Object | None, new: Object | None) -> None:
        """Queue the jobs of a namespace that asks for another Pod Security Standard."""
        namespace = new or old
        if namespace is None or not concerns_pods(old, new):
            return
        name = str(namespace["metadata"]["name"])
        jobs = self._jobs.refs(name)
        for ref in jobs if old is not None else ():
            self._reconciler.level_changed(ref)
        self._fan_out.changed(ref_of(NAMESPACES, namespace), jobs)

    def _tell_owners(self, scope: Scope, old: Object | None, new: Object | None) -> None:
        if scope.label_selector == ALL:
            if scope.type in self._jobs.kinds:
                self._owners.changed(old, new)
                self._metrics.changed(old, new)
        elif old is not None and new is None and (owner := controller_of(old)) is not None:
            self._owners.lost_child(owner["uid"])

    def _count(self, scope: Scope, old: Object | None, new: Object | None) -> None:
        """Count deleted jobs and failed pods. Only the leader counts, so each counts once."""
        if not self._fence.is_open or old is None:
            return
        if new is None and scope.type in self._jobs.kinds:
            namespace = ref_of(scope.type, old).namespace
            self._metrics.job_deleted(self._jobs.kinds[scope.type], namespace)
        elif scope.type == PODS and new is not None and has_just_failed(old, new):
            for ref in self._observer.controllers(new):
                self._metrics.pod_failed(self._jobs.kinds[ref.type])

    def _concerned(self, scope: Scope, old: Object | None, new: Object | None) -> set[ObjectRef]:
        """The jobs that a change of an object concerns, without those that only name it."""
        states = [object_ for object_ in (old, new) if object_ is not None]
        if scope.label_selector != ALL:
            return {
                ref
                for state in states
                for ref in self._observer.controllers(state) or self._namesake(state)
            }
        ref = ref_of(scope.type, states[0])
        itself = {ref} if scope.type in self._jobs.kinds else set()
        return itself | self._jobs.scaler_changed(ref, new)

    def _namesake(self, object_: Object) -> set[ObjectRef]:
        """The job that the labels of `object_` name, which may wait until it frees a name."""
        kind, name = label_of(object_, LABEL_KIND), label_of(object_, LABEL_NAME)
        namespace = object_["metadata"].get("namespace", "")
        job = self._jobs.find(TaskKey(f"{kind}/{namespace}/{name}"))
        return set() if job is None else {job.ref}


def only_counts_differ(kind: Kind, old: Object | None, new: Object | None) -> bool:
    """Whether a change of a job was nothing but a report with new counts of known workers. Plans
    would decide nothing about thousands of these: `fold` has already written the sums.
    """
    if not kind.sums or old is None or new is None:
        return False
    if concerns_assignments(kind.definition.resources[0], old, new):
        return False
    before, after = status_of(old), status_of(new)
    count_fields = kind.sums | {"workers"}
    is_rest_same = _without(before, count_fields) == _without(after, count_fields)
    return is_rest_same and _workers(before) == _workers(after)


def _workers(status: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    entries = mapping(status.get("workers"))
    return {name: _without(mapping(entry), _COUNTS) for name, entry in entries.items()}


def _without(fields: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}
