"""Prometheus metrics of the edge side: handshakes, sessions, reports. /metrics shows them."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_ASSIGN_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class EdgeMetrics:
    """All metrics of the edge side; one instance for each registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.sessions = Gauge(
            "edgeai_edge_sessions", "Nodes with an open session", registry=registry
        )
        self.handshakes = Counter(
            "edgeai_edge_handshakes",
            "Answered handshakes by outcome",
            ["outcome"],
            registry=registry,
        )
        self.ended = Counter(
            "edgeai_edge_sessions_ended", "Ended sessions by code", ["code"], registry=registry
        )
        self.moved = Counter(
            "edgeai_edge_sessions_moved",
            "Nodes sent to another replica, because this one had more than its share",
            registry=registry,
        )
        self.reviews = Counter(
            "edgeai_edge_reviews",
            "Reviews of live sessions' credentials by outcome",
            ["outcome"],
            registry=registry,
        )
        frames = Counter(
            "edgeai_edge_messages", "WebSocket messages", ["direction"], registry=registry
        )
        self.messages_in = frames.labels("in")
        self.messages_out = frames.labels("out")
        self.reports = Counter(
            "edgeai_edge_reports", "Settled reports by outcome", ["outcome"], registry=registry
        )
        self.inbox_reports = Gauge(
            "edgeai_edge_inbox_reports", "Reports not yet acknowledged", registry=registry
        )
        self.inbox_bytes = Gauge(
            "edgeai_edge_inbox_bytes", "Bytes of the reports that wait", registry=registry
        )
        self.assign_to_ack_s = Histogram(
            "edgeai_edge_assign_to_ack_seconds",
            "From a change of what a node must hold to its acknowledgement",
            buckets=_ASSIGN_BUCKETS_S,
            registry=registry,
        )
        self.assignments_refused = Counter(
            "edgeai_edge_assignments_refused", "Assignments a node refused", registry=registry
        )
        self.tasks_left_out = Gauge(
            "edgeai_edge_tasks_left_out",
            "Tasks that a node does not get, because there are too many for it",
            registry=registry,
        )
        self.relays = Gauge("edgeai_edge_relays", "Nodes with an open relay", registry=registry)
        self.relay_streams = Gauge(
            "edgeai_edge_relay_streams", "Streams to Services of the cluster", registry=registry
        )
        self.relay_opened = Counter(
            "edgeai_edge_relay_opened", "Wanted streams by outcome", ["outcome"], registry=registry
        )
