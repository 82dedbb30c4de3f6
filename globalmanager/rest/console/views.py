"""The pages: each is a function from what the caller may see to a template and its values. Pure but
for the caches that the board reads.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from http import HTTPStatus
from itertools import islice
from operator import attrgetter
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from edgeai.api.resources import Object, ObjectRef
from edgeai.api.rollouts import facts_of
from edgeai.api.status import count_of, mapping
from edgeai.faults.faults import Fault
from edgeai.faults.summary import metrics_of, numbers_of, waits_of
from edgeai.faults.tones import Tone, tone_of
from edgeai.ids import NodeName
from edgeai.text import shortened
from globalmanager.rest.console.board import Board, JobRow, NodeRow, Sight, job_row, site_of
from globalmanager.rest.console.details import (
    curve_by_round,
    node_facts,
    pod_row,
    restarts_of,
    size_of,
    timeline_of,
    word,
)
from globalmanager.rest.errors import RequestError
from globalmanager.rest.views import object_view

PER_PAGE: Final = 100
ATTENTION: Final = 30  # rows of the overview; the filters show the rest
AT_WORK: Final = 12  # rows of the overview
MAX_YAML_CHARS: Final = 60_000
MAX_SITES: Final = 200
MAX_CELLS: Final = 2000  # of the map, for all sites together
MAX_ROLLOUT_CELLS: Final = 600  # of a map that changes with each report
MAX_WAITS: Final = 10  # faults of one job
MAX_ROWS: Final = 200  # workers and conditions of one job
MAX_MESSAGE_CHARS: Final = 2000  # of a condition; edgeai's own have at most 1024
_IN_LINKS: Final = ("namespace", "kind", "phase", "state", "q")
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
    """What is wrong, then what runs. Each number stands in one place."""
    rows, nodes = board.jobs(sight), board.nodes(sight)
    wanting = [row for row in rows if row.tone in (Tone.BAD, Tone.WAITING)]
    wanting.sort(key=attrgetter("tone.urgency"))
    jobs = [row for row in rows if row.section == "jobs"]
    at_work = [row for row in jobs if row.tone == Tone.GOOD]
    lost_nodes = [row for row in nodes if row.tone == Tone.BAD]
    return Page(
        "overview.html",
        "Overview",
        {
            "section": "",
            "jobs_count": len(jobs),
            "counts": Counter(row.tone for row in jobs),
            "tones": tuple(Tone),
            "wanting": wanting[:ATTENTION],
            "wanting_more": max(0, len(wanting) - ATTENTION),
            "at_work": heapq.nlargest(AT_WORK, at_work, key=attrgetter("created")),
            "at_work_more": max(0, len(at_work) - AT_WORK),
            "lost": lost_nodes[:ATTENTION],
            "lost_more": max(0, len(lost_nodes) - ATTENTION),
            "connected_count": sum(row.connected for row in nodes),
            "edges_count": sum(row.tone != Tone.DONE for row in nodes),
        },
    )


def listing(section: str, board: Board, sight: Sight, address: PageAddress) -> Page:
    """The rows of one section, as the filters and the order in the address say."""
    rows = [row for row in board.jobs(sight) if row.section == section]
    filters = {name: address.query.get(name, "") for name in ("kind", "phase", "q", "state")}
    matches = [row for row in rows if _fits(row, filters)]
    return Page(
        "jobs.html",
        section.capitalize(),
        {
            "section": section,
            "rows": matches,
            "kinds": sorted({_kind(row) for row in rows}),
            "phases": sorted({row.phase for row in rows}),
            "tones": tuple(Tone),
            "filters": filters,
            **_ordered(matches, JOB_ORDERS, address),
        },
    )


def _kind(row: JobRow) -> str:
    return f"{row.type.kind}.{row.type.group}"


def _fits(row: JobRow, filters: Mapping[str, str]) -> bool:
    return (
        filters["kind"] in ("", _kind(row))
        and filters["phase"] in ("", row.phase)
        and filters["state"] in ("", row.tone)
        and filters["q"].lower() in f"{row.namespace}/{row.name}".lower()
    )


JOB_ORDERS: Final[Mapping[str, Callable[[JobRow], Any]]] = {
    "Name": attrgetter("namespace", "name", "type.kind"),
    "Kind": attrgetter("type.kind", "namespace", "name"),
    "Phase": attrgetter("tone.urgency", "phase", "namespace", "name"),
    "Age": attrgetter("created", "namespace", "name"),
}
"""Heading of a column -> key by which its heading sorts."""
NODE_ORDERS: Final[Mapping[str, Callable[[NodeRow], Any]]] = {
    "Site": attrgetter("site", "name"),
    "Node": attrgetter("name"),
    "Contact": attrgetter("tone.urgency", "name"),
}


def nodes(board: Board, sight: Sight, address: PageAddress) -> Page:
    rows = board.nodes(sight)
    state, text = address.query.get("state", ""), address.query.get("q", "")
    matches = [
        row
        for row in rows
        if state in ("", "connected" if row.connected else "away") and text.lower() in row.name
    ]
    return Page(
        "nodes.html",
        "Nodes",
        {
            "section": "nodes",
            "rows": matches,
            "sites": _sites(((row.site, row) for row in rows), MAX_CELLS),
            "filters": {"state": state, "q": text},
            **_ordered(matches, NODE_ORDERS, address),
        },
    )


def node(board: Board, sight: Sight, address: PageAddress) -> Page:
    name = address.path["name"]
    row = board.node(sight, NodeName(name))
    if row is None:
        problem = f"node {name}: no such node, or you may not see it"
        raise RequestError(HTTPStatus.NOT_FOUND, problem)
    pods = board.pods_on(sight, NodeName(name))
    labels = mapping(mapping(row.object.get("metadata")).get("labels"))
    workers = [
        (job, _worker(worker, entry))
        for job in board.jobs(sight)
        for worker, entry in _reported(board.job(sight, job.ref) or {}).items()
        if mapping(entry).get("node") == name
    ]
    return Page(
        "node.html",
        f"Node {name}",
        {
            "section": "nodes",
            "row": row,
            "facts": node_facts(row.object),
            "labels": [(word(name), word(value)) for name, value in labels.items()][:MAX_ROWS],
            "pods": [(pod_row(pod), job) for pod, job in pods[:MAX_ROWS]],
            "pods_more": max(0, len(pods) - MAX_ROWS),
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
    faults, row = waits_of(object_, pods, board.now()), job_row(ref.type, object_)
    rows = [pod_row(pod) for pod in pods[:MAX_ROWS]]
    names = {pod["name"] for pod in rows}
    restarts = [entry for entry in restarts_of(status) if entry[0] not in names]
    return Page(
        "job.html",
        f"{ref.type.kind} {ref.namespace}/{ref.name}",
        {
            "row": row,
            "section": row.section,
            "tone": tone_of(row.phase, faults),
            "waits": _waits(faults, names),
            "waits_title": _waits_title(row, faults),
            "workers": [_worker(*worker) for worker in workers[:MAX_ROWS]],
            "workers_more": max(0, len(workers) - MAX_ROWS),
            "pods": rows,
            "pods_more": max(0, len(pods) - MAX_ROWS),
            "restarts": restarts[:MAX_ROWS],
            "size": size_of(status),
            "rollout": _rollout(board, sight, ref, object_),
            "moments": timeline_of(object_, pods[:MAX_ROWS], scalers),
            "links": board.links(sight, ref),
            "round": count_of(status.get("round")),
            "rounds": count_of(status.get("rounds")),
            "metrics": [(word(key), word(value)) for key, value in metrics_of(status)[:MAX_ROWS]],
            "has_rounds": curve_by_round(object_) is not None,
            "numbers": {word(key): value for key, value in numbers_of(status).items()},
            "yaml": _yaml(object_),
        },
    )


def _waits_title(row: JobRow, faults: Sequence[Fault]) -> str:
    if row.phase == "Failed":
        return "Why it failed"
    is_wrong = any(fault.remedy for fault in faults) and row.tone != Tone.DONE
    return "What is wrong" if is_wrong else "What it waits for"


def _waits(faults: Sequence[Fault], pods: Collection[str]) -> list[dict[str, Any]]:
    """What is wrong, line by line, each with what to do, unless the next line says the same.

    Args: pods: names of the pods whose logs the page offers
    """
    first = faults[:MAX_WAITS]
    lines = [
        {
            "text": shortened(fault.text, MAX_MESSAGE_CHARS),
            "remedy": "" if fault.remedy in [other.remedy for other in rest[:1]] else fault.remedy,
            "pod": fault.worker if fault.worker in pods else "",
            "is_previous": fault.is_previous,
        }
        for fault, rest in ((fault, first[n + 1 :]) for n, fault in enumerate(first))
    ]
    more = len(faults) - len(lines)
    last = {"text": f"and {more} more", "remedy": "", "pod": "", "is_previous": False}
    return [*lines, last] if more else lines


def _rollout(board: Board, sight: Sight, ref: ObjectRef, object_: Object) -> dict[str, Any]:
    facts, found = facts_of(object_), board.rollout(sight, ref)
    if found is None:
        return {"facts": facts, "steps": [], "sites": [], "guard": None} if facts else {}
    rollout, nodes = found
    places = ((site_of(node.labels if sight.nodes else {}), node) for node in nodes)
    steps = rollout.steps(nodes)
    is_drawn = ("wave", "workers") if steps else ()
    return {
        "facts": {label: text for label, text in facts.items() if label not in is_drawn},
        "steps": steps,
        "counts": Counter((node.tone, node.text) for node in nodes),
        "sites": _sites(places, MAX_ROLLOUT_CELLS),
        "guard": rollout.guard(),
    }


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


def _yaml(object_: Object) -> str:
    """The object as YAML, cut before it is encoded: a large one would take the loop for seconds."""
    import yaml  # here, because yaml takes 1 MiB, and only a page of one object needs it

    content, budget = _cut(object_view(object_), MAX_YAML_CHARS)
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # in C ten times as fast
    text = yaml.dump(content, Dumper=dumper, sort_keys=False, allow_unicode=True, width=100)
    return text if budget > 0 else f"{text}# (cut)\n"


def _cut(value: Any, budget: int) -> tuple[Any, int]:
    """The beginning of a value within the budget, and how many characters may still come."""
    if isinstance(value, str):
        return value[: max(budget, 0)], budget - len(value) - _EACH
    budget -= _EACH
    if isinstance(value, dict):
        content: dict[str, Any] = {}
        for key, item in value.items():
            if budget <= 0:
                break
            content[key[:budget]], budget = _cut(item, budget - len(key))
        return content, budget
    if isinstance(value, list):
        items = []
        for part in value:
            if budget <= 0:
                break
            item, budget = _cut(part, budget)
            items.append(item)
        return items, budget
    return value, budget


def _sites(rows: Iterable[tuple[str, Any]], most: int) -> list[dict[str, Any]]:
    """The sites with their nodes, for a map. Of too many sites, those of the first rows.

    Args: rows: (site, row); most: cells of all sites
    """
    sites: dict[str, list[Any]] = {}
    for site, row in rows:
        sites.setdefault(site, []).append(row)
    selection = sorted(islice(sites.items(), MAX_SITES))
    cells = most // max(1, len(selection))
    return [
        {"name": name, "count": len(all_), "rows": all_[:cells], "more": max(0, len(all_) - cells)}
        for name, all_ in selection
    ]


def _ordered(
    rows: list[Any], orders: Mapping[str, Callable[[Any], Any]], address: PageAddress
) -> dict[str, Any]:
    """One page of the rows, in the order that the address names, and what leads to the others."""
    sort = address.query.get("sort", "")
    column = sort.removeprefix("-")
    if column in orders:
        rows = sorted(rows, key=orders[column], reverse=sort.startswith("-"))
    last = max(1, -(-len(rows) // PER_PAGE))
    number = min(max(1, address.number("page", 1)), last)

    def link(page: int, sort: str = sort) -> str:
        parameters = {name: address.query.get(name, "") for name in _IN_LINKS}
        query = {**parameters, "sort": sort, "page": "" if page == 1 else str(page)}
        return "?" + urlencode({key: value for key, value in query.items() if value})

    return {
        "shown": rows[(number - 1) * PER_PAGE : number * PER_PAGE],
        "count": len(rows),
        "page_number": number,
        "last_page": last,
        "before": link(number - 1) if number > 1 else "",
        "after": link(number + 1) if number < last else "",
        "sort": sort,
        "orders": {name: link(1, f"-{name}" if sort == name else name) for name in orders},
    }
