"""The pages: each is a function from what the caller may see to a template and its values. Pure but
for the caches that the board reads.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from operator import attrgetter
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from edgeai.api.resources import Object, ObjectRef
from edgeai.api.status import mapping
from edgeai.faults.faults import Fault
from edgeai.faults.remedies import is_good, remedy_of
from edgeai.faults.summary import REPLICA_STATES, conditions_of, metrics_of, numbers_of, waits_of
from edgeai.ids import NodeName
from edgeai.text import shortened
from globalmanager.rest.console.board import (
    Board,
    JobRow,
    NodeRow,
    Sight,
    by_kind_and_phase,
    job_row,
)
from globalmanager.rest.console.details import pod_row, restarts_of, scale_row, size_of, word
from globalmanager.rest.errors import RequestError
from globalmanager.rest.views import object_view

PER_PAGE: Final = 100
ATTENTION: Final = 30  # rows of the overview; the filters show the rest
MAX_YAML_CHARS: Final = 60_000
MAX_SITES: Final = 200
MAX_CELLS: Final = 2000  # of the map, for all sites together
MAX_WAITS: Final = 10  # faults of one job
MAX_ROWS: Final = 200  # workers and conditions of one job
MAX_MESSAGE_CHARS: Final = 2000  # of a condition; edgeai's own have at most 1024
_EACH: Final = 20  # what a value counts besides its characters: encoding it takes as long


class PageAddress(NamedTuple):
    """What the address of a page says."""

    path: Mapping[str, str]
    query: Mapping[str, str]

    def number(self, name: str, default: int) -> int:
        text = self.query.get(name, "")
        return int(text) if text.isdecimal() and len(text) < 7 else default


class Page(NamedTuple):
    template: str
    title: str
    values: dict[str, Any]


View = Callable[[Board, Sight, PageAddress], Page]


def overview(board: Board, sight: Sight, _address: PageAddress) -> Page:
    jobs, nodes = board.jobs(sight), board.nodes(sight)
    wanting = [row for row in jobs if row.tone in ("bad", "waiting")]
    wanting.sort(key=attrgetter("tone"))  # bad before waiting
    bad_nodes = [row for row in nodes if row.tone == "bad"]
    tones = Counter(row.tone for row in jobs)
    return Page(
        "overview.html",
        "Overview",
        {
            "kinds": by_kind_and_phase(jobs),
            "jobs_count": len(jobs),
            "tones": tones,
            "wanting": wanting[:ATTENTION],
            "wanting_more": max(0, len(wanting) - ATTENTION),
            "lost": bad_nodes[:ATTENTION],
            "lost_more": max(0, len(bad_nodes) - ATTENTION),
            "connected_count": sum(row.connected for row in nodes),
            "edges_count": sum(row.connected or row.tone == "bad" for row in nodes),
        },
    )


def jobs(board: Board, sight: Sight, address: PageAddress) -> Page:
    rows = board.jobs(sight)
    kind, phase, text = (address.query.get(name, "") for name in ("kind", "phase", "q"))
    tone = address.query.get("state", "")
    found = [
        row
        for row in rows
        if kind in ("", f"{row.type.kind}.{row.type.group}")
        and phase in ("", row.phase)
        and tone in ("", row.tone)
        and text.lower() in f"{row.namespace}/{row.name}".lower()
    ]
    return Page(
        "jobs.html",
        "Jobs",
        {
            "rows": found,
            "kinds": sorted({f"{row.type.kind}.{row.type.group}" for row in rows}),
            "phases": sorted({row.phase for row in rows}),
            "filters": {"kind": kind, "phase": phase, "q": text, "state": tone},
            **_pages(found, address),
        },
    )


def nodes(board: Board, sight: Sight, address: PageAddress) -> Page:
    rows = board.nodes(sight)
    state, text = address.query.get("state", ""), address.query.get("q", "")
    found = [
        row
        for row in rows
        if state in ("", "connected" if row.connected else "away") and text.lower() in row.name
    ]
    return Page(
        "nodes.html",
        "Nodes",
        {
            "rows": found,
            "sites": _sites(rows),
            "filters": {"state": state, "q": text},
            **_pages(found, address),
        },
    )


def node(board: Board, sight: Sight, address: PageAddress) -> Page:
    name = address.path["name"]
    row = board.node(sight, NodeName(name))
    if row is None:
        raise RequestError(
            HTTPStatus.NOT_FOUND, f"node {name}: no such node, or you may not see it"
        )
    workers = [
        (job, worker)
        for job in board.jobs(sight)
        for worker in _workers_on(board, sight, job, name)
    ]
    return Page(
        "node.html",
        f"Node {name}",
        {
            "row": row,
            "workers": workers[:MAX_ROWS],
            "workers_more": max(0, len(workers) - MAX_ROWS),
        },
    )


def job_of(board: Board, sight: Sight, address: PageAddress) -> tuple[ObjectRef, Object]:
    """The job that the address names. Raises: RequestError"""
    namespace, name = address.path["namespace"], address.path["name"]
    type_ = board.type_of(address.path["type"])
    ref = None if type_ is None else ObjectRef(type_, namespace, name)
    object_ = None if ref is None else board.job(sight, ref)
    if ref is None or object_ is None:
        problem = f"{address.path['type']} {namespace}/{name}: no such job, or you may not see it"
        raise RequestError(HTTPStatus.NOT_FOUND, problem)
    return ref, object_


def job(board: Board, sight: Sight, address: PageAddress) -> Page:
    ref, object_ = job_of(board, sight, address)
    status = mapping(object_.get("status"))
    workers = list(_reported(object_).items())
    pods = board.pods(sight, ref)
    scalers = list(board.scalers(sight, ref).items())[-MAX_ROWS:]
    row = job_row(ref.type, object_)
    return Page(
        "job.html",
        f"{ref.type.kind} {ref.namespace}/{ref.name}",
        {
            "row": row,
            "waits": _waits(waits_of(object_, pods, board.now())),
            "waits_title": "Why it failed" if row.tone == "bad" else "What it waits for",
            "conditions": [_told(entry) for entry in conditions_of(status)[-MAX_ROWS:]],
            "workers": [_worker(*worker) for worker in workers[:MAX_ROWS]],
            "workers_more": max(0, len(workers) - MAX_ROWS),
            "pods": [pod_row(pod) for pod in pods[:MAX_ROWS]],
            "pods_more": max(0, len(pods) - MAX_ROWS),
            "restarts": restarts_of(status)[:MAX_ROWS],
            "size": size_of(status),
            "scaled": [scale_row(*scaler) for scaler in scalers][::-1],
            "replicas": _replicas(status),
            "round": _round(status.get("round")),
            "rounds": _round(status.get("rounds")),
            "metrics": [(word(key), word(value)) for key, value in metrics_of(status)[:MAX_ROWS]],
            "numbers": {word(key): value for key, value in numbers_of(status).items()},
            "yaml": _yaml(object_),
        },
    )


def _waits(faults: Sequence[Fault]) -> list[dict[str, str]]:
    """What the job waits for, line by line, each with what to do."""
    lines = [
        {"text": shortened(fault.text, MAX_MESSAGE_CHARS), "remedy": fault.remedy}
        for fault in faults[:MAX_WAITS]
    ]
    more = len(faults) - len(lines)
    return [*lines, {"text": f"and {more} more", "remedy": ""}] if more else lines


def _reported(object_: Object) -> Mapping[str, Any]:
    return mapping(mapping(object_.get("status")).get("workers"))


def _worker(name: str, entry: Any) -> dict[str, str]:
    return {
        "name": word(name),
        "node": word(mapping(entry).get("node") or ""),
        "attempt": word(mapping(entry).get("attempt", "")),
        "phase": word(mapping(entry).get("status") or mapping(entry).get("phase") or ""),
        "counts": ", ".join(
            f"{key} {word(value)}"
            for key, value in mapping(mapping(entry).get("taskInfo")).items()
            if isinstance(value, int | float | str)
        )[:300],
        "reported": word(mapping(entry).get("observedAt") or ""),
    }


def _workers_on(board: Board, sight: Sight, row: JobRow, node_name: str) -> list[dict[str, str]]:
    object_ = board.job(sight, ObjectRef(row.type, row.namespace, row.name))
    return [
        _worker(name, entry)
        for name, entry in _reported(object_ or {}).items()
        if mapping(entry).get("node") == node_name
    ]


def _told(condition: Mapping[str, Any]) -> dict[str, Any]:
    reason = word(condition.get("reason") or "")
    message = str(condition.get("message") or "")[:MAX_MESSAGE_CHARS]
    good = is_good(condition)
    return {
        "type": word(condition.get("type") or ""),
        "status": word(condition.get("status") or ""),
        "reason": reason,
        "message": message,
        "since": word(condition.get("lastTransitionTime") or ""),
        "is_good": good,
        "remedy": "" if good else remedy_of(reason, message),
    }


def _replicas(status: Mapping[str, Any]) -> list[dict[str, str]]:
    statuses = mapping(status.get("replicaStatuses") or status.get("tfReplicaStatuses"))
    return [
        {
            "type": word(type_),
            **{state: word(mapping(entry).get(state, "0")) for state in REPLICA_STATES},
        }
        for type_, entry in list(statuses.items())[:MAX_ROWS]
    ]


def _round(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 10**9 else 0


def _yaml(object_: Object) -> str:
    """The object as YAML. What is cut is cut before it is encoded: one large object would take the
    event loop for seconds.
    """
    import yaml  # here, because yaml takes 1 MiB, and only a page of one object needs it

    content, left = _cut(object_view(object_), MAX_YAML_CHARS)
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # in C ten times as fast
    text = yaml.dump(content, Dumper=dumper, sort_keys=False, allow_unicode=True, width=100)
    return text if left > 0 else f"{text}# (cut)\n"


def _cut(value: Any, budget: int) -> tuple[Any, int]:
    """The beginning of a value, and how many characters may still come. The rest is left out when
    none may come.
    """
    if isinstance(value, str):
        return value[: max(budget, 0)], budget - len(value) - _EACH
    budget -= _EACH
    if isinstance(value, dict):
        content: dict[str, Any] = {}
        for key, each in value.items():
            if budget <= 0:
                break
            content[key[:budget]], budget = _cut(each, budget - len(key))
        return content, budget
    if isinstance(value, list):
        items = []
        for each in value:
            if budget <= 0:
                break
            item, budget = _cut(each, budget)
            items.append(item)
        return items, budget
    return value, budget


def _sites(rows: list[NodeRow]) -> list[dict[str, Any]]:
    """The sites with the tones of their nodes, for the map."""
    sites: dict[str, list[NodeRow]] = {}
    for row in rows:
        sites.setdefault(row.site, []).append(row)
    selection = list(sites.items())[:MAX_SITES]
    each = MAX_CELLS // max(1, len(selection))
    return [
        {"name": name, "count": len(all_), "rows": all_[:each], "more": max(0, len(all_) - each)}
        for name, all_ in selection
    ]


def _pages(rows: list[Any], address: PageAddress) -> dict[str, Any]:
    last = max(1, -(-len(rows) // PER_PAGE))
    number = min(max(1, address.number("page", 1)), last)

    def link(page: int) -> str:
        query = {key: value for key, value in address.query.items() if value and key != "page"}
        return "?" + urlencode({**query, "page": str(page)})

    return {
        "shown": rows[(number - 1) * PER_PAGE : number * PER_PAGE],
        "count": len(rows),
        "page_number": number,
        "last_page": last,
        "before": link(number - 1) if number > 1 else "",
        "after": link(number + 1) if number < last else "",
    }
