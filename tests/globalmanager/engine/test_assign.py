"""The edge first: what nodes must hold waits for no plan, no request and no rate limit."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from common.clock import SYSTEM_CLOCK
from edgeai.api import slices
from edgeai.api.objects import LABEL_ROLE
from edgeai.api.resources import CONFIG_MAPS, PODS, Object, ObjectRef, ResourceType, ref_of
from edgeai.ids import NodeName, Uid
from edgeai.kube.sender import ClientSettings
from globalmanager.contract import Assignment, Kind, Observed, WorkerSettings
from globalmanager.engine.assign import Assigner, concerns_assignments
from globalmanager.engine.fan_out import PAUSE_S, FanOut
from globalmanager.engine.jobs import Jobs
from globalmanager.engine.metrics import EngineMetrics
from globalmanager.engine.observe import Observer
from globalmanager.engine.queue import WorkQueue
from tests.globalmanager.cluster import Edge, LocalApi, Manager, User, key_of, run_manager
from tests.globalmanager.engine.stores import Stores
from tests.globalmanager.engine.test_fan_out import spin
from tests.globalmanager.gadgets import GADGET, PARTS, assignments, gadget
from tests.globalmanager.objects import GADGETS, make
from tests.globalmanager.scripted_api import ScriptedApi
from tests.support.kubeconfig import write_kubeconfig
from tests.support.tasks import beside
from tests.support.waiting import async_eventually

MANY = range(30)  # more than there are reconcilers


# ---- nothing stands before it -------------------------------------------------------------------


def watch_of_gadgets(scripted: ScriptedApi, events: asyncio.Queue[Object]) -> None:
    """An empty cluster, of whose gadgets `events` are told; every write hangs."""

    async def tell(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        if request.path != GADGETS.path():
            await scripted.released.wait()
        while not scripted.released.is_set():
            await response.write(msgspec.json.encode(await events.get()) + b"\n")
        return response

    scripted.lists = [scripted.listing(version=1)]
    scripted.watches = [tell]
    scripted.others = [scripted.hang()]


async def test_nodes_learn_of_jobs_and_of_their_end_while_every_write_hangs(
    scripted: ScriptedApi, tmp_path: Path
) -> None:
    events: asyncio.Queue[Object] = asyncio.Queue()
    watch_of_gadgets(scripted, events)
    async with run_manager(write_kubeconfig(tmp_path / "kubeconfig", scripted.url)) as manager:
        await manager.engine.initially_assigned.wait()
        jobs = [
            make(f"g{n}", version=n + 2, namespace="default", spec={"node": "n1"}) for n in MANY
        ]
        for job in jobs:
            events.put_nowait({"type": "ADDED", "object": job})
        await async_eventually(
            "len(manager.edge.desired) == len(MANY)", lambda: len(manager.edge.desired) == len(MANY)
        )
        await async_eventually("scripted.paths('other')", lambda: scripted.paths("other"))
        for n, job in enumerate(jobs):
            ended = {**job, "metadata": {**job["metadata"], "resourceVersion": str(100 + n)}}
            events.put_nowait({"type": "DELETED", "object": ended})
        await async_eventually(
            "len(manager.edge.forgotten) == len(MANY)",
            lambda: len(manager.edge.forgotten) == len(MANY),
        )
        assert manager.writes == []
        assert manager.edge.desired == {}
        events.put_nowait({})  # ends the watch's answer


async def test_nodes_learn_of_jobs_however_low_the_rate_of_requests_is(
    cluster: LocalApi, user: User
) -> None:
    at_start = 10  # lists and watches
    rate = ClientSettings(qps=1, burst=at_start)
    async with run_manager(cluster.kubeconfig, client_settings=rate) as manager:
        await manager.engine.initially_assigned.wait()
        for n in MANY:
            await user.create(GADGETS, gadget(f"g{n}", node="n1"))
        await async_eventually(
            "len(manager.edge.desired) == len(MANY)", lambda: len(manager.edge.desired) == len(MANY)
        )
        for n in MANY:
            await user.delete(GADGETS, f"g{n}")
        await async_eventually(
            "len(manager.edge.forgotten) == len(MANY)",
            lambda: len(manager.edge.forgotten) == len(MANY),
        )
        assert len(manager.writes) < len(MANY)


# ---- only what changed is computed --------------------------------------------------------------


class Counting:
    """GADGET, which counts for how many observations it computed assignments.

    Args: each_s: of computing for one job
    """

    def __init__(self, *, each_s: float = 0.0) -> None:
        self.calls = 0
        self._each_s = each_s
        self.kind = msgspec.structs.replace(GADGET, assignments=self._assignments)

    def _assignments(self, observed: Observed) -> Mapping[NodeName, Assignment]:
        self.calls += 1
        spin(self._each_s)
        return assignments(observed)


async def test_a_status_that_changes_computes_no_assignment(cluster: LocalApi, user: User) -> None:
    counting = Counting()
    async with run_manager(cluster.kubeconfig, kinds=[counting.kind]) as manager:
        for name in "ab":
            await user.create(GADGETS, gadget(name, node="n1"))
        await async_eventually(
            "manager.phase('a') == manager.phase('b') == 'Ready'",
            lambda: manager.phase("a") == manager.phase("b") == "Ready",
        )
        before = counting.calls
        ref, uid = ObjectRef(GADGETS, "default", "a"), uid_in(manager, "a")
        for n in range(20):
            report = {"workers": {"w": {"n": n}}}
            await manager.engine.writers.status_writer.update(ref, uid, partial(told, report))
        await async_eventually(
            "manager.status('a')['workers']['w'] == {'n': 19}",
            lambda: manager.status("a")["workers"]["w"] == {"n": 19},
        )
        assert counting.calls == before
        await user.change_spec("a", node="n2")
        await async_eventually(
            "manager.edge.nodes_of('a') == ['n2']", lambda: manager.edge.nodes_of("a") == ["n2"]
        )
        assert counting.calls == before + 1


async def test_a_job_with_the_label_of_a_slice_is_no_slice(cluster: LocalApi, user: User) -> None:
    async with run_manager(cluster.kubeconfig) as manager:
        job = gadget("a", node="n1")
        job["metadata"]["labels"] = {LABEL_ROLE: slices.ROLE}
        await user.create(GADGETS, job)
        await manager.wait_for_phase("a")
        await user.change_spec("a", node="n2")
        await async_eventually("the edit", lambda: manager.edge.nodes_of("a") == ["n2"])


async def test_a_new_job_waits_for_few_of_the_jobs_that_name_a_changed_object(
    cluster: LocalApi, user: User
) -> None:
    counting = Counting(each_s=0.002)
    async with run_manager(cluster.kubeconfig, kinds=[counting.kind]) as manager:
        await make_sharers(manager, user, count=200)
        before = counting.calls
        await user.client.merge_patch(SHARED, {"spec": {"url": "another"}})
        await async_eventually("a job of the change", lambda: counting.calls > before)
        await user.create(GADGETS, gadget("new", node="n1"))
        await async_eventually("the new job", lambda: manager.edge.nodes_of("new") == ["n1"])
        assert counting.calls - before < 100
        await async_eventually("all jobs", lambda: counting.calls >= before + 201)


async def test_an_object_that_changes_without_pause_costs_each_job_little(
    cluster: LocalApi, user: User
) -> None:
    counting = Counting()
    async with run_manager(cluster.kubeconfig, kinds=[counting.kind]) as manager:
        await make_sharers(manager, user, count=100)
        before = counting.calls
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        for number in range(60):
            before_last = counting.calls
            await user.client.merge_patch(SHARED, {"spec": {"url": f"model-{number}"}})
        most = 100 + (loop.time() - began_s) / PAUSE_S * 4
        assert counting.calls - before <= most
        least = before_last + 100  # each job has the last state
        await async_eventually("the last change", lambda: counting.calls >= least)


SHARED = ObjectRef(PARTS, "default", "shared")


async def make_sharers(manager: Manager, user: User, *, count: int) -> None:
    """Jobs that name one object, and that object."""
    await user.create(PARTS, {"metadata": {"name": "shared", "namespace": "default"}, "spec": {}})
    for number in range(count):
        await user.create(GADGETS, gadget(f"sharer-{number}", node="n1", part=SHARED.name))
    await async_eventually("all jobs", lambda: len(manager.edge.desired) == count)
    await async_eventually(
        "all plans",
        lambda: all(manager.phase(f"sharer-{number}") == "Ready" for number in range(count)),
    )


def told(report: Object, _status: Mapping[str, Any]) -> Object:
    return report


def uid_in(manager: Manager, name: str) -> Uid:
    found = manager.engine.jobs.find(key_of(name))
    assert found is not None
    return Uid(found.object["metadata"]["uid"])


def changed(old: Object, **metadata: Any) -> Object:
    newer = {"resourceVersion": "2", "managedFields": [{"time": "now"}]}
    return {**old, "metadata": {**old["metadata"], **newer, **metadata}}


PHASE = {"phase": "Ready"}
READY = {"conditions": [{"type": "Ready", "status": "True"}]}
JOB = make("a", metadata={"generation": 1}, status=PHASE)
PLAIN = make("a", data={"a": "b"})

CHANGES: dict[str, tuple[ResourceType, Object | None, Object | None, bool]] = {
    "a new object": (GADGETS, None, JOB, True),
    "an end": (GADGETS, JOB, None, True),
    "a status": (GADGETS, JOB, {**changed(JOB), "status": {"phase": "Failed"}}, False),
    "a spec": (GADGETS, JOB, changed(JOB, generation=2), True),
    "the begin of an end": (GADGETS, JOB, changed(JOB, deletionTimestamp="now"), True),
    "annotations": (GADGETS, JOB, changed(JOB, annotations={"a": "b"}), True),
    "labels": (GADGETS, JOB, changed(JOB, labels={"a": "b"}), True),
    "an owner": (GADGETS, JOB, changed(JOB, ownerReferences=[{"uid": "u"}]), True),
    "another uid": (GADGETS, JOB, changed(JOB, uid="another"), True),
    "an object without generations": (GADGETS, PLAIN, changed(PLAIN), True),
    "the phase of a pod": (PODS, JOB, {**changed(JOB), "status": {"phase": "Failed"}}, True),
    "the node of a pod": (PODS, JOB, {**changed(JOB), "spec": {"nodeName": "a"}}, True),
    "a slice": (CONFIG_MAPS, PLAIN, changed(PLAIN), False),
    "a pod that is ready": (PODS, JOB, {**changed(JOB), "status": {**READY, **PHASE}}, False),
}


@pytest.mark.parametrize(("type_", "old", "new", "expected"), CHANGES.values(), ids=CHANGES)
def test_what_may_change_an_assignment(
    type_: ResourceType, old: Object | None, new: Object | None, expected: bool
) -> None:
    assert concerns_assignments(type_, old, new) is expected


# ---- one job's trouble is its own ---------------------------------------------------------------


class Assigning:
    """An assigner over stores that the test fills."""

    def __init__(self, kind: Kind = GADGET) -> None:
        self.edge = Edge()
        self.stores = Stores({GADGETS: kind})
        self.jobs = self.stores.all_of(GADGETS)
        metrics = EngineMetrics(CollectorRegistry())
        settings = WorkerSettings(root_key=bytes(32))
        observer = Observer(Jobs(self.stores), self.edge.contacts, settings)
        plans = FanOut(WorkQueue(), jobs_per_slice=1, clock=SYSTEM_CLOCK)
        self.assigner = Assigner(observer, self.edge, plans=plans, metrics=metrics)

    def put(self, job: Object) -> None:
        self.jobs.upsert(job)
        self.assigner.changed(ref_of(GADGETS, job))

    async def during(self, test: Callable[[], Awaitable[None]]) -> None:
        async with beside(self.assigner.run(), "assigner"):
            await test()


def job(name: str, *, version: int = 1, uid: str = "", **spec: str) -> Object:
    return make(name, version=version, namespace="default", uid=uid or f"uid-{name}", spec=spec)


async def test_what_nodes_hold_of_a_job_stays_when_its_kind_fails_and_the_others_go_on(
    cluster: LocalApi, user: User
) -> None:
    async with run_manager(cluster.kubeconfig) as manager:
        await user.create(GADGETS, gadget("bad", node="n1"))
        await async_eventually(
            "manager.edge.nodes_of('bad') == ['n1']", lambda: manager.edge.nodes_of("bad") == ["n1"]
        )
        await user.change_spec("bad", bug="assignments", node="n2")
        await user.create(GADGETS, gadget("good", node="n1"))
        await async_eventually(
            "manager.edge.nodes_of('good') == ['n1']",
            lambda: manager.edge.nodes_of("good") == ["n1"],
        )
        await manager.wait_for_phase("good")
        assert manager.edge.nodes_of("bad") == ["n1"]
        await user.change_spec("bad", bug="")
        await async_eventually(
            "manager.edge.nodes_of('bad') == ['n2']", lambda: manager.edge.nodes_of("bad") == ["n2"]
        )


@pytest.mark.looptime
async def test_a_kind_that_failed_is_asked_again_though_nothing_changes() -> None:
    failures = [RuntimeError("a bug in assignments")] * 3

    def flaky(observed: Observed) -> Mapping[NodeName, Assignment]:
        if failures:
            raise failures.pop()
        return assignments(observed)

    assigning = Assigning(msgspec.structs.replace(GADGET, assignments=flaky))

    async def test() -> None:
        assigning.put(job("a", node="n1"))
        await asyncio.sleep(60)
        assert assigning.edge.nodes_of("a") == ["n1"]

    await assigning.during(test)


async def test_only_a_job_that_reads_nodes_by_label_waits_for_the_list_of_nodes() -> None:
    kind = msgspec.structs.replace(
        GADGET, node_selector=lambda job: {"camera": "yes"} if job.ref.name == "fleet" else {}
    )
    assigning = Assigning(kind)
    assigning.stores.has_nodes = False

    async def test() -> None:
        assigning.put(job("fleet", node="n1"))
        assigning.put(job("a", node="n1"))
        await async_eventually("a", lambda: assigning.edge.nodes_of("a") == ["n1"])
        assert key_of("fleet") not in assigning.edge.desired
        assert not assigning.assigner.initially_assigned.is_set()
        assigning.stores.has_nodes = True
        assigning.assigner.completeness_changed()
        await async_eventually("the fleet", lambda: assigning.edge.nodes_of("fleet") == ["n1"])

    await assigning.during(test)


async def test_a_job_that_takes_long_leaves_most_of_the_loop_to_others() -> None:
    times: list[tuple[float, float]] = []  # begin and end

    def slow(observed: Observed) -> Mapping[NodeName, Assignment]:
        began = time.monotonic()
        spin(0.02)
        times.append((began, time.monotonic()))
        return assignments(observed)

    assigning = Assigning(msgspec.structs.replace(GADGET, assignments=slow))

    async def test() -> None:
        last = 0
        while len(times) < 5:
            last += 1
            assigning.put(job("a", version=last, node=f"n{last}"))
            await asyncio.sleep(0.001)
        await async_eventually("the last", lambda: assigning.edge.nodes_of("a") == [f"n{last}"])

    await assigning.during(test)
    for (began, ended), (next_begin, _) in itertools.pairwise(times):
        assert next_begin - ended > 5 * (ended - began)


async def test_what_nodes_hold_of_an_earlier_job_of_the_name_goes_even_if_the_kind_fails() -> None:
    assigning = Assigning()

    async def test() -> None:
        assigning.put(job("a", node="n1"))
        await async_eventually(
            "assigning.edge.nodes_of('a') == ['n1']", lambda: assigning.edge.nodes_of("a") == ["n1"]
        )
        assigning.put(job("a", version=2, uid="another", bug="assignments"))
        await async_eventually(
            "assigning.edge.nodes_of('a') == []", lambda: assigning.edge.nodes_of("a") == []
        )

    await assigning.during(test)


@pytest.mark.parametrize("answer", [None, {"n1": "no assignment"}], ids=["no mapping", "odd"])
async def test_an_answer_that_the_sink_cannot_take_ends_nothing(answer: Any) -> None:
    def wrong(observed: Observed) -> Mapping[NodeName, Assignment]:
        return answer if observed.spec.bug else assignments(observed)

    assigning = Assigning(msgspec.structs.replace(GADGET, assignments=wrong))

    async def test() -> None:
        assigning.put(job("bad", bug="odd"))
        assigning.put(job("good", node="n1"))
        await async_eventually(
            "assigning.edge.nodes_of('good') == ['n1']",
            lambda: assigning.edge.nodes_of("good") == ["n1"],
        )

    await assigning.during(test)


# ---- a start ------------------------------------------------------------------------------------


async def test_a_start_with_many_jobs_leaves_time_to_others() -> None:
    """Heartbeats and Leases go on while what nodes must hold is computed."""
    each_s, jobs = 0.001, 300

    def slow(observed: Observed) -> Mapping[NodeName, Assignment]:
        spin(each_s)
        return assignments(observed)

    assigning = Assigning(msgspec.structs.replace(GADGET, assignments=slow))

    async def test() -> None:
        for number in range(jobs):
            assigning.put(job(f"g{number}", node="n1"))
        turns = 0
        while not assigning.assigner.initially_assigned.is_set():
            turns += 1
            await asyncio.sleep(0)
        assert turns >= jobs / 10
        assert len(assigning.edge.desired) == jobs

    await assigning.during(test)
