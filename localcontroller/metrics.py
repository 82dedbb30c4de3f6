"""The Prometheus metrics of a LocalController. `rest` serves them; the other modules set them."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from common.metric_table import MetricTable, Row
from edgeai.errors import EdgeAIError, Unavailable
from localcontroller.ledger.tables import LedgerFull
from localcontroller.ledger.writer import LedgerCommit

COMMIT_BUCKETS_S: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)


class Metrics(MetricTable):
    """The metrics in their own registry, because a test may run several LocalControllers."""

    worker_messages = Row(Counter, "localcontroller_worker_messages_total", ["code"])
    """Requests of workers to the worker API, by HTTP status"""
    worker_requests_delayed = Row(Counter, "localcontroller_worker_requests_delayed")
    """Requests to the worker API that waited, because one sender sent too many"""
    connections = Row(Gauge, "localcontroller_http_connections", ["api"])
    """Open connections of the worker API and of the status API"""
    connections_cut = Row(Counter, "localcontroller_http_connections_cut_total", ["api"])
    """Connections that ended because there was no room"""
    proxied = Row(Counter, "localcontroller_proxy_requests_total", ["outcome"])
    """Requests of workers to the proxy: opened, or the HTTP status of the refusal"""
    relay_streams = Row(Gauge, "localcontroller_relay_streams")
    """Connections of workers through the relay"""
    reports = Row(Counter, "localcontroller_reports_total", ["outcome"])
    """Reports that the GlobalManager has settled, by outcome: accepted, refused"""
    commits = Row(Counter, "localcontroller_commits_total")
    """Commits of the ledger"""
    commit_seconds = Row(Histogram, "localcontroller_commit_seconds", buckets=COMMIT_BUCKETS_S)
    """Duration of a commit of the ledger"""
    connects = Row(Counter, "localcontroller_connects_total", ["outcome"])
    """Attempts to open a session with the GlobalManager by outcome: welcomed, failed"""
    is_connected = Row(Gauge, "localcontroller_connected")
    """1 while a session is open"""
    ledger_bytes = Row(Gauge, "localcontroller_ledger_bytes")
    """Ledger and its log on disk"""
    ledger_limit_bytes = Row(Gauge, "localcontroller_ledger_limit_bytes")
    """Largest size of the ledger, without its log"""
    ledgers_set_aside = Row(Gauge, "localcontroller_ledgers_set_aside")
    """Damaged ledgers that were replaced and are kept in the state directory"""
    _ledger_refusals = Row(Counter, "localcontroller_ledger_refusals_total", ["reason"])
    """Changes that the ledger refused, by reason: full (disk or limit), failed (disk)"""
    tasks = Row(Gauge, "localcontroller_tasks")
    """Tasks held"""
    unacked = Row(Gauge, "localcontroller_unacked_reports")
    """Reports that wait for the GlobalManager"""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        super().__init__(self.registry)
        self.ledger_refusals = {
            reason: self._ledger_refusals.labels(reason=reason) for reason in ("full", "failed")
        }

    def count_refusal(self, error: EdgeAIError) -> None:
        """Count an operation that the ledger could not carry out."""
        if isinstance(error, LedgerFull):
            self.ledger_refusals["full"].inc()
        elif isinstance(error, Unavailable):
            self.ledger_refusals["failed"].inc()

    def count_commit(self, commit: LedgerCommit) -> None:
        if commit.changes:
            self.commits.inc()
            self.commit_seconds.observe(commit.duration_s)
