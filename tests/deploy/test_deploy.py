"""What deploy/ says of the code is true: rights and names of metrics."""

import re
from pathlib import Path
from typing import Final

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from globalmanager import rbac
from globalmanager.edge.metrics import EdgeMetrics
from globalmanager.engine.metrics import EngineMetrics

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
MONITORING: Final = DEPLOY / "monitoring"
_METRIC: Final = re.compile(r"\bedgeai_[a-z_]+")
_TYPE: Final = re.compile(r"^# TYPE (\S+) (\S+)$", re.MULTILINE)


def test_the_rights_are_those_of_the_code() -> None:
    """When this fails: make crds"""
    written = (DEPLOY / "base" / "globalmanager" / "rbac.yaml").read_text(encoding="utf-8")
    assert written == rbac.text()


@pytest.mark.parametrize("name", ["prometheusrule.yaml", "edgeai.json"])
def test_every_metric_that_monitoring_names_exists(name: str) -> None:
    used = set(_METRIC.findall((MONITORING / name).read_text(encoding="utf-8")))
    assert used
    assert used <= exposed()


def exposed() -> set[str]:
    registry = CollectorRegistry()
    EngineMetrics(registry)
    EdgeMetrics(registry)
    types = _TYPE.findall(generate_latest(registry).decode())
    histograms = {f"{name}_bucket" for name, type_ in types if type_ == "histogram"}
    return {name for name, _ in types} | histograms
