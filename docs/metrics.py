"""Writes docs/metrics.md from the registries of both managers; tests compare the page.

python docs/metrics.py
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from prometheus_client import CollectorRegistry

from edgeai.faults.remedies import Cause
from globalmanager.app import MAX_JOB_METRICS
from globalmanager.engine.job_metrics import MAX_NAMESPACES
from globalmanager.metrics import Metrics as ManagerMetrics
from localcontroller.metrics import Metrics as ControllerMetrics

PAGE: Final = Path(__file__).with_suffix(".md")


INTRODUCTION: Final = """\
# Metrics

Written by `docs/metrics.py` from the registries of both managers; do not edit.

Prometheus scrapes the GlobalManager at `/metrics` of `--http-address`. A LocalController serves
`/metrics` at `--status-address` on loopback, where an agent on the node scrapes it.
[Runbooks](runbooks/README.md) explains how, and has a page for each alert. The chart has
the alerts and a dashboard.

Each metric has a base unit. A metric without a unit in its name is a number of things, or 1 while
a condition holds. Counters start at 0 with the process. A histogram has `_bucket`, `_sum` and
`_count`. `_created` instead of `_total`, or at the end, is the Unix time at which counting began.
"""


class Label(NamedTuple):
    """What a label says, and the largest number of values that one process gives it."""

    meaning: str
    values: int


LABELS: Final = {
    "api": Label("the server: `workers`, `status`", 2),
    "cause": Label("of a fault: `crash`, `quota`, `node`, …", len(Cause)),
    "code": Label("an HTTP status, or the close code of a session; `none`: no answer", 70),
    "contact": Label("`open`: with a session, `lost`: without", 2),
    "direction": Label("`in`, `out`", 2),
    "framework": Label("`pytorch`, `tensorflow`, …: of the training kinds", 10),
    "holder": Label("`edge port`, `nodes`", 2),
    "implementation": Label("of Python", 1),
    "job_name": Label("the name of a job, of edgeai_job_metric alone", MAX_JOB_METRICS),
    "job_namespace": Label(
        f"the namespace of a job; `_other` for those beyond {MAX_NAMESPACES}", MAX_NAMESPACES + 1
    ),
    "key": Label("what a job's workers call a metric, of edgeai_job_metric alone", MAX_JOB_METRICS),
    "kind": Label("a kind of jobs", 30),
    "major": Label("of Python's version", 1),
    "minor": Label("of Python's version", 1),
    "outcome": Label("see the meaning", 70),
    "patchlevel": Label("of Python's version", 1),
    "reason": Label("see the meaning", 2),
    "resource": Label("a type that the GlobalManager watches", 60),
    "result": Label("see the meaning", 10),
    "selector": Label("the label selector of the watch", 5),
    "verb": Label("`get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, …", 10),
    "version": Label("of Python", 1),
}


class Metric(NamedTuple):
    """One metric as Prometheus shows it."""

    name: str
    type: str
    labels: tuple[str, ...]
    help: str

    @property
    def unit(self) -> str:
        """The base unit, which is the end of the name."""
        for end, unit in UNITS.items():
            if self.name.removesuffix("_total").endswith(end):
                return unit
        return "0 or 1" if self.help.startswith("1 while") else "number"


UNITS: Final = {
    "_timestamp_seconds": "Unix seconds",
    "_time_seconds": "Unix seconds",
    "_seconds": "seconds",
    "_bytes": "bytes",
    "_info": "1",
}


def metrics_of(registry: CollectorRegistry) -> list[Metric]:
    """The metrics of a registry, by name."""
    metrics = [metric for name in registry._collector_to_names for metric in _metrics(name)]
    return sorted(metrics)


def _metrics(collector: Any) -> Iterator[Metric]:
    families = collector.describe() if hasattr(collector, "describe") else ()
    for family in families or collector.collect():
        end = "_total" if family.type == "counter" else ""
        labels = getattr(collector, "_labelnames", None)
        if labels is None:
            labels = sorted({label for sample in family.samples for label in sample.labels})
        yield Metric(family.name + end, family.type, tuple(labels), family.documentation)


def page() -> str:
    lines = [INTRODUCTION]
    parts = {
        "GlobalManager": ManagerMetrics().registry,
        "LocalController": ControllerMetrics().registry,
    }
    for part, registry in parts.items():
        lines += [f"## {part}", "", "| metric | type | unit | labels | |", "|---|---|---|---|---|"]
        lines += [_row(metric) for metric in metrics_of(registry)]
        lines.append("")
    lines += [
        "## Labels",
        "",
        "Users and nodes choose no value of a label but `job_namespace`, which has a bound, and",
        "those of `edgeai_job_metric`, which has at most `--job-metrics` series, by default none.",
        "",
        "| label | | values at most |",
        "|---|---|---|",
        *(f"| `{name}` | {label.meaning} | {label.values} |" for name, label in LABELS.items()),
    ]
    return "\n".join(lines) + "\n"


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.type} | {metric.unit} | {labels} | {metric.help} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
