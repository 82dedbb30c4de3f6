"""Rules for .status that all kinds share: conditions, events of conditions, and edge reports.

Called by the kinds. Two writers share .status. `fold` writes `workers`, which has the contents of
edge reports. The reconciler writes all other fields. Nothing here reads a clock. When only a time
has changed, nothing is written.
"""

import enum
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from common import times
from common.ids import WorkerName
from common.text import printable
from common.wire import TERMINAL
from globalmanager.contract import (
    Event,
    InvalidSpec,
    Object,
    Observed,
    ReportRefused,
    Severity,
    WorkerReport,
)
from globalmanager.rules.stored import cut, fitting, stored_bytes

Time = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]

ACCEPTED: Final = "Accepted"
# Reasons of conditions that are False in the normal course of a job. They cause no event.
STARTING: Final = "Starting"
WAITING: Final = "Waiting"
SUCCEEDED: Final = "Succeeded"
"""Reason of a condition that is False because the job has succeeded. Its event is not a warning."""

MAX_MESSAGE_CHARS: Final = 1024
MAX_CONDITIONS: Final = 16  # in a list of conditions that keeps its history
MAX_WORKERS: Final = 2000  # in one object
MAX_FORMER_NODES: Final = 16  # of one worker; the counts of further nodes become one sum
OTHER_NODES: Final = "others"

# Budgets of .status.workers, in bytes as the API stores them. etcd takes 1.5 MiB for an object with
# its spec and with metadata.managedFields, which repeats every key.
MAX_WORKERS_BYTES: Final = 768 * 1024
"""Of all workers of one object."""
FULL_ENTRIES_BYTES: Final = 512 * 1024
"""Of all workers of one object. Beyond this size, an entry has no `reason` and no `details`, so
that the counts of further workers have room."""
MAX_NODE_BYTES: Final = 128 * 1024
"""Of one node's workers of one object: a node with greedy reports leaves room for other nodes."""
MAX_WORKER_BYTES: Final = 32 * 1024
"""Of one worker. The budgets of its fields are together smaller than this."""
_COUNTS_BYTES: Final = 4 * 1024
_ELSEWHERE_BYTES: Final = 8 * 1024
_DETAILS_BYTES: Final = 12 * 1024
_REASON_BYTES: Final = 2 * 1024
_PHASE_BYTES: Final = 512

_MAX_ENTRIES: Final = 32
_MAX_KEY_CHARS: Final = 64
_MAX_VALUE_CHARS: Final = 256
_MAX_COUNT: Final = 2**53


