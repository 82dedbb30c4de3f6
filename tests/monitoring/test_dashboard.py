"""The dashboard asks for metrics that exist, in units, and with a name for each line."""

import json
import re
import runpy
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.monitoring.prometheus import promtool
from tests.monitoring.rules import ROOT, alerts
from tests.monitoring.test_metrics import METRICS

DEPLOY: Final = ROOT / "deploy"
FILE: Final = DEPLOY / "chart" / "monitoring" / "edgeai.json"
DASHBOARD: Final = json.loads(FILE.read_text(encoding="utf-8"))
PANELS: Final[list[dict[str, Any]]] = DASHBOARD["panels"]
GRAPHS: Final = [panel for panel in PANELS if panel["type"] != "row"]
EXPRESSIONS: Final = [target["expr"] for panel in GRAPHS for target in panel["targets"]]
ROWS: Final = ["Edges", "Jobs", "Channel", "Kubernetes API", "Relay", "Replicas"]
UNITS: Final = {"seconds": {"s"}, "bytes": {"bytes", "percentunit"}}
_METRIC: Final = re.compile(
    r"\b(?:edgeai|localcontroller|training_operator|process|python|created|deleted|failed)_\w+"
)


def existing() -> set[str]:
    found = set()
    for each in METRICS:
        metric: Any = each.values[1]
        ends = ("_bucket", "_sum", "_count") if metric.type == "histogram" else ("",)
        found |= {metric.name + end for end in ends}
    return found


def test_the_file_is_up_to_date() -> None:
    written = runpy.run_path(str(DEPLOY / "monitoring" / "dashboard.py"))["text"]
    stored = FILE.read_text(encoding="utf-8")
    assert stored == written(), "run: python deploy/monitoring/dashboard.py"


@pytest.mark.parametrize("expression", [*EXPRESSIONS, *(r["expr"] for r in alerts().values())])
def test_every_metric_of_an_expression_exists(expression: str) -> None:
    named = set(_METRIC.findall(expression))
    assert named
    assert named <= existing()


def test_each_subject_has_a_row() -> None:
    assert [panel["title"] for panel in PANELS if panel["type"] == "row"] == ROWS
    assert PANELS[0]["type"] == "row"


@pytest.mark.parametrize("panel", GRAPHS, ids=[each["title"] for each in GRAPHS])
def test_a_panel_has_a_unit_a_meaning_and_names(panel: dict[str, Any]) -> None:
    unit = panel["fieldConfig"]["defaults"]["unit"]
    assert panel["description"]
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    for target in panel["targets"]:
        assert target["legendFormat"]
        is_rate = re.search(r"rate\(\w+_(total|count)", target["expr"])
        for word, units in UNITS.items():
            is_of = f"_{word}" in target["expr"] and not is_rate
            assert not is_of or unit in units, f"{word} are shown as {unit}"


def test_no_panel_covers_another() -> None:
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in PANELS)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)


def test_prometheus_reads_every_expression(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{n}", "expr": each} for n, each in enumerate(EXPRESSIONS)]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    checked = promtool("check", "rules", str(file))
    assert not checked.returncode, checked.stderr
