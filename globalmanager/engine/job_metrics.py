"""Prometheus metrics about jobs: what became of them, and how many pods were made for them.

The metrics of training jobs have the names and labels that dashboards for the Kubeflow operator
know (kubeflow/training-operator 1.9, pkg/common/metrics.go). loop calls `written`, `created` and
`deleted` after the API server has accepted a write of this process. The module changes calls
`job_deleted` and `pod_failed` after a change that this process has seen as the leader. So each
transition is counted once, and a restart of the process counts nothing again. The numbers of a
process begin at 0. Only the stalled jobs are those of now, and each replica shows all of them.
"""

from collections.abc import Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from common.metric_table import MetricTable, Row
from edgeai.api.resources import PODS, Object, ResourceType
from edgeai.api.status import condition_of
from edgeai.faults.faults import STALLED
from edgeai.faults.remedies import Cause, cause_of
from globalmanager.contract import Kind

MAX_NAMESPACES: Final = 500
"""Every user who may create a namespace adds a value of the label job_namespace, so the number of
values is bounded. Jobs of further namespaces are counted together under `OTHER`."""
OTHER: Final = "_other"  # no namespace can have this name
_LABELS: Final = ("job_namespace", "framework")
_JOBS: Final = {
    "created": "Training jobs that were created",
    "deleted": "Training jobs that were deleted",
    "successful": "Training jobs that have succeeded",
    "failed": "Training jobs that have failed",
    "restarted": "Restarts of replicas of training jobs",
}
_CHILDREN: Final = {
    "Created": "{} made for training jobs",
    "Deleted": "{} of training jobs deleted",
}


class JobMetrics(MetricTable):
    """The metrics about jobs of all kinds; one instance for each registry."""

    _outcomes = Row(Counter, "edgeai_job_outcomes_total", ("kind", "outcome"))
    """What this process has written into jobs: created, running, restarted, suspended, stalled,
    successful, failed"""
    _failed_pods = Row(Counter, "failed_pods_total")
    """Pods of training jobs that have failed"""
    _stalled = Row(Gauge, "edgeai_jobs_stalled", ("cause",))
    """Jobs with the condition Stalled, by the cause of their first fault"""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self._jobs = {
            outcome: Counter(
                f"training_operator_jobs_{outcome}_total", text, _LABELS, registry=registry
            )
            for outcome, text in _JOBS.items()
        }
        self._children = {
            what: {
                noun: Counter(f"{what.lower()}_{noun}_total", text.format(nouns), registry=registry)
                for noun, nouns in (("pods", "Pods"), ("pod_groups", "PodGroups"))
            }
            for what, text in _CHILDREN.items()
        }
        for cause in Cause:
            self._stalled.labels(cause.name.lower())
        self._namespaces: set[str] = set()

    def written(
        self, kind: Kind, namespace: str, before: Mapping[str, Any], after: Mapping[str, Any]
    ) -> None:
        for outcome, number in kind.outcomes(before, after).items():
            self._outcomes.labels(kind.definition.name, outcome).inc(number)
            self._count(kind, namespace, outcome, number)

    def changed(self, old: Object | None, new: Object | None) -> None:
        """Count jobs that are stalled. Args: old, new: a job before and after any change of it"""
        before, after = _stall(old), _stall(new)
        if before == after:
            return
        if before is not None:
            self._stalled.labels(before.name.lower()).dec()
        if after is not None:
            self._stalled.labels(after.name.lower()).inc()

    def job_deleted(self, kind: Kind, namespace: str) -> None:
        self._count(kind, namespace, "deleted", 1)

    def acted(self, kind: Kind, what: str, type_: ResourceType) -> None:
        """Count a successful action on a child. Args: what: "Created", "Deleted" or another"""
        noun = "pods" if type_ == PODS else "pod_groups" if type_.kind == "PodGroup" else ""
        if kind.framework and noun and what in self._children:
            self._children[what][noun].inc()

    def pod_failed(self, kind: Kind) -> None:
        if kind.framework:
            self._failed_pods.inc()

    def _count(self, kind: Kind, namespace: str, outcome: str, number: int) -> None:
        if kind.framework and outcome in self._jobs:
            labels = self._bounded(namespace), kind.framework
            self._jobs[outcome].labels(*labels).inc(number)

    def _bounded(self, namespace: str) -> str:
        if namespace not in self._namespaces and len(self._namespaces) >= MAX_NAMESPACES:
            return OTHER
        self._namespaces.add(namespace)
        return namespace


def _stall(job: Object | None) -> Cause | None:
    """Why a job does not get on; None when it does."""
    entry = {} if job is None else condition_of(job, STALLED)
    if entry.get("status") != "True":
        return None
    return cause_of(str(entry.get("reason") or ""), str(entry.get("message") or ""))


def has_just_failed(old: Object | None, new: Object | None) -> bool:
    """Whether a pod has failed with this change. One that is listed first may have long ago."""
    if old is None or new is None:
        return False
    phases = [(object_.get("status") or {}).get("phase") for object_ in (old, new)]
    return phases[0] != "Failed" and phases[1] == "Failed"
