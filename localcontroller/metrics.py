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

    worker_messages = Row(
        Counter,
        "localcontroller_worker_messages_total",
        "Requests of workers to the worker API, by HTTP status",
        ["code"],
    )
    worker_requests_delayed = Row(
        Counter,
        "localcontroller_worker_requests_delayed",
        "Requests to the worker API that waited, because one sender sent too many",
    )
    connections = Row(
        Gauge,
        "localcontroller_http_connections",
        "Open connections of the worker API and of the status API",
        ["api"],
    )
    connections_cut = Row(
        Counter,
        "localcontroller_http_connections_cut_total",
        "Connections that ended because there was no room",
        ["api"],
    )
    proxied = Row(
        Counter,
        "localcontroller_proxy_requests_total",
        "Requests of workers to the proxy: opened, or the HTTP status of the refusal",
        ["outcome"],
    )
    relay_streams = Row(
        Gauge, "localcontroller_relay_streams", "Connections of workers through the relay"
    )
    reports = Row(
        Counter,
        "localcontroller_reports_total",
        "Reports that the GlobalManager has settled, by outcome: accepted, refused",
        ["outcome"],
    )
    commits = Row(Counter, "localcontroller_commits_total", "Commits of the ledger")
    commit_seconds = Row(
        Histogram,
        "localcontroller_commit_seconds",
        "Duration of a commit of the ledger",
        buckets=COMMIT_BUCKETS_S,
    )
    connects = Row(
        Counter,
        "localcontroller_connects_total",
        "Attempts to open a session with the GlobalManager by outcome: welcomed, failed",
        ["outcome"],
    )
    is_connected = Row(Gauge, "localcontroller_connected", "1 while a session is open")
    ledger_bytes = Row(Gauge, "localcontroller_ledger_bytes", "Ledger and its log on disk")
    ledger_limit_bytes = Row(
        Gauge, "localcontroller_ledger_limit_bytes", "Largest size of the ledger, without its log"
    )
    ledgers_set_aside = Row(
        Gauge,
        "localcontroller_ledgers_set_aside",
        "Damaged ledgers that were replaced and are kept in the state directory",
    )
    _ledger_refusals = Row(
        Counter,
        "localcontroller_ledger_refusals_total",
        "Changes that the ledger refused, by reason: full (disk or limit), failed (disk)",
        ["reason"],
    )
    tasks = Row(Gauge, "localcontroller_tasks", "Tasks held")
    unacked = Row(
        Gauge, "localcontroller_unacked_reports", "Reports that wait for the GlobalManager"
    )

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
