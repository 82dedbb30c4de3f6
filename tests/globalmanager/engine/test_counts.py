"""A report that changes only counts leads to no plan at once, and every other change does."""

import asyncio
from functools import partial
from typing import Any

import msgspec
import pytest

from edgeai.api.resources import Object, ObjectRef
from globalmanager.engine.changes import only_counts_differ
from globalmanager.engine.settings import EngineSettings
from globalmanager.kinds import KINDS
from globalmanager.kinds.edge.jointinferenceservice import KIND
from tests.globalmanager.cluster import FAST, LocalApi, User, run_manager
from tests.globalmanager.gadgets import GADGET, counting, gadget
from tests.globalmanager.objects import GADGETS
from tests.support.waiting import async_eventually

ENTRY = {"node": "n1", "attempt": 1, "status": "running", "taskInfo": {"seen": 1}, "revision": 1}
STATUS = {"phase": "Running", "uploadCount": 1, "metrics": [], "workers": {"w": ENTRY}}


def job(status: dict[str, Any], **metadata: Any) -> Object:
    given = {"name": "a", "uid": "u", "generation": 1, "resourceVersion": "1", **metadata}
    return {"metadata": given, "status": status}


def with_entry(**fields: Any) -> dict[str, Any]:
    return {**STATUS, "workers": {"w": {**ENTRY, **fields}}}


COUNTS = {
    "counts": {**with_entry(taskInfo={"seen": 2}, revision=2), "uploadCount": 2, "metrics": [1]},
    "time": with_entry(observedAt="2026-11-23T00:00:00Z"),
    "nothing": STATUS,
}


@pytest.mark.parametrize("status", COUNTS.values(), ids=COUNTS.keys())
def test_counts_of_known_workers_need_no_plan_at_once(status: dict[str, Any]) -> None:
    assert only_counts_differ(KIND, job(STATUS), job(status, resourceVersion="2"))


MORE = {
    "end of a worker": job(with_entry(status="completed")),
    "next attempt": job(with_entry(attempt=2)),
    "new worker": job({**STATUS, "workers": {"w": ENTRY, "v": ENTRY}}),
    "no worker": job({**STATUS, "workers": {}}),
    "another field": job({**STATUS, "fallbacksInARow": 1}),
    "field removed": job({key: value for key, value in STATUS.items() if key != "phase"}),
    "new spec": job(STATUS, generation=2),
    "deletion": job(STATUS, deletionTimestamp="2026-11-23T00:00:00Z"),
    "annotation": job(STATUS, annotations={"a": "b"}),
}


@pytest.mark.parametrize("after", MORE.values(), ids=MORE.keys())
def test_every_other_change_needs_a_plan(after: Object) -> None:
    assert not only_counts_differ(KIND, job(STATUS), after)


def test_the_first_and_the_last_state_of_a_job_need_a_plan() -> None:
    assert not only_counts_differ(KIND, None, job(STATUS))
    assert not only_counts_differ(KIND, job(STATUS), None)


@pytest.mark.parametrize(
    "kind", [each for each in KINDS if not each.sums], ids=lambda kind: kind.definition.singular
)
def test_a_kind_that_names_no_sums_plans_for_each_report(kind: Any) -> None:
    assert not only_counts_differ(kind, job(STATUS), job(with_entry(taskInfo={"seen": 2})))


async def report(user: User, total: int, status: str = "running") -> None:
    entry = {"status": status, "taskInfo": {"seen": total}}
    patch = {"status": {"workers": {"w": entry}, "total": total}}
    await user.client.merge_patch(ObjectRef(GADGETS, "default", "a"), patch, subresource="status")


async def test_the_engine_plans_for_news_at_once_and_for_counts_later(
    cluster: LocalApi, user: User
) -> None:
    kind, plans = counting(msgspec.structs.replace(GADGET, sums=frozenset({"total"})))
    settings = EngineSettings(informer=FAST, counts_s=3600)
    async with run_manager(cluster.kubeconfig, kinds=(kind,), settings=settings) as manager:
        await user.create(GADGETS, gadget("a", node="n1"))
        await manager.wait_for_phase("a")

        async def planned_after(name: str, total: int, status: str = "running") -> int:
            """How often `a` was planned for a report, when another job has been planned since."""
            before = plans["a"]
            await report(user, total, status)
            await user.create(GADGETS, gadget(name, node="n1"))
            await manager.wait_for_phase(name)
            return plans["a"] - before

        assert await planned_after("first", 1) >= 1
        await asyncio.sleep(0)
        assert await planned_after("more", 2) == 0
        assert await planned_after("end", 2, "completed") >= 1


async def test_counts_are_planned_after_a_while(cluster: LocalApi, user: User) -> None:
    kind, plans = counting(msgspec.structs.replace(GADGET, sums=frozenset({"total"})))
    settings = EngineSettings(informer=FAST, counts_s=0.05)
    async with run_manager(cluster.kubeconfig, kinds=(kind,), settings=settings) as manager:
        await user.create(GADGETS, gadget("a", node="n1"))
        await manager.wait_for_phase("a")
        for total in (1, 2, 3):
            before = plans["a"]
            await report(user, total)
            await async_eventually("a plan", partial(lambda n: plans["a"] > n, before))