class Truth(enum.StrEnum):
    """Status of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(msgspec.Struct, frozen=True, rename="camel"):
    """One entry of .status.conditions, as the Kubernetes API conventions define it."""

    type: str
    status: Truth
    reason: str
    message: str
    last_transition_time: Time
    observed_generation: int = 0


LIST_BY_TYPE: Final = msgspec.Meta(
    extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
)
"""Tells the API server that the items of a list differ in their `type`."""
Conditions = Annotated[list[Condition], LIST_BY_TYPE]


class Finding(msgspec.Struct, frozen=True):
    """A condition as a plan computes it, without time and generation."""

    type: str
    truth: Truth
    reason: str
    message: str


class Metric(msgspec.Struct, frozen=True):
    """One entry of .status.metrics. The value is text, as in Sedna."""

    key: str
    """What is measured."""
    value: str
    """The number, as text."""


# ---- fields that the reconciler writes ----------------------------------------------------------


def parse_time(value: Any) -> datetime | None:
    """An RFC 3339 time of .status or a report, in UTC; None when `value` is not such a time."""
    try:
        return times.parse(value)
    except (TypeError, ValueError):
        return None


def mapping(value: Any) -> Mapping[str, Any]:
    """`value` if it is a map, else an empty map, because a .status can contain anything."""
    return value if isinstance(value, dict) else {}


def of(observed: Observed) -> Mapping[str, Any]:
    return mapping(observed.object.get("status"))


def condition(observed: Observed, type_: str) -> Mapping[str, Any]:
    """The condition as it was last written. Empty when the job has no such condition."""
    return condition_of(observed.object, type_)


def condition_of(object_: Object, type_: str) -> Mapping[str, Any]:
    """The condition of any object. Empty when the object has no such condition."""
    known = mapping(object_.get("status")).get("conditions")
    entries = known if isinstance(known, list) else []
    return next((entry for entry in map(mapping, entries) if entry.get("type") == type_), {})


def accepted(note: str = "") -> Finding:
    """Condition Accepted for a spec that the GlobalManager can carry out."""
    return Finding(ACCEPTED, Truth.TRUE, "Valid", note or "the spec can be carried out")


def rejected(error: InvalidSpec) -> Finding:
    """Condition Accepted for a wrong spec. The message names the field, the fault and the
    remedy.
    """
    message = f"{error}. What runs already is left as it is."
    return Finding(ACCEPTED, Truth.FALSE, "InvalidSpec", message)


def conditions(
    observed: Observed, findings: Iterable[Finding], now: datetime
) -> list[dict[str, Any]]:
    """The whole list of conditions. The list has only these findings, so the list cannot grow."""
    return [_condition(observed, finding, now) for finding in findings]


def updated_conditions(
    observed: Observed, findings: Iterable[Finding], now: datetime
) -> list[dict[str, Any]]:
    """The whole list of conditions, for a kind whose API promises their order and their history.

    A finding of a known type replaces the condition in its place. A finding of a new type is
    appended. A condition without a finding stays unchanged. When the list is longer than
    MAX_CONDITIONS, the first conditions without a finding are removed.
    """
    found = {finding.type: _condition(observed, finding, now) for finding in findings}
    listed = of(observed).get("conditions")
    entries = map(mapping, listed) if isinstance(listed, list) else ()
    known = {entry["type"]: dict(entry) for entry in entries if isinstance(entry.get("type"), str)}
    history = [type_ for type_ in known if type_ not in found]
    for type_ in history[: max(len({**known, **found}) - MAX_CONDITIONS, 0)]:
        del known[type_]
    return [*{**known, **found}.values()]


def _condition(observed: Observed, finding: Finding, now: datetime) -> dict[str, Any]:
    known = condition(observed, finding.type)
    since = known.get("lastTransitionTime")
    unmoved = known.get("status") == finding.truth and parse_time(since)
    return {
        "type": finding.type,
        "status": str(finding.truth),
        "reason": finding.reason,
        "message": printable(finding.message)[:MAX_MESSAGE_CHARS],
        "lastTransitionTime": since if unmoved else times.rfc3339(now),
        "observedGeneration": observed.generation,
    }


def events(observed: Observed, findings: Iterable[Finding]) -> tuple[Event, ...]:
    """An event for each condition that became True, or that is False for a new reason."""
    made = (_event(condition(observed, finding.type), finding) for finding in findings)
    return tuple(event for event in made if event is not None)


def _event(known: Mapping[str, Any], finding: Finding) -> Event | None:
    turned = known.get("status") != finding.truth
    if finding.truth is Truth.TRUE and known and turned:
        return Event(Severity.NORMAL, finding.reason, finding.message)
    new_reason = turned or known.get("reason") != finding.reason
    if finding.truth is Truth.FALSE and new_reason and finding.reason not in (STARTING, WAITING):
        severity = Severity.NORMAL if finding.reason == SUCCEEDED else Severity.WARNING
        return Event(severity, finding.reason, finding.message)
    return None


def subtree(observed: Observed, wanted: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """`wanted` for Plan.status; None when .status already has the same values."""
    current = of(observed)
    is_written = all(current.get(key) == value for key, value in wanted.items())
    return None if is_written else wanted


def replacing_subtree(observed: Observed, wanted: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """As `subtree`, for a kind that gives each map whole: keys that .status has beyond the map are
    removed.
    """
    current = of(observed)
    patches = {
        key: replacement_patch(mapping(current.get(key)), value)
        for key, value in wanted.items()
        if isinstance(value, dict) and current.get(key) != value
    }
    return subtree(observed, {**wanted, **patches})


def described(
    observed: Observed, findings: Iterable[Finding], now: datetime
) -> Mapping[str, Any] | None:
    """Plan.status of a kind whose status has only conditions."""
    wanted = {
        "observedGeneration": observed.generation,
        "conditions": conditions(observed, findings, now),
    }
    return subtree(observed, wanted)


# ---- fields that edge reports write -------------------------------------------------------------


def workers(status: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Worker -> its entry in .status.workers."""
    return {name: mapping(entry) for name, entry in mapping(status.get("workers")).items()}


