"""Folds the reports of edges into .status.workers, within bounds that the reporters cannot exceed.

A count never falls, whatever a LocalController says. A stale report changes nothing. Nothing here
reads a clock. When only a time has changed, nothing is written. A new `revision` is written even
when nothing else has changed: it fences off an older report that comes late through another
replica of the GlobalManager, and says something else.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

from common.wire import TERMINAL
from edgeai.api import slices
from edgeai.api.status import MAX_MESSAGE_CHARS, mapping, worker_entries
from edgeai.ids import WorkerName
from edgeai.text import printable, shortened
from globalmanager.contract import ReportRefused, WorkerReport
from globalmanager.kinds.shared.status import replacement_patch
from globalmanager.kinds.shared.stored import cut, fitting, stored_bytes

MAX_WORKERS: Final = slices.MAX_WORKERS  # in one object
MAX_FORMER_NODES: Final = 16  # of one worker; the counts of further nodes become one sum
OTHER_NODES: Final = "others"
COUNTED_IN_SLICES: Final = "countedInSlices"
"""Field of .status with the sums over the workers whose entries are in slices."""

# Budgets of .status.workers, in bytes as the API stores them. etcd takes 1.5 MiB for an object with
# its spec and with metadata.managedFields, which repeats every key.
MAX_WORKERS_BYTES: Final = 768 * 1024
"""Of all workers of one object."""
FULL_ENTRIES_BYTES: Final = 512 * 1024
"""Of all workers of an object. Beyond it entries lose `reason` and `details`, for counts."""
MAX_NODE_BYTES: Final = 128 * 1024
"""Of one node's workers of one object: a node with greedy reports leaves room for other nodes."""
MAX_WORKER_BYTES: Final = 32 * 1024
"""Of one worker. The budgets of its fields are together smaller than this."""
_COUNTS_BYTES: Final = 4 * 1024
_ELSEWHERE_BYTES: Final = 8 * 1024
_DETAILS_BYTES: Final = 12 * 1024
_REASON_BYTES: Final = 2 * 1024
_PHASE_BYTES: Final = 512
_BRACES: Final = 2

_MAX_ENTRIES: Final = 32
_MAX_KEY_CHARS: Final = 64
_MAX_VALUE_CHARS: Final = 1024  # a path on a node may be long
_MAX_COUNT: Final = 2**53


def total(status: Mapping[str, Any], count: str) -> int | None:
    """Sum of a taskInfo count over all workers and nodes; 0..2**53. None where none tells it."""
    infos = [info for entry in worker_entries(status).values() for info in _infos(entry)]
    infos.append(mapping(status.get(COUNTED_IN_SLICES)))
    # The sum of entries and not of reports: a report that comes twice counts once.
    numbers = [_count(info[count]) for info in infos if is_number(info.get(count))]
    return min(sum(numbers), _MAX_COUNT) if numbers else None


