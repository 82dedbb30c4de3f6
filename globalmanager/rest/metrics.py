"""Prometheus metrics of the REST server: its connections and requests. /metrics shows them."""

from prometheus_client import Counter, Gauge

from common.metric_table import MetricTable, Row


class RestMetrics(MetricTable):
    """All metrics of the REST server; one instance for each registry."""

    connections = Row(Gauge, "edgeai_rest_connections", "Open connections of the REST API")
    connections_cut = Row(
        Counter,
        "edgeai_rest_connections_cut",
        "Connections of the REST API that ended because there was no room, or because their "
        "address opened too many",
    )
    requests_delayed = Row(
        Counter,
        "edgeai_rest_requests_delayed",
        "Requests that waited, because their address sent too many",
    )
