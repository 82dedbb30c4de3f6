"""From a report to a status: what each way to fail means for the sender."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from common import wire
from edgeai.api.jointinferenceservice import DEFINITION
from edgeai.api.resources import Object, ObjectRef, ref_of
from edgeai.errors import EdgeAIError, Gone, Overloaded, TooLarge, Unavailable
from edgeai.ids import TaskKey, Uid, WorkerName
from globalmanager.contract import Event, Kind, Plan, ReportRefused, Served, Severity, WorkerReport
from globalmanager.edge.sessions.inbox import Done, Outcome, Refused, Retry
from globalmanager.edge.sessions.report_writer import TELL_EVERY_S, JobReportWriter
from globalmanager.engine.status import PatchOf
from tests.globalmanager.edge.world import A, key, uid
from tests.support.clock import Clock

TYPE = DEFINITION.types[0]


def fold(status: Mapping[str, Any], report: WorkerReport) -> Mapping[str, Any] | None:
    state = report.body.status
    if status.get("workers", {}).get(report.worker) == state:
        return None
    return {"workers": {report.worker: state}}


KIND = Kind(
    definition=DEFINITION,
    read=dict,
    plan=lambda _observed, _now: Plan(),
    fold=fold,
)


class JobApi:
    """One object, and an API that may refuse."""

    def __init__(self, status: Object | None = None, error: EdgeAIError | None = None) -> None:
        metadata = {"name": "task-0", "namespace": "default", "uid": uid()}
        self.object: Object = {"metadata": metadata, "status": status or {}}
        self.error = error
        self.written: list[tuple[ObjectRef, Uid, Mapping[str, Any]]] = []
        self.generations: list[int | None] = []  # that the writes hold for
        self.events: list[Event] = []
        self.clock = Clock()
        self.fold = JobReportWriter(jobs=self, writer=self, recorder=self, clock=self.clock)

    def find(self, asked: TaskKey) -> Served | None:
        return Served(KIND, ref_of(TYPE, self.object), self.object) if asked == key() else None

    def record(self, _about: Object, event: Event) -> None:
        self.events.append(event)

    async def update(
        self, ref: ObjectRef, uid: Uid, patch_of: PatchOf, *, generation: int | None
    ) -> None:
        self.generations.append(generation)
        patch = patch_of(self.object["status"])
        if patch is None:
            return
        if self.error is not None:
            raise self.error
        self.written.append((ref, uid, patch))


REPORT = WorkerReport(
    node=A, ledger_id="i", worker=WorkerName("w"), attempt=1, body=wire.ReportBody()
)


async def test_a_report_becomes_a_patch_of_exactly_its_object() -> None:
    cluster = JobApi()
    assert await cluster.fold.write(key(), uid(), REPORT) == Done()
    ref = ObjectRef(TYPE, "default", "task-0")
    assert cluster.written == [(ref, uid(), {"workers": {"w": "running"}})]


async def test_a_report_is_written_to_the_spec_that_its_assignment_is_made_of() -> None:
    cluster = JobApi()
    report = msgspec.structs.replace(REPORT, version=4)
    assert await cluster.fold.write(key(), uid(), report) == Done()
    assert cluster.generations == [4]


async def test_what_changes_nothing_is_done_without_a_write() -> None:
    cluster = JobApi(status={"workers": {"w": "running"}}, error=Gone("never asked"))
    assert await cluster.fold.write(key(), uid(), REPORT) == Done()


@pytest.mark.parametrize(("asked", "of"), [(key(1), uid()), (key(), uid(1))])
async def test_another_object_is_not_touched(asked: TaskKey, of: Uid) -> None:
    cluster = JobApi()
    assert await cluster.fold.write(asked, of, REPORT) == Refused("gone")
    assert not cluster.written


ERRORS: dict[str, tuple[EdgeAIError, Outcome]] = {
    "gone meanwhile": (Gone("no such object"), Refused("gone")),
    "away": (Unavailable("no answer"), Retry("no answer")),
    "overloaded": (Overloaded("api", 7), Retry("api is overloaded, retry after 7 s", 7)),
    "refused": (EdgeAIError("forbidden"), Retry("forbidden")),
}


@pytest.mark.parametrize(("error", "outcome"), ERRORS.values(), ids=ERRORS.keys())
async def test_an_error_of_the_write_is_an_outcome(error: EdgeAIError, outcome: Outcome) -> None:
    assert await JobApi(error=error).fold.write(key(), uid(), REPORT) == outcome


@pytest.mark.parametrize("error", [TooLarge("no room"), ReportRefused("no room")])
async def test_a_report_without_room_is_refused_and_told_now_and_then(error: EdgeAIError) -> None:
    cluster = JobApi(error=error)
    for _ in range(3):
        assert await cluster.fold.write(key(), uid(), REPORT) == Refused("no room")
    (event,) = cluster.events
    assert (event.reason, event.severity) == ("ReportRefused", Severity.WARNING)
    assert "worker w on node node-0" in event.message
    cluster.clock.now_s += TELL_EVERY_S
    assert await cluster.fold.write(key(), uid(), REPORT) == Refused("no room")
    assert len(cluster.events) == 2
