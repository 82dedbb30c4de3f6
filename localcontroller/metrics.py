"""The Prometheus metrics of a LocalController. `rest` serves them; the other modules set them."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from localcontroller.ledger.writer import LedgerCommit

COMMIT_BUCKETS_S: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)


class Metrics:
    """The metrics in their own registry, because a test may run several LocalControllers."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.worker_messages = Counter(
            "localcontroller_worker_messages_total",
            "Requests of workers by HTTP status",
            ["code"],
            registry=self.registry,
        )
        self.worker_requests_delayed = Counter(
            "localcontroller_worker_requests_delayed",
            "Requests to the worker API that waited, because there were too many of one sender",
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
            "localcontroller_proxied_total",
            "Requests of workers to the proxy, by HTTP status or opened",
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
            "Reports that the GlobalManager acknowledged or refused",
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
            "Attempts to reach the GlobalManager by outcome",
            ["outcome"],
            registry=self.registry,
        )
        self.is_connected = Gauge(
            "localcontroller_connected", "1 while a session is open", registry=self.registry
        )
        self.ledger_bytes = Gauge(
            "localcontroller_ledger_bytes", "Ledger and its log on disk", registry=self.registry
        )
        self.tasks = Gauge("localcontroller_tasks", "Tasks held", registry=self.registry)
        self.unacked = Gauge(
            "localcontroller_unacked_reports",
            "Reports that wait for the GlobalManager",
            registry=self.registry,
        )

    def count_commit(self, commit: LedgerCommit) -> None:
        if commit.changes:
            self.commits.inc()
            self.commit_seconds.observe(commit.duration_s)
