"""Prometheus metrics of the edge side: handshakes, sessions, reports. /metrics shows them."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_ASSIGN_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class EdgeMetrics:
    """All metrics of the edge side; one instance for each registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.sessions = Gauge(
            "edgeai_edge_sessions", "Nodes with an open session", registry=registry
        )
        self.nodes = Gauge(
            "edgeai_edge_nodes",
            "Edge nodes with tasks, by whether they have a session at any replica: open, lost",
            ["contact"],
            registry=registry,
        )
        self.handshakes = Counter(
            "edgeai_edge_handshakes",
            "Handshakes by outcome: admitted, no TLS, no room, or the HTTP status of the refusal",
            ["outcome"],
            registry=registry,
        )
        self.ended = Counter(
            "edgeai_edge_sessions_ended",
            "Ended sessions by close code",
            ["code"],
            registry=registry,
        )
        self.moved = Counter(
            "edgeai_edge_sessions_moved",
            "Nodes sent to another replica, because this one had more than its share",
            registry=registry,
        )
        self.reviews = Counter(
            "edgeai_edge_reviews",
            "Reviews of live sessions' credentials by outcome: good, revoked, unavailable",
            ["outcome"],
            registry=registry,
        )
        frames = Counter(
            "edgeai_edge_messages",
            "WebSocket messages of sessions: in from nodes, out to nodes",
            ["direction"],
            registry=registry,
        )
        self.messages_in = frames.labels("in")
        self.messages_out = frames.labels("out")
        self.reports = Counter(
            "edgeai_edge_reports",
            "Settled reports by outcome: done, refused, dropped, foreign, malformed",
            ["outcome"],
            registry=registry,
        )
        self.inbox_reports = Gauge(
            "edgeai_edge_inbox_reports", "Reports not yet acknowledged", registry=registry
        )
        self.inbox_bytes = Gauge(
            "edgeai_edge_inbox_bytes", "Bytes of the reports that wait", registry=registry
        )
        self.inbox_oldest_s = Gauge(
            "edgeai_edge_inbox_oldest_seconds",
            "Time for which the oldest report waits to be written; 0 if none waits",
            registry=registry,
        )
        self.assign_to_ack_s = Histogram(
            "edgeai_edge_assign_to_ack_seconds",
            "From a change of what a node must hold to its acknowledgement",
            buckets=_ASSIGN_BUCKETS_S,
            registry=registry,
        )
        self.assignment_oldest_s = Gauge(
            "edgeai_edge_assignment_oldest_seconds",
            "Time for which a node with a session has not acknowledged a change of what it must "
            "hold, of the node that takes longest; 0 if all have",
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
            "edgeai_edge_relay_opened",
            "Streams that nodes wanted, by outcome: opened, or why not",
            ["outcome"],
            registry=registry,
        )
        self.certificate_expiry = Gauge(
            "edgeai_edge_certificate_expiry_timestamp_seconds",
            "Unix time at which the first certificate ends, of the edge port or of the nodes that "
            "have a session with a client certificate",
            ["holder"],
            registry=registry,
        )
