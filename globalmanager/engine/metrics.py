"""Prometheus metrics of the engine and of the engine's Kubernetes client."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from common.metric_table import MetricTable, Row
from globalmanager.cache.informer import Informer
from globalmanager.engine.job_metrics import JobMetrics

_REQUEST_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class EngineMetrics(MetricTable):
    """All metrics of one engine; one instance for each registry."""

    reconciles = Row(Counter, "edgeai_reconciles_total", ("kind", "result"))
    """Reconciliations by kind and result: ok, conflict, deposed, refused, unavailable, bug"""
    duration = Row(Histogram, "edgeai_reconcile_duration_seconds", ("kind",))
    """Time from taking a job resource from the queue until it was dealt with"""
    retries = Row(Counter, "edgeai_reconcile_retries_total", ("kind",))
    """Reconciliations that were put off for a backoff"""
    queue_depth = Row(Gauge, "edgeai_queue_depth")
    """Job resources that wait to be reconciled"""
    queue_oldest_s = Row(Gauge, "edgeai_queue_oldest_seconds")
    """Time for which the job resource that is reconciled next has waited; 0 if none waits"""
    leading = Row(Gauge, "edgeai_leading")
    """1 while this replica is the one that reconciles"""
    epoch = Row(Gauge, "edgeai_epoch")
    """Highest epoch seen: grows when another replica begins to lead"""
    stale_s = Row(Gauge, "edgeai_informer_stale_seconds", ("resource", "selector"))
    """Time since an informer lost contact with the Kubernetes API; 0 while it has it"""
    set_aside = Row(Gauge, "edgeai_objects_set_aside", ("resource", "selector"))
    """Objects that cannot be read (too deep, too large, of odd form); others go on"""
    events_dropped = Row(Counter, "edgeai_events_dropped_total")
    """Kubernetes Events that were not recorded, since too many waited or none could be sent"""
    executions = Row(Counter, "edgeai_executions_total", ("kind", "result"))
    """Commands in pods by kind of the job and result: Succeeded, Failed (exit code not 0), PodGone,
    ContainerNotRunning, Forbidden, Timeout, Refused, Cancelled, Bug"""
    executing = Row(Gauge, "edgeai_executions_running")
    """Commands that run in pods now"""
    requests = Row(Counter, "edgeai_kubernetes_requests_total", ("verb", "code"))
    """Requests to the Kubernetes API by verb and HTTP code (none: no answer)"""
    request_duration = Row(
        Histogram, "edgeai_kubernetes_request_duration_seconds", ("verb",), buckets=_REQUEST_BUCKETS
    )
    """Time until the Kubernetes API began to answer"""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.jobs = JobMetrics(registry)
        super().__init__(registry)

    def watch(self, informer: Informer) -> None:
        """Export the state of the informer, as each scrape reads it in the event loop."""
        labels = (str(informer.type), informer.label_selector)
        self.stale_s.labels(*labels).set_function(informer.stale_for_s)
        self.set_aside.labels(*labels).set_function(lambda: len(informer.set_aside))

    def observe_request(self, verb: str, code: str, seconds: float) -> None:
        self.requests.labels(verb, code).inc()
        self.request_duration.labels(verb).observe(seconds)
