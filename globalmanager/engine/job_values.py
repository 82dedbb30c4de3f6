"""The metrics that workers report, as series for Prometheus: so a curve goes back beyond now.

The GlobalManager itself remembers only the last value of each. Users choose namespaces, names of
jobs and names of metrics, so the number of series has a bound, and each namespace gets its part of
it. app says with `show` where the jobs are; before, and with the limit 0, there are no series.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from edgeai.api.resources import Object, ResourceType
from edgeai.faults.summary import CURVES, numbers_of

NAME: Final = "edgeai_job_metric"
LABELS: Final = ("resource", "job_namespace", "job_name", "key")
MAX_KEY_CHARS: Final = 64
_HELP: Final = "Last value of a metric that a job's workers have reported, see --job-metrics"

Jobs = Iterable[tuple[ResourceType, Object]]


class JobValue(NamedTuple):
    labels: tuple[str, str, str, str]
    value: float


class JobValues(Collector):
    """Collects the values at each scrape."""

    _labelnames = LABELS  # as the metrics of the library have them

    def __init__(self, registry: CollectorRegistry) -> None:
        self._limit = 0
        self._jobs: Jobs = ()
        registry.register(self)
        self._left_out = Gauge(  # collected after the values
            "edgeai_job_metrics_left_out",
            "Series of edgeai_job_metric that are left out, because there are too many",
            registry=registry,
        )

    def show(self, jobs: Jobs, *, limit: int) -> None:
        """Args: limit: largest number of series"""
        self._jobs, self._limit = jobs, limit

    def describe(self) -> Iterator[GaugeMetricFamily]:
        yield GaugeMetricFamily(NAME, _HELP, labels=LABELS)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(NAME, _HELP, labels=LABELS)
        selection, left_out = chosen(self._jobs, self._limit) if self._limit else ([], 0)
        for value in selection:
            family.add_metric(value.labels, value.value)
        self._left_out.set(left_out)
        yield family


def chosen(jobs: Iterable[tuple[ResourceType, Object]], limit: int) -> tuple[list[JobValue], int]:
    """At most `limit` values, equally of all namespaces, newest jobs first; how many are not."""
    by_namespace: dict[str, list[tuple[str, str, list[JobValue]]]] = {}
    for type_, job in jobs:
        if values := _values(type_, job):
            metadata = job["metadata"]
            creation = str(metadata.get("creationTimestamp") or "")
            place = (creation, metadata["name"], values)
            by_namespace.setdefault(metadata.get("namespace", ""), []).append(place)
    part = max(1, limit // max(1, len(by_namespace)))
    selection: list[JobValue] = []
    left_out = 0
    for namespace in sorted(by_namespace):
        entries = by_namespace[namespace]
        entries.sort(key=lambda place: place[:2], reverse=True)
        values = [value for _, _, numbers in entries for value in numbers]
        room = min(part, limit - len(selection))
        selection += values[:room]
        left_out += len(values[room:])
    return selection, left_out


def _values(type_: ResourceType, job: Object) -> list[JobValue]:
    numbers = numbers_of(job.get("status"))
    metadata = job["metadata"]
    where = (str(type_), metadata.get("namespace", ""), metadata["name"])
    keys = sorted(key for key in numbers if len(key) <= MAX_KEY_CHARS)[:CURVES]
    return [JobValue((*where, key), numbers[key]) for key in keys]
