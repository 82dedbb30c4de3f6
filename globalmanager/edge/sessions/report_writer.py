"""Writes a worker's report into the .status of the worker's job.

`fold` of the job's kind computes the patch of .status. This module decides what each failure of the
write means for the sender of the report. The edge side imports neither the engine nor the
Kubernetes client, so Protocols stand here for the parts of the engine.

A report without room in the job is refused at once, because the same report would fail again. An
Event tells the user of the job, at most once in TELL_EVERY_S.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from common.clock import SYSTEM_CLOCK, Clock
from common.newest import NewestKeys
from edgeai.api.resources import Object, ObjectRef
from edgeai.api.status import mapping
from edgeai.errors import EdgeAIError, Gone, TooLarge
from edgeai.ids import NodeName, TaskKey, Uid, WorkerName
from globalmanager.contract import Event, ReportRefused, Served, Severity, WorkerReport
from globalmanager.edge.sessions.inbox import GONE, Done, Dropped, Outcome, Refused, Retry


class Jobs(Protocol):
    """The job resources in the caches."""

    def find(self, key: TaskKey) -> Served | None: ...


class StatusWriter(Protocol):
    async def update(
        self,
        ref: ObjectRef,
        uid: Uid,
        patch_of: Callable[[Mapping[str, Any]], Mapping[str, Any] | None],
        *,
        generation: int | None,
    ) -> None:
        """Patch .status of the object with this uid. Returns when the Kubernetes API has the patch.

        Args:
            patch_of: makes a merge patch from the present .status; None: nothing changes
            generation: of the spec that the patch holds for; the object must have it
        Raises: Gone when no object has the uid, TooLarge, EdgeAIError
        """


class Recorder(Protocol):
    def record(self, about: Object, event: Event) -> None: ...


REPORT_REFUSED: Final = "ReportRefused"
TELL_EVERY_S: Final = 60.0
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
        jobs: Jobs,
        writer: StatusWriter,
        recorder: Recorder,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._jobs = jobs
        self._writer = writer
        self._recorder = recorder
        self._clock = clock
        self._told_at = NewestKeys[Uid, float](_MAX_TOLD)

    async def write(self, key: TaskKey, uid: Uid, report: WorkerReport) -> Outcome:
        job = self._jobs.find(key)
        if job is None or job.object["metadata"]["uid"] != uid:
            return Refused(GONE)
        kind = job.kind
        try:
            # `update` calls `fold` with the .status to which it writes. This .status may be newer
            # than the .status in the cache. If the spec is newer, too, the worker may belong to
            # another node. The report then waits until the assignments are computed again.
            await self._writer.update(
                job.ref,
                uid,
                lambda status: kind.fold(_checked(status, report), report),
                generation=report.version,
            )
        except _UnknownOrder as error:
            return Dropped(str(error))
        except Gone:
            return Refused(GONE)
        except (ReportRefused, TooLarge) as error:
            return self._refuse(job, uid, report, error)
        except EdgeAIError as error:
            return Retry(str(error), getattr(error, "retry_after_s", 0.0))
        return Done()

    def ledgers_of(
        self, node: NodeName, key: TaskKey, workers: Iterable[WorkerName]
    ) -> Iterable[str]:
        job = self._jobs.find(key)
        status_by_worker = _workers(job.object.get("status")) if job is not None else {}
        entries = [mapping(status_by_worker.get(worker)) for worker in workers]
        return {ledger for entry in entries if (ledger := _ledger_of(node, entry))}

    def _refuse(self, job: Served, uid: Uid, report: WorkerReport, error: EdgeAIError) -> Refused:
        now = self._clock.elapsed()
        if now >= self._told_at.get(uid, now - TELL_EVERY_S) + TELL_EVERY_S:
            self._told_at[uid] = now
            message = (
                f"a report of worker {report.worker} on node {report.node} has no place in "
                f".status: {error}; make the spec smaller, or let the workers report less"
            )
            self._recorder.record(job.with_type(), Event(Severity.WARNING, REPORT_REFUSED, message))
        return Refused(str(error))


def _checked(status: Mapping[str, Any], report: WorkerReport) -> Mapping[str, Any]:
    """`status`, in which the report may take the place of the worker's entry.

    The node has reported from the ledger of `report` after the session began. So it had lost every
    ledger that .status named before. A ledger that .status names since then may be the newer one:
    the session may have lost its node without noticing.

    Raises: _UnknownOrder
    """
    ledger = _ledger_of(report.node, mapping(_workers(status).get(report.worker)))
    if report.replaces is not None and ledger not in ("", report.ledger_id, *report.replaces):
        raise _UnknownOrder(report)
    return status


def _ledger_of(node: NodeName, entry: Mapping[str, Any]) -> str:
    """The ledger of `node` that has reported the worker last; "": another node has."""
    return str(entry.get("instance") or "") if entry.get("node") == node else ""


def _workers(status: Any) -> Mapping[str, Any]:
    return mapping(mapping(status).get("workers"))