def _infos(entry: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield mapping(entry.get("taskInfo"))
    # What a worker has counted on its former nodes is work that was done.
    yield from map(mapping, mapping(entry.get("countedElsewhere")).values())


def _count(value: Any) -> int:
    return int(min(max(value, 0), _MAX_COUNT)) if is_number(value) else 0


def is_number(value: Any) -> bool:
    """Whether JSON keeps the number exactly: finite, and within the integers of a double."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and -_MAX_COUNT <= value <= _MAX_COUNT


class WorkerFold:
    """Puts reports into .status.workers, one after the other. The sizes of the entries are sums, so
    that a thousand reports of one job encode no entry again.

    A report is stale when the entry has a higher attempt from the same ledger, or a later report of
    the same attempt, or when the entry says that the same attempt has ended. A report from another
    ledger is never stale. The other ledger is on another node, or the node has lost its old ledger.
    From a former node only the counts are taken when the entry is of another node.
    """

    max_workers = MAX_WORKERS
    keeps_greatest = True
    """Whether a new ledger must not reduce the counts of an earlier ledger. The entry keeps the
    counts of an earlier ledger of the same node as `countedBefore`, and the counts of each former
    node as `countedElsewhere`."""
    lasting_counts: Collection[str] = ()
    """Names of totals in taskInfo, which never fall within one ledger."""

    def __init__(self, status: Mapping[str, Any]) -> None:
        self.status = status
        self.entries = worker_entries(status)
        """With the reports that were added."""
        self._changes: dict[WorkerName, Mapping[str, Any]] = {}  # worker -> its entry before
        self._sizes: Sizes | None = None

    @property
    def sizes(self) -> "Sizes":
        if self._sizes is None:
            self._sizes = Sizes(self.entries)
        return self._sizes

    def add(self, report: WorkerReport) -> None:
        """Raises: ReportRefused when .status.workers has no room for the report"""
        entry = self.entries.get(report.worker, {})
        # A report that is repeated or late must not count twice, or undo a newer one.
        if self.is_stale(entry, report):
            return
        # For new workers only: one that has an entry can always report its end.
        if report.worker not in self.entries and len(self.entries) >= self.max_workers:
            raise ReportRefused(f"status.workers has {len(self.entries)} workers, no more are kept")
        desired = self.entry(entry, report)
        # A report whose only news is its time causes no write. Reports of training pods and of old
        # LCs can be like that: their entries have no revision.
        if _without_clocks(desired) == _without_clocks(entry):
            return
        bounded = self.bounded(report, desired)
        if _without_clocks(bounded) == _without_clocks(entry):
            return
        self._changes.setdefault(report.worker, entry)
        self.entries[report.worker] = bounded
        if self._sizes is not None:
            self._sizes.replace(report.worker, entry, bounded)

    def patch(self) -> dict[str, Any]:
        """The merge patch of .status for all added reports; empty when nothing changes."""
        changes = {
            worker: replacement_patch(before, self.entries[worker])
            for worker, before in self._changes.items()
        }
        return {"workers": changes} if changes else {}

    @property
    def after(self) -> dict[str, Any]:
        """.status with the reports that were added."""
        return {**self.status, "workers": self.entries}

    def is_stale(self, entry: Mapping[str, Any], report: WorkerReport) -> bool:
        return is_stale(entry, report)

    def entry(self, entry: Mapping[str, Any], report: WorkerReport) -> dict[str, Any]:
        """The worker's entry after the report, whatever its size."""
        # The former node knows the counts of its own run and nothing of the present worker.
        if report.is_former and entry.get("node", report.node) != report.node:
            return _with_counts_of_former_node(entry, report)
        return self._replaced(entry, report)

    def _replaced(self, entry: Mapping[str, Any], report: WorkerReport) -> dict[str, Any]:
        """The entry after the report of the node that the worker belongs to."""
        other_counts = _counts_elsewhere(entry, report) if self.keeps_greatest else NO_COUNTS
        fields = worker_entry(report, other_counts)
        if (entry.get("instance"), entry.get("node")) == (report.ledger_id, report.node):
            before = mapping(entry.get("taskInfo"))
            fields["taskInfo"] = _not_fallen(before, fields["taskInfo"], self.lasting_counts)
        # More fields are of a newer GlobalManager, and stay, because it may run again.
        unknown = {key: value for key, value in entry.items() if key not in fields}
        return {**unknown, **without_empty_fields(fields)}

    def bounded(self, report: WorkerReport, desired: dict[str, Any]) -> dict[str, Any]:
        """`desired`, or `desired` without its texts where room is short. Raises: ReportRefused"""
        before = self.entries.get(report.worker, {})
        size, size_before = item_bytes(report.worker, desired), item_bytes(report.worker, before)
        if size <= size_before:
            return desired
        others = self.sizes.total - (size_before if before else 0)
        # Nothing is short: all entries together fit into one node's share.
        if others + size <= MAX_NODE_BYTES:
            return desired
        is_of_node = bool(before) and before.get("node") == report.node
        of_node = self.sizes.of_node(report.node) - (size_before if is_of_node else 0)
        if others + size <= FULL_ENTRIES_BYTES and of_node + size <= MAX_NODE_BYTES:
            return desired
        # Texts go first, so that the counts of further workers have room.
        lean = {key: value for key, value in desired.items() if key not in ("details", "reason")}
        size = item_bytes(report.worker, lean)
        is_in_budget = others + size <= MAX_WORKERS_BYTES and of_node + size <= MAX_NODE_BYTES
        if size <= size_before or is_in_budget:
            return lean
        raise ReportRefused(
            f"status.workers is full: its entries have {others} of {MAX_WORKERS_BYTES} bytes, "
            f"those of node {report.node} have {of_node} of {MAX_NODE_BYTES}, and worker "
            f"{report.worker} needs {size} more"
        )


class LatestFold(WorkerFold):
    """For workers whose numbers may fall, as a round, a loss or a metric."""

    keeps_greatest = False


class Sizes:
    """The bytes of .status.workers as the API stores them: of all entries, and of each node's."""

    def __init__(self, entries: Mapping[str, Mapping[str, Any]]) -> None:
        self.total = _BRACES
        self._by_node: Counter[str] = Counter()
        for worker, entry in entries.items():
            self._add(entry, item_bytes(worker, entry))

    def of_node(self, node: str) -> int:
        return _BRACES + self._by_node[node]

    def replace(self, worker: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        if before:
            self._add(before, -item_bytes(worker, before))
        self._add(after, item_bytes(worker, after))

    def _add(self, entry: Mapping[str, Any], size: int) -> None:
        self.total += size
        self._by_node[str(entry.get("node"))] += size


def item_bytes(worker: str, entry: Mapping[str, Any]) -> int:
    """The size of an entry in .status.workers, with its key and a comma."""
    return stored_bytes({worker: entry}) - _BRACES + 1


def _with_counts_of_former_node(entry: Mapping[str, Any], report: WorkerReport) -> dict[str, Any]:
    """The entry of the worker's present node, with the counts that its former node now tells."""
    elsewhere = dict(mapping(entry.get("countedElsewhere")))
    before, counts = _numbers(elsewhere.get(report.node)), _lasting(report.body.task_info)
    elsewhere[report.node] = greatest(before, counts)
    return {**entry, "countedElsewhere": _merged(elsewhere)}


def _not_fallen(
    current: Mapping[str, Any], new: Mapping[str, Any], counts: Collection[str]
) -> dict[str, Any]:
    greater = {
        name: current[name]
        for name in counts
        if name in current and _count(current[name]) > _count(new.get(name))
    }
    return {**new, **greater}


class OtherCounts(NamedTuple):
    """Counts of the same worker in other ledgers than the report's ledger."""

    before: Mapping[str, Any]
    """Counts of an earlier ledger of the report's node."""
    elsewhere: Mapping[str, Any]
    """Counts of former nodes: node -> counts."""


NO_COUNTS: Final = OtherCounts({}, {})


def _counts_elsewhere(entry: Mapping[str, Any], report: WorkerReport) -> OtherCounts:
    elsewhere = dict(mapping(entry.get("countedElsewhere")))
    if entry.get("node", report.node) != report.node:
        before = _numbers(elsewhere.pop(report.node, {}))
        elsewhere[str(entry["node"])] = _lasting(entry.get("taskInfo"))
        return OtherCounts(before, _merged(elsewhere))
    # A new ledger, as after a lost disk, begins at zero. The old counts stay as a base.
    is_recount = entry.get("instance", report.ledger_id) != report.ledger_id
    return OtherCounts(
        _lasting(entry.get("taskInfo" if is_recount else "countedBefore")), elsewhere
    )


def _merged(elsewhere: dict[str, Any]) -> dict[str, Any]:
    """At most MAX_FORMER_NODES, fewer if large, and one more with the sums of further nodes."""
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
    return {name: value for name, value in mapping(counts).items() if is_number(value)}


def _lasting(counts: Any) -> dict[str, Any]:
    """The numbers that outlast a ledger: not those of one version of a model."""
    numbers = _numbers(counts).items()
    return {n: value for n, value in numbers if n != "version" and not n.endswith("OfVersion")}


def is_stale(entry: Mapping[str, Any], report: WorkerReport) -> bool:
    attempt = entry.get("attempt")
    if entry.get("instance") != report.ledger_id or not isinstance(attempt, int):
        return False
    if report.attempt == attempt:
        # A session that is over may still write after a newer one's report at another replica.
        revision = entry.get("revision")
        is_older = isinstance(revision, int) and 0 < report.revision <= revision
        return is_older or str(entry.get("status")) in TERMINAL
    return report.attempt < attempt


def worker_entry(report: WorkerReport, other_counts: OtherCounts) -> dict[str, Any]:
    """All fields of .status.workers.<worker> that a report fills, with bounded sizes.

    The field observedAt is only for display, and `revision` is only for `is_stale`.
    """
    body = report.body
    counts = _numbers(body.task_info)
    before = other_counts.before
    texts = {key: printable(value) for key, value in body.details.items()}
    details = {key: shortened(text, _MAX_VALUE_CHARS) for key, text in texts.items()}
    return {
        "node": report.node,
        "instance": report.ledger_id,
        "attempt": report.attempt,
        **({"revision": report.revision} if report.revision else {}),
        "phase": cut(printable(body.phase), _PHASE_BYTES),
        "status": body.status,
        "reason": cut(printable(body.reason)[:MAX_MESSAGE_CHARS], _REASON_BYTES),
        "taskInfo": greatest(before, counts),
        "countedBefore": _bounded(before, _COUNTS_BYTES),
        "countedElsewhere": other_counts.elsewhere,
        "details": _bounded(details, _DETAILS_BYTES),
        "observedAt": cut(printable(body.observed_at), _MAX_KEY_CHARS),
    }


def greatest(before: Any, counts: Mapping[str, Any]) -> dict[str, Any]:
    """The counts, but each at least as great as `before`, where anything may stand."""
    numbers = _numbers(before)
    sums = {key: max(number, counts.get(key, number)) for key, number in numbers.items()}
    return _bounded({**counts, **sums}, _COUNTS_BYTES)


def without_empty_fields(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A worker's entry of .status.workers without the fields that have no content."""
    return {key: value for key, value in entry.items() if value not in ("", {})}


def _bounded(entries: Mapping[str, Any], max_bytes: int) -> dict[str, Any]:
    texts = {printable(key): value for key, value in entries.items()}
    items = [item for item in texts.items() if len(item[0]) <= _MAX_KEY_CHARS]
    return fitting(dict(items[:_MAX_ENTRIES]), max_bytes)


def _without_clocks(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry without the times, which decide nothing."""
    details = {k: v for k, v in mapping(entry.get("details")).items() if k != "updateTime"}
    rest = {key: value for key, value in entry.items() if key not in ("observedAt", "details")}
    return {**rest, "details": details}
