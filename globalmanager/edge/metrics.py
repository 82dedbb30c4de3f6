"""Prometheus metrics of the edge side: handshakes, sessions, reports. /metrics shows them."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from common.metric_table import MetricTable, Row

_ASSIGN_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class EdgeMetrics(MetricTable):
    """All metrics of the edge side; one instance for each registry."""

    sessions = Row(Gauge, "edgeai_edge_sessions")
    """Nodes with an open session"""
    nodes = Row(Gauge, "edgeai_edge_nodes", ["contact"])
    """Edge nodes with tasks, by whether they have a session at any replica: open, lost"""
    handshakes = Row(Counter, "edgeai_edge_handshakes", ["outcome"])
    """Handshakes by outcome: admitted, no TLS, no room, or the HTTP status of the refusal"""
    ends = Row(Counter, "edgeai_edge_sessions_ended", ["code"])
    """Ended sessions by close code"""
    moves = Row(Counter, "edgeai_edge_sessions_moved")
    """Nodes sent to another replica, because this one had more than its share"""
    reviews = Row(Counter, "edgeai_edge_reviews", ["outcome"])
    """Reviews of live sessions' credentials by outcome: good, revoked, unavailable"""
    frames = Row(Counter, "edgeai_edge_messages", ["direction"])
    """WebSocket messages of sessions: in from nodes, out to nodes"""
    reports = Row(Counter, "edgeai_edge_reports", ["outcome"])
    """Settled reports by outcome: done, refused, dropped, foreign, malformed"""
    inbox_reports = Row(Gauge, "edgeai_edge_inbox_reports")
    """Reports not yet acknowledged"""
    inbox_bytes = Row(Gauge, "edgeai_edge_inbox_bytes")
    """Bytes of the reports that wait"""
    inbox_oldest_s = Row(Gauge, "edgeai_edge_inbox_oldest_seconds")
    """Time for which the oldest report waits to be written; 0 if none waits"""
    assign_to_ack_s = Row(Histogram, "edgeai_edge_assign_to_ack_seconds", buckets=_ASSIGN_BUCKETS_S)
    """From a change of what a node must hold to its acknowledgement"""
    assignment_oldest_s = Row(Gauge, "edgeai_edge_assignment_oldest_seconds")
    """Time for which a node with a session has not acknowledged a change of what it must hold, of
    the node that takes longest; 0 if all have"""
    assignments_refused = Row(Counter, "edgeai_edge_assignments_refused")
    """Assignments a node refused"""
    tasks_left_out = Row(Gauge, "edgeai_edge_tasks_left_out")
    """Tasks that a node does not get, because there are too many for it"""
    relays = Row(Gauge, "edgeai_edge_relays")
    """Nodes with an open relay"""
    relay_streams = Row(Gauge, "edgeai_edge_relay_streams")
    """Streams to Services of the cluster"""
    relay_opened = Row(Counter, "edgeai_edge_relay_opened", ["outcome"])
    """Streams that nodes wanted, by outcome: opened, or why not"""
    certificate_expiry = Row(Gauge, "edgeai_edge_certificate_expiry_timestamp_seconds", ["holder"])
    """Unix time at which the first certificate ends, of the edge port or of the nodes that have a
    session with a client certificate"""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self.messages_in = self.frames.labels("in")
        self.messages_out = self.frames.labels("out")