def total(status: Mapping[str, Any], count: str) -> int | None:
    """Sum of one taskInfo count over all workers and all their nodes; 0..2**53. None when no worker
    has told the count.
    """
    infos = (info for entry in workers(status).values() for info in _infos(entry))
    told = [_count(info[count]) for info in infos if _is_number(info.get(count))]
    return min(sum(told), _MAX_COUNT) if told else None


def _infos(entry: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield mapping(entry.get("taskInfo"))
    yield from map(mapping, mapping(entry.get("countedElsewhere")).values())


def _count(value: Any) -> int:
    return int(min(max(value, 0), _MAX_COUNT)) if _is_number(value) else 0


def _is_number(value: Any) -> bool:
    """Whether JSON keeps the number exactly: finite, and within the integers of a double."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and -_MAX_COUNT <= value <= _MAX_COUNT


def fold(
    status: Mapping[str, Any], report: WorkerReport, *, keep_greatest: bool = True
) -> dict[str, Any] | None:
    """The merge patch that puts `report` under .status.workers; None when nothing changes.

    Args, Raises: see `folded`, which also defines a stale report
    """
    entry = folded(status, report, keep_greatest=keep_greatest)
    return None if entry is None else entry_patch(status, report.worker, entry)


def folded(
    status: Mapping[str, Any],
    report: WorkerReport,
    *,
    keep_greatest: bool = True,
    counts: Collection[str] = (),
) -> dict[str, Any] | None:
    """The report's entry of .status.workers; None when the report is stale or changes nothing.

    A report is stale when the entry has a higher attempt from the same ledger, or a later report of
    the same attempt, or when the entry says that the same attempt has ended. A report from another
    ledger is never stale. The other ledger is on another node, or the node has lost its old ledger.
    From a former node only the counts are taken when the entry is of another node.

    Args:
        keep_greatest: True when a new ledger must not reduce the counts of an earlier ledger. The
            entry keeps the counts of an earlier ledger of the same node as `countedBefore`, and the
            counts of each former node as `countedElsewhere`
        counts: names of totals in taskInfo. They never fall within one ledger, whatever its
            LocalController says

    Raises: ReportRefused when .status.workers has no room for the report
    """
    known = workers(status)
    entry = known.get(report.worker, {})
    if is_stale(entry, report):
        return None
    if report.worker not in known and len(known) >= MAX_WORKERS:
        raise ReportRefused(f"status.workers has {len(known)} workers, no more are kept")
    if report.is_former and entry.get("node", report.node) != report.node:
        wanted = _with_counts_of_former_node(entry, report)
    else:
        wanted = _replaced(entry, report, keep_greatest=keep_greatest, counts=counts)
    if _without_clocks(wanted) == _without_clocks(entry):
        return None
    kept = _within_budget(known, report, wanted)
    return None if _without_clocks(kept) == _without_clocks(entry) else kept


def _replaced(
    entry: Mapping[str, Any],
    report: WorkerReport,
    *,
    keep_greatest: bool,
    counts: Collection[str],
) -> dict[str, Any]:
    """The entry after the report of the node that the worker belongs to."""
    counted = _counted(entry, report) if keep_greatest else NOTHING_COUNTED
    ours = worker_entry(report, counted)
    if (entry.get("instance"), entry.get("node")) == (report.ledger_id, report.node):
        ours["taskInfo"] = _not_fallen(mapping(entry.get("taskInfo")), ours["taskInfo"], counts)
    # A newer GlobalManager may have written more fields. They stay, because that GlobalManager may
    # run again.
    theirs = {key: value for key, value in entry.items() if key not in ours}
    return {**theirs, **_without_empty_fields(ours)}


def _with_counts_of_former_node(entry: Mapping[str, Any], report: WorkerReport) -> dict[str, Any]:
    """The entry of the worker's present node, with the counts that its former node now tells."""
    elsewhere = dict(mapping(entry.get("countedElsewhere")))
    before, counts = _numbers(elsewhere.get(report.node)), _numbers(report.body.task_info)
    elsewhere[report.node] = _greatest(before, counts)
    return {**entry, "countedElsewhere": _merged(elsewhere)}


def _not_fallen(
    known: Mapping[str, Any], new: Mapping[str, Any], counts: Collection[str]
) -> dict[str, Any]:
    greater = {
        name: known[name]
        for name in counts
        if name in known and _count(known[name]) > _count(new.get(name))
    }
    return {**new, **greater}


def _within_budget(
    known: Mapping[str, Mapping[str, Any]], report: WorkerReport, wanted: dict[str, Any]
) -> dict[str, Any]:
    """`wanted`, or `wanted` without its texts where room is short. Raises: ReportRefused"""
    size = stored_bytes(wanted)
    before = stored_bytes(known.get(report.worker, {}))
    others = stored_bytes(known) - before
    if size <= before or others + size <= MAX_NODE_BYTES:
        return wanted
    of_node = stored_bytes(
        {
            name: entry
            for name, entry in known.items()
            if entry.get("node") == report.node and name != report.worker
        }
    )
    if others + size <= FULL_ENTRIES_BYTES and of_node + size <= MAX_NODE_BYTES:
        return wanted
    lean = {key: value for key, value in wanted.items() if key not in ("details", "reason")}
    size = stored_bytes(lean)
    is_in_budget = others + size <= MAX_WORKERS_BYTES and of_node + size <= MAX_NODE_BYTES
    if size <= before or is_in_budget:
        return lean
    raise ReportRefused(
        f"status.workers is full: its entries have {others} of {MAX_WORKERS_BYTES} bytes, those of "
        f"node {report.node} have {of_node} of {MAX_NODE_BYTES}, and worker {report.worker} needs "
        f"{size} more"
    )


def entry_patch(
    status: Mapping[str, Any], worker: WorkerName, entry: Mapping[str, Any]
) -> dict[str, Any]:
    """The merge patch of .status that replaces the worker's entry by `entry`."""
    return {"workers": {worker: replacement_patch(workers(status).get(worker, {}), entry)}}


class Counted(NamedTuple):
    """Counts of the same worker in other ledgers than the report's ledger."""

    before: Mapping[str, Any]
    """Counts of an earlier ledger of the report's node."""
    elsewhere: Mapping[str, Any]
    """Counts of former nodes: node -> counts."""


NOTHING_COUNTED: Final = Counted({}, {})


def _counted(entry: Mapping[str, Any], report: WorkerReport) -> Counted:
    elsewhere = dict(mapping(entry.get("countedElsewhere")))
    if entry.get("node", report.node) != report.node:
        before = _numbers(elsewhere.pop(report.node, {}))
        elsewhere[str(entry["node"])] = _numbers(entry.get("taskInfo"))
        return Counted(before, _merged(elsewhere))
    is_recount = entry.get("instance", report.ledger_id) != report.ledger_id
    return Counted(_numbers(entry.get("taskInfo" if is_recount else "countedBefore")), elsewhere)


def _merged(elsewhere: dict[str, Any]) -> dict[str, Any]:
    """At most MAX_FORMER_NODES entries, and fewer where these would be too large. One more entry
    has the summed counts of further nodes.
    """
    while len(elsewhere) > MAX_FORMER_NODES or (
        elsewhere.keys() - {OTHER_NODES} and stored_bytes(elsewhere) > _ELSEWHERE_BYTES
    ):
        node = next(name for name in elsewhere if name != OTHER_NODES)
        counts, others = mapping(elsewhere.pop(node)), mapping(elsewhere.get(OTHER_NODES))
        names = {**others, **counts}
        sums = {n: _count(others.get(n)) + _count(counts.get(n)) for n in names}
        elsewhere[OTHER_NODES] = _bounded(sums, _COUNTS_BYTES)
    return elsewhere


def _numbers(counts: Any) -> dict[str, Any]:
    return {name: value for name, value in mapping(counts).items() if _is_number(value)}


def is_stale(entry: Mapping[str, Any], report: WorkerReport) -> bool:
    attempt = entry.get("attempt")
    if entry.get("instance") != report.ledger_id or not isinstance(attempt, int):
        return False
    if report.attempt == attempt:
        # A session that is over may still write a report here, after a newer session of the node
        # has written a later report at another replica.
        known = entry.get("revision")
        is_older = isinstance(known, int) and 0 < report.revision <= known
        return is_older or str(entry.get("status")) in TERMINAL
    return report.attempt < attempt


def worker_entry(report: WorkerReport, counted: Counted) -> dict[str, Any]:
    """All fields of .status.workers.<worker> that a report fills, with bounded sizes.

    The field observedAt is only for display.
    """
    body = report.body
    counts = _numbers(body.task_info)
    before = counted.before
    details = {k: printable(value)[:_MAX_VALUE_CHARS] for k, value in body.details.items()}
    return {
        "node": report.node,
        "instance": report.ledger_id,
        "attempt": report.attempt,
        **({"revision": report.revision} if report.revision else {}),
        "phase": cut(printable(body.phase)[:_MAX_VALUE_CHARS], _PHASE_BYTES),
        "status": body.status,
        "reason": cut(printable(body.reason)[:MAX_MESSAGE_CHARS], _REASON_BYTES),
        "taskInfo": _greatest(before, counts),
        "countedBefore": _bounded(before, _COUNTS_BYTES),
        "countedElsewhere": counted.elsewhere,
        "details": _bounded(details, _DETAILS_BYTES),
        "observedAt": cut(printable(body.observed_at), _MAX_KEY_CHARS),
    }


def _greatest(before: Mapping[str, Any], counts: Mapping[str, Any]) -> dict[str, Any]:
    greatest = {key: max(n, counts.get(key, n)) for key, n in before.items()}
    return _bounded({**counts, **greatest}, _COUNTS_BYTES)


def _without_empty_fields(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A worker's entry of .status.workers without the fields that have no content."""
    return {key: value for key, value in entry.items() if value not in ("", {})}


def _bounded(entries: Mapping[str, Any], max_bytes: int) -> dict[str, Any]:
    shown = {printable(key): value for key, value in entries.items()}
    named = [item for item in shown.items() if len(item[0]) <= _MAX_KEY_CHARS]
    return fitting(dict(named[:_MAX_ENTRIES]), max_bytes)


def _without_clocks(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry without the times that change with every report."""
    details = {k: v for k, v in mapping(entry.get("details")).items() if k != "updateTime"}
    rest = {key: value for key, value in entry.items() if key not in ("observedAt", "details")}
    return {**rest, "details": details}


def replacement_patch(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that replaces a worker's stored entry of .status.workers by `wanted`, or one
    map in it. The value null removes a field.
    """
    patch: dict[str, Any] = {key: None for key in stored if key not in wanted}
    for key, value in wanted.items():
        is_map = isinstance(value, dict)
        patch[key] = replacement_patch(mapping(stored.get(key)), value) if is_map else value
    return patch
