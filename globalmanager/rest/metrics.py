"""Prometheus metrics of the REST server: its connections and requests. /metrics shows them."""

from prometheus_client import CollectorRegistry, Counter, Gauge


class RestMetrics:
    """All metrics of the REST server; one instance for each registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.connections = Gauge(
            "edgeai_rest_connections", "Open connections of the REST API", registry=registry
        )
        self.connections_cut = Counter(
            "edgeai_rest_connections_cut",
            "Connections of the REST API that ended because there was no room, or because their "
            "address opened too many",
            registry=registry,
        )
        self.requests_delayed = Counter(
            "edgeai_rest_requests_delayed",
            "Requests that waited, because their address sent too many",
            registry=registry,
        )
