"""The Prometheus metrics of a LocalController. `rest` serves them; the other modules set them."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from edgeai.errors import EdgeAIError, Unavailable
from localcontroller.ledger.tables import LedgerFull
from localcontroller.ledger.writer import LedgerCommit

COMMIT_BUCKETS_S: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)


class Metrics:
    """The metrics in their own registry, because a test may run several LocalControllers."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.worker_messages = Counter(
            "localcontroller_worker_messages_total",
            "Requests of workers to the worker API, by HTTP status",
            ["code"],
            registry=self.registry,
        )
        self.worker_requests_delayed = Counter(
            "localcontroller_worker_requests_delayed",
            "Requests to the worker API that waited, because one sender sent too many",
            registry=self.registry,
        )
        self.connections = Gauge(
            "localcontroller_http_connections",
            "Open connections of the worker API and of the status API",
            ["api"],
            registry=self.registry,
        )
        self.connections_cut = Counter(
            "localcontroller_http_connections_cut_total",
            "Connections that ended because there was no room",
            ["api"],
            registry=self.registry,
        )
        self.proxied = Counter(
            "localcontroller_proxy_requests_total",
            "Requests of workers to the proxy: opened, or the HTTP status of the refusal",
            ["outcome"],
            registry=self.registry,
        )
        self.relay_streams = Gauge(
            "localcontroller_relay_streams",
            "Connections of workers through the relay",
            registry=self.registry,
        )
        self.reports = Counter(
            "localcontroller_reports_total",
            "Reports that the GlobalManager has settled, by outcome: accepted, refused",
            ["outcome"],
            registry=self.registry,
        )
        self.commits = Counter(
            "localcontroller_commits_total", "Commits of the ledger", registry=self.registry
        )
        self.commit_seconds = Histogram(
            "localcontroller_commit_seconds",
            "Duration of a commit of the ledger",
            buckets=COMMIT_BUCKETS_S,
            registry=self.registry,
        )
        self.connects = Counter(
            "localcontroller_connects_total",
            "Attempts to open a session with the GlobalManager by outcome: welcomed, failed",
            ["outcome"],
            registry=self.registry,
        )
        self.is_connected = Gauge(
            "localcontroller_connected", "1 while a session is open", registry=self.registry
        )
        self.ledger_bytes = Gauge(
            "localcontroller_ledger_bytes", "Ledger and its log on disk", registry=self.registry
        )
        self.ledger_limit_bytes = Gauge(
            "localcontroller_ledger_limit_bytes",
            "Largest size of the ledger, without its log",
            registry=self.registry,
        )
        self.ledgers_set_aside = Gauge(
            "localcontroller_ledgers_set_aside",
            "Damaged ledgers that were replaced and are kept in the state directory",
            registry=self.registry,
        )
        ledger_refusals = Counter(
            "localcontroller_ledger_refusals_total",
            "Changes that the ledger refused, by reason: full (disk or limit), failed (disk)",
            ["reason"],
            registry=self.registry,
        )
        self.ledger_refusals = {
            reason: ledger_refusals.labels(reason=reason) for reason in ("full", "failed")
        }
        self.tasks = Gauge("localcontroller_tasks", "Tasks held", registry=self.registry)
        self.unacked = Gauge(
            "localcontroller_unacked_reports",
            "Reports that wait for the GlobalManager",
            registry=self.registry,
        )

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
