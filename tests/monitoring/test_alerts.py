"""Each alert fires after the state has lasted, and not before; and each has a page that helps.

`tests/system/test_alerts.py` sees that real managers get into these states.
"""

import re
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

from tests.monitoring.prometheus import promtool
from tests.monitoring.rules import ROOT, alerts, groups

ALERTS: Final = alerts()
LIMITS: Final = {
    "EdgeAIMemory": "globalmanager",
    "EdgeAIEdgeMemory": "localcontroller",
}
LISTED: Final = {
    name: (severity, 0 if lasts == "at once" else int(lasts.removesuffix("m")))
    for name, severity, lasts in re.findall(
        r"^\| \[(\w+)\]\(\w+\.md\) \| (\w+) \| (at once|\d+m) \|",
        (ROOT / "docs" / "runbooks" / "README.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
}
"""Severity, and the minutes that the state must last, as the page of all alerts has them."""
HEADINGS: Final = ("Meaning", "Impact", "Diagnosis", "Remedy", "When to silence")
_MINUTES: Final = 120


class Case(NamedTuple):
    """Values in intervals of a minute, in the notation of promtool: from the 10th on the state is
    there.

    Args: since: the minute at which the expression begins to hold; averages are later
    """

    series: dict[str, str]
    since: int = 10


def gauge(name: str, good: float, bad: float) -> Case:
    return Case({name: f"{good}x9 {bad}x{_MINUTES}"})


def counter(name: str, a_minute: int) -> Case:
    return Case({name: f"0x9 0+{a_minute}x{_MINUTES}"}, since=11)


GM: Final = 'instance="gm:9001",pod="gm-0"'
LC: Final = 'instance="edge-1"'
REQUESTS: Final = "edgeai_kubernetes_requests_total"
CASES: Final = {
    "EdgeAINobodyReconciles": gauge(f"edgeai_leading{{{GM}}}", 1, 0),
    "EdgeAIStaleCache": gauge(f'edgeai_informer_stale_seconds{{{GM},resource="pods"}}', 0, 31),
    "EdgeAIObjectsSetAside": gauge(f'edgeai_objects_set_aside{{{GM},resource="pods"}}', 0, 1),
    "EdgeAIReconcileFails": counter(
        f'edgeai_reconciles_total{{{GM},kind="TFJob",result="bug"}}', 1
    ),
    "EdgeAIQueueWaits": gauge(f"edgeai_queue_oldest_seconds{{{GM}}}", 1, 31),
    "EdgeAIJobsStalled": gauge(f'edgeai_jobs_stalled{{{GM},cause="crash"}}', 0, 1),
    "EdgeAIForbidden": counter(f'{REQUESTS}{{{GM},verb="create",code="403"}}', 1),
    "EdgeAIAPIErrors": Case(
        {
            f'{REQUESTS}{{{GM},verb="get",code="200"}}': f"0+10x{2 * _MINUTES}",
            f'{REQUESTS}{{{GM},verb="get",code="none"}}': f"0x9 0+2x{_MINUTES}",
        },
        since=13,
    ),
    "EdgeAIAPIThrottles": counter(f'{REQUESTS}{{{GM},verb="get",code="429"}}', 3)._replace(
        since=14
    ),
    "EdgeAINodesOutOfContact": Case(
        {
            f'edgeai_edge_nodes{{{GM},contact="open"}}': f"100x9 80x{_MINUTES}",
            f'edgeai_edge_nodes{{{GM},contact="lost"}}': f"5x9 25x{_MINUTES}",
        }
    ),
    "EdgeAISessionsChurn": Case(
        {
            f"edgeai_edge_sessions{{{GM}}}": f"9x{2 * _MINUTES}",
            f'edgeai_edge_sessions_ended_total{{{GM},code="4002"}}': f"0x9 0+3x{_MINUTES}",
        },
        since=17,
    ),
    "EdgeAIReportsWait": gauge(f"edgeai_edge_inbox_oldest_seconds{{{GM}}}", 2, 31),
    "EdgeAIAssignmentsWait": gauge(f"edgeai_edge_assignment_oldest_seconds{{{GM}}}", 2, 31),
    "EdgeAIAssignmentsRefused": counter(f"edgeai_edge_assignments_refused_total{{{GM}}}", 1),
    "EdgeAITasksLeftOut": gauge(f"edgeai_edge_tasks_left_out{{{GM}}}", 0, 3),
    "EdgeAIRelayRefuses": Case(
        {
            f'edgeai_edge_relay_opened_total{{{GM},outcome="opened"}}': f"0+1x{2 * _MINUTES}",
            f'edgeai_edge_relay_opened_total{{{GM},outcome="busy"}}': f"0x9 0+9x{_MINUTES}",
        },
        since=12,
    ),
    "EdgeAICertificateEndsSoon": gauge(
        f'edgeai_edge_certificate_expiry_timestamp_seconds{{{GM},holder="edge port"}}',
        9 * 86400,
        6 * 86400,
    ),
    "EdgeAIMemory": Case(
        {
            f"process_resident_memory_bytes{{{GM}}}": f"4e8x9 9e8x{_MINUTES}",
            f"edgeai_epoch{{{GM}}}": f"1x{2 * _MINUTES}",
        }
    ),
    "EdgeAIEdgeDisconnected": gauge(f"localcontroller_connected{{{LC}}}", 1, 0),
    "EdgeAIEdgeLedgerRefuses": counter(
        f'localcontroller_ledger_refusals_total{{{LC},reason="full"}}', 1
    ),
    "EdgeAIEdgeLedgerFillsUp": Case(
        {
            f"localcontroller_ledger_bytes{{{LC}}}": f"10x9 81x{_MINUTES}",
            f"localcontroller_ledger_limit_bytes{{{LC}}}": f"100x{2 * _MINUTES}",
        }
    ),
    "EdgeAIEdgeLedgerDamaged": gauge(f"localcontroller_ledgers_set_aside{{{LC}}}", 0, 1),
    "EdgeAIEdgeMemory": Case(
        {
            f"process_resident_memory_bytes{{{LC}}}": f"4e7x9 2.4e8x{_MINUTES}",
            f"localcontroller_connected{{{LC}}}": f"1x{2 * _MINUTES}",
        }
    ),
}


def test_every_alert_has_a_case() -> None:
    assert CASES.keys() == LISTED.keys() == ALERTS.keys()


@pytest.mark.parametrize("name", CASES)
def test_an_alert_fires_when_its_state_lasts_and_not_before(name: str, tmp_path: Path) -> None:
    """To the minute: how long it lasts is what the page of all alerts says."""
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": groups()}))
    severity, lasts = LISTED[name]
    fires = CASES[name].since + lasts
    firing = f'count(ALERTS{{alertname="{name}",alertstate="firing",severity="{severity}"}})'
    others = f'count(ALERTS{{alertname!="{name}",alertname!="EdgeAINobodyReconciles"}})'
    cases = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": series, "values": values}
                    for series, values in CASES[name].series.items()
                ],
                "promql_expr_test": [
                    _expects(firing, fires - 1, None),
                    *(_expects(firing, fires + minutes, 1) for minutes in (0, 1, lasts)),
                    _expects(others, fires + lasts, None),
                ],
            }
        ],
    }
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(cases))
    tested = promtool("test", "rules", str(tmp_path / "test.yaml"))
    assert not tested.returncode, tested.stdout + tested.stderr


