"""Writes reports of workers into the .status of their job, all of them by one request.

`fold` of the job's kind computes the patch of .status. This module decides what each failure of the
write means for the senders of the reports. The edge side imports neither the engine nor the
Kubernetes client, so Protocols stand here for their parts.

A report without room in the job is refused at once, because the same report would fail again. An
Event tells the user of the job, at most once in TELL_EVERY_S.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from common.clock import SYSTEM_CLOCK, Clock
from common.logs import get_logger
from edgeai.api import slices
from edgeai.api.resources import Object, ObjectRef
from edgeai.api.status import mapping
from edgeai.errors import EdgeAIError, Gone, TooLarge, Unwritable
from edgeai.ids import NodeName, TaskKey, Uid, WorkerName
from edgeai.newest import NewestKeys
from globalmanager.contract import Event, Fold, ReportRefused, Served, Severity, WorkerReport
from globalmanager.edge.sessions.inbox import GONE, Done, Dropped, Outcome, Refused, Retry

log = get_logger(__name__)


class Jobs(Protocol):
    """The job resources in the caches."""

    def find(self, key: TaskKey) -> Served | None: ...


class JobsAndSlices(Jobs, Protocol):
    def slice(self, job: Object, name: str) -> Object | None: ...


class StatusWriter(Protocol):
    async def update(
        self,
        ref: ObjectRef,
        uid: Uid,
        patch_of: Callable[[Mapping[str, Any]], Mapping[str, Any]],
        *,
        generation: int | None,
    ) -> None:
        """Patch .status of the object with this uid. Returns when the Kubernetes API has the patch.

        Args:
            patch_of: makes a merge patch from the present .status; empty: nothing changes
            generation: of the spec that the patch holds for; the object must have it
        Raises: Gone when no object has the uid, Unwritable, EdgeAIError
        """

    async def update_slice(
        self,
        ref: ObjectRef,
        uid: Uid,
        name: str,
        patch_of: Callable[[Mapping[str, Any]], Mapping[str, Any]],
        *,
        generation: int | None,
    ) -> None:
        """As `update`, for the part of .status that a slice has."""


class Recorder(Protocol):
    def record(self, about: Object, event: Event) -> None: ...


REPORT_REFUSED: Final = "ReportRefused"
TELL_EVERY_S: Final = 60.0
_SLICE_REMEDY: Final = "remove what somebody else has put there, or delete ConfigMap"
SLICE_REFUSED: Final = "SliceRefused"
_MAX_TOLD: Final = 1000  # largest number of jobs whose last Event is remembered


class _UnknownOrder(EdgeAIError):
    """Nobody knows which of two ledgers of a node is the newer one."""

    def __init__(self, report: WorkerReport) -> None:
        super().__init__(
            f"another ledger of node {report.node} has reported worker {report.worker} since the "
            "session began"
        )


class JobReportWriter:
    """Args: recorder: records Events about job resources"""

    def __init__(
        self,
        *,
        jobs: JobsAndSlices,
        writer: StatusWriter,
        recorder: Recorder,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._jobs = jobs
        self._writer = writer
        self._recorder = recorder
        self._clock = clock
        self._told_at = NewestKeys[Uid, float](_MAX_TOLD)

    async def write(self, key: TaskKey, uid: Uid, reports: Sequence[WorkerReport]) -> list[Outcome]:
        """The outcome of each report. Raises: EdgeAIError when none of them could be written now"""
        job = self._jobs.find(key)
        if job is None or job.object["metadata"]["uid"] != uid:
            return [Refused(GONE)] * len(reports)
        batch = _Batch(job, reports)
        generation = reports[0].generation
        name = _slice_name(job, reports[0].worker)
        try:
            # `patch_of` gets the .status to which is written, again after each conflict. It may be
            # newer than the cache. If the spec is, too, a worker may belong to another node. Then
            # the reports wait until the assignments are computed again.
            if name:
                await self._writer.update_slice(
                    job.ref, uid, name, batch.patch_of, generation=generation
                )
            else:
                await self._writer.update(job.ref, uid, batch.patch_of, generation=generation)
        except Gone:
            return [Refused(GONE)] * len(reports)
        except Unwritable as error:
            # edgeai writes nothing but texts into a slice, so no report is at fault.
            if name:
                self._record(job, uid, SLICE_REFUSED, f"{error}; {_SLICE_REMEDY} {name}")
                raise
            # Halves: one report that cannot be written must not fail the others.
            if half := len(reports) // 2:
                first = await self.write(key, uid, reports[:half])
                return first + await self.write(key, uid, reports[half:])
            is_for_ever = isinstance(error, TooLarge)
            batch.outcomes = [Refused(str(error)) if is_for_ever else Retry(str(error))]
        self._record_refusal(job, uid, batch)
        return batch.outcomes

    def ledgers_of(
        self, node: NodeName, key: TaskKey, workers: Iterable[WorkerName]
    ) -> Iterable[str]:
        job = self._jobs.find(key)
        if job is None:
            return ()
        entries = [self._entry(job, worker) for worker in workers]
        return {ledger for entry in entries if (ledger := _ledger_of(node, entry))}

    def slice_of(self, key: TaskKey, worker: WorkerName) -> str:
        job = self._jobs.find(key)
        return "" if job is None else _slice_name(job, worker)

    def _entry(self, job: Served, worker: WorkerName) -> Mapping[str, Any]:
        name = _slice_name(job, worker)
        if not name:
            return mapping(_workers(job.object.get("status")).get(worker))
        config_map = self._jobs.slice(job.object, name)
        return {} if config_map is None else slices.entry_of(config_map, worker)

    def _record_refusal(self, job: Served, uid: Uid, batch: "_Batch") -> None:
        """Tell the user of the job about the first report that was refused."""
        for report, outcome in zip(batch.reports, batch.outcomes, strict=True):
            if isinstance(outcome, Refused):
                message = (
                    f"a report of worker {report.worker} on node {report.node} has no place in "
                    f".status: {outcome.reason}; make the spec smaller, or let the workers report "
                    "less"
                )
                self._record(job, uid, REPORT_REFUSED, message)
                return

    def _record(self, job: Served, uid: Uid, reason: str, message: str) -> None:
        """Record an Event about the job, now and then."""
        now = self._clock.elapsed()
        if now >= self._told_at.get(uid, now - TELL_EVERY_S) + TELL_EVERY_S:
            self._told_at[uid] = now
            self._recorder.record(job.with_type(), Event(Severity.WARNING, reason, message))


class _Batch:
    """Reports of one job that are written together, and what becomes of each."""

    def __init__(self, job: Served, reports: Sequence[WorkerReport]) -> None:
        self._job = job
        self.reports = reports
        self.outcomes: list[Outcome] = []

    def patch_of(self, status: Mapping[str, Any]) -> Mapping[str, Any]:
        fold = self._job.kind.fold(status)
        self.outcomes = [self._add(report, fold, status) for report in self.reports]
        return fold.patch()

    def _add(self, report: WorkerReport, fold: Fold, status: Mapping[str, Any]) -> Outcome:
        try:
            _check_order(status, report)
            fold.add(report)
        except _UnknownOrder as error:
            return Dropped(str(error))
        except ReportRefused as error:
            return Refused(str(error))
        # a fault of one report must not stop the reports of other workers
        except Exception as error:
            log.exception("report cannot be folded", job=str(self._job.ref), worker=report.worker)
            return Retry(type(error).__name__)
        return Done()


def _check_order(status: Mapping[str, Any], report: WorkerReport) -> None:
    """Raises: _UnknownOrder when the report may not take the place of the worker's entry in .status

    The node has reported from the ledger of `report` after the session began. So it had lost every
    ledger that .status named before. A ledger that .status names since then may be the newer one:
    the session may have lost its node without noticing.
    """
    ledger = _ledger_of(report.node, mapping(_workers(status).get(report.worker)))
    if report.replaces is not None and ledger not in ("", report.ledger_id, *report.replaces):
        raise _UnknownOrder(report)


def _ledger_of(node: NodeName, entry: Mapping[str, Any]) -> str:
    """The ledger of `node` that has reported the worker last; "": another node has."""
    return str(entry.get("instance") or "") if entry.get("node") == node else ""


def _slice_name(job: Served, worker: WorkerName) -> str:
    """The slice with the worker's entry; "" when .status has it."""
    is_sliced = job.kind.is_sliced
    if is_sliced is None or not is_sliced(job.ref, worker):
        return ""
    return slices.slice_name(job.ref.name, worker)


def _workers(status: Any) -> Mapping[str, Any]:
    return mapping(mapping(status).get("workers"))
