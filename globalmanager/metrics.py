"""All Prometheus metrics of one GlobalManager, in the registry that /metrics serves."""

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector

from globalmanager.edge.metrics import EdgeMetrics
from globalmanager.engine.job_values import JobValues
from globalmanager.engine.metrics import EngineMetrics
from globalmanager.rest.server import RestMetrics


class Metrics:
    """All metrics, in a registry of their own: a test may run several GlobalManagers."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self.engine = EngineMetrics(self.registry)
        self.job_values = JobValues(self.registry)
        self.edge = EdgeMetrics(self.registry)
        self.rest = RestMetrics(self.registry)
