"""Condition Delivered of a Model, from what its nodes have told of the version that they get."""

import re
from collections.abc import Mapping
from typing import Any, Final

from edgeai.api.rollouts import ModelVersion
from edgeai.api.status import WAITING, Finding, Truth, worker_entries
from edgeai.ids import NodeName
from globalmanager.contract import Observed
from globalmanager.kinds.edge.model.assignments import number_of, worker_name
from globalmanager.kinds.edge.model.fold import MAX_NODES
from globalmanager.kinds.edge.node_reports import details_of, is_present, reason_of
from globalmanager.kinds.shared import status

DELIVERED: Final = "Delivered"

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
NOTHING: Final[Mapping[str, Any]] = {}


def delivery(observed: Observed) -> tuple[list[Finding], dict[str, Any]]:
    workers = {node: worker_name(observed, node) for node in sorted(observed.readers)}
    current = status.status_of(observed)
    entries = worker_entries(current)
    # Entries of nodes that read the Model no more go only to leave room for others. A plan may know
    # less than the API of who reads the Model, and no node tells twice what was written.
    former = dict.fromkeys(entries.keys() - workers.values())
    fields: dict[str, Any] = {"workers": former} if former and len(entries) > MAX_NODES // 2 else {}
    if observed.spec is None or not workers:
        stale = dict.fromkeys(current.keys() & {"digest", "nodes", "readyNodes"})
        return [], {**stale, **fields}
    # .status has room for the reports of so many nodes. What the others have, nobody knows here.
    reporters = [node for node, worker in workers.items() if worker in entries]
    has_room = len(workers) <= MAX_NODES or len(reporters) == len(workers)
    ready: dict[NodeName, str] = {}
    missing: dict[NodeName, Mapping[str, Any]] = {}
    for node in workers if has_room else reporters:
        content, entry = observed.readers[node], entries.get(workers[node], NOTHING)
        entry = entry if is_present(entry, number_of(observed, content)) else NOTHING
        if digest := _digest(entry, (content or observed.spec).sha256):
            ready[node] = digest
        else:
            missing[node] = entry
    of_spec = (ready[node] for node in ready if _is_of_spec(observed, observed.readers[node]))
    digest_of_spec = observed.spec.sha256 or next(of_spec, None)
    finding = _finding(missing, len(ready))
    if not has_room and not missing:
        text = f"{len(ready)} nodes have the content; {len(workers) - len(ready)} are not followed"
        finding = Finding(DELIVERED, Truth.UNKNOWN, "ManyNodes", text)
    fields |= {"digest": digest_of_spec, "nodes": len(workers), "readyNodes": len(ready)}
    return [finding], fields


def _is_of_spec(observed: Observed, content: ModelVersion | None) -> bool:
    version = (observed.uid, observed.generation)
    return content is None or (content.model, content.generation) == version


def _digest(entry: Mapping[str, Any], expected: str) -> str:
    """The digest of the content that the node has; "": it has not the right content."""
    text = str(details_of(entry).get("digest", ""))
    is_right = _DIGEST.fullmatch(text) and expected in ("", text)
    return text if entry.get("status") == "running" and is_right else ""


def _finding(missing: Mapping[NodeName, Mapping[str, Any]], ready: int) -> Finding:
    """Args: missing: nodes without the content -> their entries"""
    if not missing:
        return Finding(DELIVERED, Truth.TRUE, DELIVERED, f"{ready} nodes have the content")
    for node, entry in missing.items():
        if details_of(entry).get("problem"):
            message = f"node {node}: {entry.get('reason') or 'cannot get the content'}"
            return Finding(DELIVERED, Truth.FALSE, reason_of(entry), message)
    first, entry = next(iter(missing.items()))
    reason = "Fetching" if entry else WAITING
    what = "waits for an answer of the server" if entry.get("phase") == "asking" else "has not"
    message = f"{ready} of {ready + len(missing)} nodes have the content; node {first} {what}"
    return Finding(DELIVERED, Truth.FALSE, reason, message)
