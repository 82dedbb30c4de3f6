"""Writes edgeai.json, the dashboard for Grafana; a test compares the file with it.

python deploy/monitoring/dashboard.py
"""

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

FILE: Final = Path(__file__).parents[1] / "chart" / "monitoring" / "edgeai.json"
WIDTH: Final = 8
HEIGHT: Final = 8
COLUMNS: Final = 24
DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


class Panel(NamedTuple):
    """A graph. `queries` are pairs of an expression and the name of its lines."""

    title: str
    unit: str
    meaning: str
    queries: tuple[tuple[str, str], ...]


def p99(metric: str, by: str = "") -> str:
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile(0.99, sum by ({labels}) (rate({metric}_bucket[5m])))"


def rate(metric: str, by: str, selector: str = "") -> str:
    return f"sum by ({by}) (rate({metric}{selector}[5m]))"


ROWS: Final = {
    "Edges": (
        Panel(
            "Nodes with tasks",
            "short",
            "lost: without a session at any replica",
            (("max by (contact) (edgeai_edge_nodes)", "{{contact}}"),),
        ),
        Panel(
            "Sessions",
            "short",
            "Nodes with a session, of each replica",
            (("sum by (pod) (edgeai_edge_sessions)", "{{pod}}"),),
        ),
        Panel(
            "Ended sessions",
            "ops",
            "By close code: 4010 is a move to another replica, 1001 the end of a side",
            ((rate("edgeai_edge_sessions_ended_total", "code"), "{{code}}"),),
        ),
        Panel(
            "Handshakes",
            "ops",
            "401: a credential, 503: a replica that is not ready, no TLS: a certificate",
            ((rate("edgeai_edge_handshakes_total", "outcome"), "{{outcome}}"),),
        ),
        Panel(
            "Until the first certificate ends",
            "s",
            "Of the edge port, and of connected nodes",
            (
                (
                    "min by (holder) (edgeai_edge_certificate_expiry_timestamp_seconds) - time()",
                    "{{holder}}",
                ),
            ),
        ),
        Panel(
            "Ledgers of nodes",
            "percentunit",
            "Part of the limit that is used; needs an agent on the nodes",
            (
                (
                    "topk(5, localcontroller_ledger_bytes / localcontroller_ledger_limit_bytes)",
                    "{{instance}}",
                ),
            ),
        ),
    ),
    "Jobs": (
        Panel(
            "Outcomes",
            "ops",
            "What was written into jobs",
            ((rate("edgeai_job_outcomes_total", "kind, outcome"), "{{kind}} {{outcome}}"),),
        ),
        Panel(
            "Stalled jobs",
            "short",
            "Jobs that do not get on, by the cause of their first fault",
            (("max by (cause) (edgeai_jobs_stalled)", "{{cause}}"),),
        ),
        Panel(
            "Training jobs",
            "ops",
            "Failures and restarts, by namespace",
            (
                (
                    rate("training_operator_jobs_failed_total", "job_namespace"),
                    "failed {{job_namespace}}",
                ),
                (
                    rate("training_operator_jobs_restarted_total", "job_namespace"),
                    "restarted {{job_namespace}}",
                ),
            ),
        ),
        Panel(
            "Reconciliations",
            "ops",
            "By kind and result",
            ((rate("edgeai_reconciles_total", "kind, result"), "{{kind}} {{result}}"),),
        ),
        Panel(
            "Time of a reconciliation, p99",
            "s",
            "From the queue until it is dealt with",
            ((p99("edgeai_reconcile_duration_seconds", "kind"), "{{kind}}"),),
        ),
        Panel(
            "Jobs that wait",
            "short",
            "To be reconciled",
            (("sum by (pod) (edgeai_queue_depth)", "{{pod}}"),),
        ),
        Panel(
            "How long the next one has waited",
            "s",
            "Half a minute is too long",
            (("max by (pod) (edgeai_queue_oldest_seconds)", "{{pod}}"),),
        ),
    ),
    "Channel": (
        Panel(
            "Change to acknowledgement of the edge",
            "s",
            "The median, and 99 of 100",
            (
                (p99("edgeai_edge_assign_to_ack_seconds"), "p99"),
                (p99("edgeai_edge_assign_to_ack_seconds").replace("0.99", "0.5"), "p50"),
            ),
        ),
        Panel(
            "Oldest that waits",
            "s",
            "A change that a connected node has not stored; a report that is not written",
            (
                ("max(edgeai_edge_assignment_oldest_seconds)", "change"),
                ("max(edgeai_edge_inbox_oldest_seconds)", "report"),
            ),
        ),
        Panel(
            "Reports",
            "ops",
            "Settled reports of nodes by outcome",
            ((rate("edgeai_edge_reports_total", "outcome"), "{{outcome}}"),),
        ),
        Panel(
            "Reports that wait",
            "short",
            "To be written",
            (("sum by (pod) (edgeai_edge_inbox_reports)", "{{pod}}"),),
        ),
        Panel(
            "Messages",
            "ops",
            "WebSocket messages from nodes (in) and to nodes (out)",
            ((rate("edgeai_edge_messages_total", "direction"), "{{direction}}"),),
        ),
        Panel(
            "Tasks that nodes do not get",
            "short",
            "Refused within 5 minutes, or left out since a node has too many",
            (
                ("sum(increase(edgeai_edge_assignments_refused_total[5m]))", "refused"),
                ("max(edgeai_edge_tasks_left_out)", "left out"),
            ),
        ),
    ),
    "Kubernetes API": (
        Panel(
            "Requests",
            "reqps",
            "By verb and HTTP status; none: no answer",
            ((rate("edgeai_kubernetes_requests_total", "verb, code"), "{{verb}} {{code}}"),),
        ),
        Panel(
            "Time until an answer, p99",
            "s",
            "By verb",
            ((p99("edgeai_kubernetes_request_duration_seconds", "verb"), "{{verb}}"),),
        ),
        Panel(
            "Oldest cache",
            "s",
            "Time without contact about a resource; 0 is good",
            (("max by (pod) (edgeai_informer_stale_seconds)", "{{pod}}"),),
        ),
        Panel(
            "Objects set aside",
            "short",
            "They cannot be read",
            (("max by (resource) (edgeai_objects_set_aside)", "{{resource}}"),),
        ),
    ),
    "Relay": (
        Panel(
            "Wanted streams",
            "ops",
            "By outcome: opened, or why not",
            ((rate("edgeai_edge_relay_opened_total", "outcome"), "{{outcome}}"),),
        ),
        Panel(
            "Open streams",
            "short",
            "To Services of the cluster",
            (("sum by (pod) (edgeai_edge_relay_streams)", "{{pod}}"),),
        ),
        Panel(
            "Nodes with a relay",
            "short",
            "Of each replica",
            (("sum by (pod) (edgeai_edge_relays)", "{{pod}}"),),
        ),
    ),
    "Replicas": (
        Panel("Who reconciles", "short", "1: this one", (("edgeai_leading", "{{pod}}"),)),
        Panel(
            "Memory",
            "bytes",
            "Resident memory of the GlobalManagers",
            (("process_resident_memory_bytes and on (instance) edgeai_epoch", "{{pod}}"),),
        ),
        Panel(
            "Processor",
            "short",
            "Cores that a GlobalManager uses; it cannot use more than one",
            (("rate(process_cpu_seconds_total[5m]) and on (instance) edgeai_epoch", "{{pod}}"),),
        ),
        Panel(
            "REST",
            "short",
            "Open connections, and requests that wait since their address sends too many",
            (
                ("sum by (pod) (edgeai_rest_connections)", "connections {{pod}}"),
                (
                    "sum by (pod) (increase(edgeai_rest_requests_delayed_total[5m]))",
                    "delayed {{pod}}",
                ),
            ),
        ),
    ),
}


def dashboard() -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        place = {"x": 0, "y": y, "w": COLUMNS, "h": 1}
        panels.append(
            {"id": len(panels) + 1, "type": "row", "title": title, "gridPos": place, "panels": []}
        )
        y += 1
        for number, panel in enumerate(row):
            column, line = number * WIDTH % COLUMNS, number * WIDTH // COLUMNS
            place = {"x": column, "y": y + line * HEIGHT, "w": WIDTH, "h": HEIGHT}
            panels.append(_graph(len(panels) + 1, panel, place))
        y += -(-len(row) * WIDTH // COLUMNS) * HEIGHT
    source = {"name": "datasource", "type": "datasource", "query": "prometheus"}
    return {
        "uid": "edgeai",
        "title": "edgeai",
        "schemaVersion": 36,
        "tags": ["edgeai"],
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [source]},
        "panels": panels,
    }


def _graph(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.meaning,
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "gridPos": place,
        "targets": [
            {"refId": chr(ord("A") + each), "expr": expression, "legendFormat": legend}
            for each, (expression, legend) in enumerate(panel.queries)
        ],
    }


def text() -> str:
    return json.dumps(dashboard(), indent=2) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
