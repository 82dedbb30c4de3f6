"""From a report to a status: what each way to fail means for the sender."""

from collections.abc import Mapping
from typing import Any

import pytest

from common import wire
from edgeai.api import slices
from edgeai.api.jointinferenceservice import DEFINITION
from edgeai.api.resources import Object, ObjectRef, ref_of
from edgeai.errors import EdgeAIError, Gone, Overloaded, TooLarge, Unavailable, Unwritable
from edgeai.ids import TaskKey, Uid, WorkerName
from edgeai.kube.patches import merged
from globalmanager.contract import Event, Kind, Plan, ReportRefused, Served, Severity, WorkerReport
from globalmanager.edge.sessions.inbox import Done, Outcome, Refused, Retry
from globalmanager.edge.sessions.report_writer import TELL_EVERY_S, JobReportWriter
from globalmanager.engine.status import PatchOf
from tests.globalmanager.edge.world import A, key, uid
from tests.support.clock import Clock

TYPE = DEFINITION.types[0]


class StateFold:
    def __init__(self, status: Mapping[str, Any]) -> None:
        self._before = status.get("workers", {})
        self._workers: dict[str, Any] = {}

    def add(self, report: WorkerReport) -> None:
        if report.body.phase == "too long":
            raise ReportRefused("no room")
        if report.body.phase == "unheard of":
            raise ZeroDivisionError
        if self._before.get(report.worker) != report.body.status:
            self._workers[report.worker] = report.body.status

    def patch(self) -> Mapping[str, Any]:
        return {"workers": self._workers} if self._workers else {}


KIND = Kind(
    definition=DEFINITION,
    read=dict,
    plan=lambda _observed, _now: Plan(),
    fold=StateFold,
    is_sliced=lambda _job, worker: worker.startswith("many-"),
)


class JobApi:
    """One object, and an API that may refuse."""

    def __init__(self, status: Object | None = None, error: EdgeAIError | None = None) -> None:
        metadata = {"name": "task-0", "namespace": "default", "uid": uid()}
        self.object: Object = {"metadata": metadata, "status": status or {}}
        self.error = error
        self.bad: EdgeAIError = Unwritable("workers.bad must be a number")
        self.written: list[tuple[ObjectRef, Uid, Mapping[str, Any]]] = []
        self.generations: list[int | None] = []  # that the writes hold for
        self.slices: dict[str, Object] = {}
        self.slice_error: EdgeAIError | None = None
        self.slice_requests = 0
        self.events: list[Event] = []
        self.clock = Clock()
        self.reports = JobReportWriter(jobs=self, writer=self, recorder=self, clock=self.clock)

    async def receive(self, *reports: WorkerReport) -> list[Outcome]:
        return await self.reports.write(key(), uid(), reports)

    def find(self, asked: TaskKey) -> Served | None:
        return Served(KIND, ref_of(TYPE, self.object), self.object) if asked == key() else None

    def slice(self, _job: Object, name: str) -> Object | None:
        return self.slices.get(name)

    def record(self, _about: Object, event: Event) -> None:
        self.events.append(event)

    async def update(
        self, ref: ObjectRef, uid: Uid, patch_of: PatchOf, *, generation: int | None
    ) -> None:
        self.generations.append(generation)
        patch = patch_of(self.object["status"])
        if not patch:
            return
        if self.error is not None:
            raise self.error
        if "bad" in patch["workers"]:
            raise self.bad
        self.written.append((ref, uid, patch))

    async def update_slice(
        self, ref: ObjectRef, uid: Uid, name: str, patch_of: PatchOf, *, generation: int | None
    ) -> None:
        self.slice_requests += 1
        if self.slice_error is not None:
            raise self.slice_error
        config_map = self.slices.setdefault(name, {})
        part = slices.part_of(config_map)
        if patch := patch_of(part):
            data = slices.data_of(merged(part, patch), patch["workers"])
            self.slices[name] = dict(merged(config_map, {"data": data}))


def report(worker: str = "w", **fields: Any) -> WorkerReport:
    body = wire.ReportBody(**fields)
    return WorkerReport(
        node=A, ledger_id="i", worker=WorkerName(worker), attempt=1, body=body, generation=4
    )


async def test_reports_become_one_patch_of_exactly_their_object() -> None:
    """It holds for the spec that their assignment is made of."""
    cluster = JobApi()
    assert await cluster.receive(report(), report("v")) == [Done(), Done()]
    ref = ObjectRef(TYPE, "default", "task-0")
    assert cluster.written == [(ref, uid(), {"workers": {"w": "running", "v": "running"}})]
    assert cluster.generations == [4]