def _expects(expression: str, minute: int, value: float | None) -> dict[str, Any]:
    samples = [] if value is None else [{"value": value}]
    return {"expr": expression, "eval_time": f"{minute}m", "exp_samples": samples}


def test_promtool_accepts_the_rules(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": groups()}))
    checked = promtool("check", "rules", str(tmp_path / "rules.yaml"))
    assert not checked.returncode, checked.stderr


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_what_is_and_leads_to_a_page(name: str) -> None:
    annotations = ALERTS[name]["annotations"]
    assert annotations.keys() == {"summary", "description", "runbook_url"}
    assert ALERTS[name]["labels"]["severity"] in ("critical", "warning")
    assert annotations["runbook_url"] == f"docs/runbooks/{name}.md"
    page = (ROOT / annotations["runbook_url"]).read_text(encoding="utf-8")
    assert page.startswith(f"# {name}\n")
    assert tuple(re.findall("^## (.*)$", page, re.MULTILINE)) == HEADINGS


def test_the_runbooks_are_those_of_the_alerts() -> None:
    folder = ROOT / "docs" / "runbooks"
    assert {path.stem for path in folder.glob("*.md")} - {"README"} == ALERTS.keys()
    contents = (folder / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\((EdgeAI\w+)\.md\)", contents)) == ALERTS.keys()


@pytest.mark.parametrize("name", LIMITS)
def test_the_memory_of_an_alert_is_that_of_the_container(name: str) -> None:
    values = yaml.safe_load((ROOT / "deploy" / "chart" / "values.yaml").read_text())
    limit = values["resources"][LIMITS[name]]["limits"]["memory"]
    mib = int(limit[:-2]) * (1024 if limit.endswith("Gi") else 1)
    bound = ALERTS[name]["expr"].partition("> 0.8 * ")[2]
    assert eval(bound) == mib * 1024 * 1024
