"""Every metric has a base unit, a help text and bounded labels, in both managers."""

import re
import runpy
from pathlib import Path
from typing import Any, Final

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from globalmanager.metrics import Metrics as ManagerMetrics
from localcontroller.metrics import Metrics as ControllerMetrics
from tests.monitoring.prometheus import promtool

DOCS: Final = Path(__file__).parents[2] / "docs"
PAGE: Final = runpy.run_path(str(DOCS / "metrics.py"))
NOT_BASE_UNITS: Final = frozenset(
    {"s", "ms", "us", "ns", "milliseconds", "microseconds", "minutes", "hours", "days"}
    | {"kb", "kib", "mb", "mib", "gib", "kilobytes", "megabytes", "percent", "percentage"}
)
TYPES_IN_NAMES: Final = frozenset({"counter", "gauge", "histogram", "summary", "count", "sum"})
PREFIXES: Final = {
    "GlobalManager": ("edgeai_", "process_", "python_"),
    "LocalController": ("localcontroller_", "process_"),
}
OF_THE_TRAINING_OPERATOR: Final = re.compile(
    r"training_operator_jobs_\w+_total|(created|deleted)_(pods|pod_groups)_total|failed_pods_total"
)


def registries() -> dict[str, CollectorRegistry]:
    return {
        "GlobalManager": ManagerMetrics().registry,
        "LocalController": ControllerMetrics().registry,
    }


METRICS: Final = [
    pytest.param(part, metric, id=f"{part} {metric.name}")
    for part, registry in registries().items()
    for metric in PAGE["metrics_of"](registry)
]


def test_the_registries_have_metrics() -> None:
    assert len(METRICS) > 60


@pytest.mark.parametrize(("part", "metric"), METRICS)
def test_a_metric_is_named_as_prometheus_wants_it(part: str, metric: Any) -> None:
    name, words = metric.name, metric.name.split("_")
    assert name.startswith(PREFIXES[part]) or OF_THE_TRAINING_OPERATOR.fullmatch(name)
    assert not NOT_BASE_UNITS & set(words), "not in a base unit"
    assert not TYPES_IN_NAMES & set(words), "the type is no part of a name"
    assert name.endswith("_total") == (metric.type == "counter")
    if metric.type == "histogram":
        assert name.endswith(("_seconds", "_bytes"))
    for unit in ("seconds", "bytes"):
        assert unit not in words or name.removesuffix("_total").endswith(unit), "unit is not last"


@pytest.mark.parametrize(("part", "metric"), METRICS)
def test_a_metric_says_what_it_means(part: str, metric: Any) -> None:
    if metric.name.startswith("process_"):
        return  # of the Prometheus library
    assert len(metric.help.split()) >= 2
    assert metric.help[0].isupper() or metric.help.startswith("1 while")
    assert not metric.help.endswith(".")


@pytest.mark.parametrize(("part", "metric"), METRICS)
def test_each_label_of_a_metric_has_a_bound(part: str, metric: Any) -> None:
    assert set(metric.labels) <= PAGE["LABELS"].keys()


def test_the_page_names_no_label_that_does_not_exist() -> None:
    assert {label for each in METRICS for label in each.values[1].labels} == PAGE["LABELS"].keys()  # type: ignore[union-attr]


@pytest.mark.parametrize("part", PREFIXES)
def test_promtool_finds_nothing_wrong(part: str) -> None:
    checked = promtool("check", "metrics", stdin=generate_latest(registries()[part]).decode())
    assert not checked.returncode, checked.stderr
    assert not checked.stderr.strip()