async def test_what_changes_nothing_is_done_without_a_write() -> None:
    cluster = JobApi(status={"workers": {"w": "running"}}, error=Gone("never asked"))
    assert await cluster.receive(report()) == [Done()]


@pytest.mark.parametrize(("asked", "of"), [(key(1), uid()), (key(), uid(1))])
async def test_another_object_is_not_touched(asked: TaskKey, of: Uid) -> None:
    cluster = JobApi()
    assert await cluster.reports.write(asked, of, [report()]) == [Refused("gone")]
    assert not cluster.written


async def test_an_object_that_is_gone_meanwhile_refuses_all() -> None:
    outcomes = await JobApi(error=Gone("no such object")).receive(report(), report("v"))
    assert outcomes == [Refused("gone"), Refused("gone")]


@pytest.mark.parametrize("error", [Unavailable("no answer"), Overloaded("api", 7)])
async def test_an_api_that_writes_nothing_now_is_an_error(error: EdgeAIError) -> None:
    with pytest.raises(type(error)):
        await JobApi(error=error).receive(report())


async def test_a_report_that_cannot_be_folded_harms_no_other() -> None:
    cluster = JobApi()
    reports = [report(), report("v", phase="unheard of"), report("u", phase="too long")]
    assert await cluster.receive(*reports, report("t")) == [
        Done(),
        Retry("ZeroDivisionError"),
        Refused("no room"),
        Done(),
    ]
    assert [patch for *_, patch in cluster.written] == [{"workers": dict.fromkeys("wt", "running")}]


async def test_a_report_that_the_api_does_not_take_harms_no_other() -> None:
    cluster = JobApi()
    names = [*"abcdefgh", "bad", *"ijklmnop"]
    outcomes = dict(zip(names, await cluster.receive(*map(report, names)), strict=True))
    assert outcomes.pop("bad") == Retry("workers.bad must be a number")
    assert set(outcomes.values()) == {Done()}
    assert {name for *_, patch in cluster.written for name in patch["workers"]} == outcomes.keys()
    assert len(cluster.generations) < len(names), "requests"


@pytest.mark.parametrize("error", [TooLarge("no room"), None])
async def test_a_report_without_room_is_refused_and_told_now_and_then(
    error: EdgeAIError | None,
) -> None:
    cluster = JobApi(error=error)
    reports = [report(phase="" if error else "too long"), report("v", phase="too long")]
    for _ in range(3):
        assert await cluster.receive(*reports) == [Refused("no room")] * 2
    (event,) = cluster.events
    assert (event.reason, event.severity) == ("ReportRefused", Severity.WARNING)
    assert "worker w on node node-0" in event.message
    cluster.clock.now_s += TELL_EVERY_S
    await cluster.receive(*reports)
    assert len(cluster.events) == 2


# ---- slices -------------------------------------------------------------------------------------

MANY = [f"many-{number}" for number in range(20)]


def entries_of(cluster: JobApi) -> dict[str, dict[str, Any]]:
    """Slice -> worker -> its entry."""
    return {name: slices.part_of(one)["workers"] for name, one in cluster.slices.items()}


async def test_reports_of_many_workers_go_into_the_slices_of_their_job() -> None:
    cluster = JobApi()
    by_slice: dict[str, list[WorkerReport]] = {}
    for one in (report(name, status="failed") for name in (*MANY, "one")):
        by_slice.setdefault(cluster.reports.slice_of(key(), one.worker), []).append(one)
    for reports in by_slice.values():
        assert await cluster.receive(*reports) == [Done()] * len(reports)
    assert {worker for one in entries_of(cluster).values() for worker in one} == set(MANY)
    assert set(entries_of(cluster)) == set(slices.slice_names("task-0"))
    ((_, _, patch),) = cluster.written
    assert patch == {"workers": {"one": "failed"}}


async def test_a_slice_that_the_api_refuses_is_asked_once_and_told_now_and_then() -> None:
    cluster = JobApi()
    cluster.slice_error = Unwritable("field is immutable when `immutable` is set")
    name = cluster.reports.slice_of(key(), WorkerName("many-1"))
    for _ in range(2):
        with pytest.raises(Unwritable):
            await cluster.receive(*[report("many-1")] * 50)
    assert cluster.slice_requests == 2
    (event,) = cluster.events
    assert (event.reason, event.severity) == ("SliceRefused", Severity.WARNING)
    assert "immutable" in event.message
    assert name in event.message
