"""Something is created only for a job that the API has confirmed since the job lost a child."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from edgeai.api.resources import Object, ObjectRef
from edgeai.kube.client import KubeClient
from edgeai.kube.errors import Conflict, NotFound, ServerError
from globalmanager.cache.live import Live
from globalmanager.cache.store import Store
from globalmanager.contract import Observed, WorkerSettings
from globalmanager.engine.owners import Owners
from tests.globalmanager.objects import GADGETS, make
from tests.globalmanager.scripted_api import ScriptedApi
from tests.support.clock import Clock
from tests.support.kubeconfig import write_kubeconfig

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
A: Final = ObjectRef(GADGETS, "ns", "a")
GONE: Final = {
    "kind": "Status",
    "code": 404,
    "reason": "NotFound",
    "details": {"name": "a", "kind": "gadgets"},
}


def job(age_s: float = 0.0, **metadata: str) -> Object:
    created = (NOW - timedelta(seconds=age_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return make("a", metadata={"creationTimestamp": created, **metadata})


def observed(object_: Object) -> Observed:
    settings = WorkerSettings(root_key=bytes(32))
    return Observed(
        type=GADGETS,
        object=object_,
        children={},
        pods=(),
        references={},
        contacts={},
        settings=settings,
    )


class Office:
    def __init__(self, client: KubeClient) -> None:
        self.store = Store(GADGETS)
        self.owners = Owners(Live(client, lambda _type: self.store), Clock(NOW.timestamp()))
        self.store.subscribe(self.owners.changed)

    async def confirm(self, object_: Object) -> None:
        await self.owners.confirm(observed(object_))
        self.owners.check(observed(object_))


@pytest.fixture
async def office(scripted: ScriptedApi, tmp_path: Path) -> AsyncIterator[Office]:
    path = write_kubeconfig(tmp_path / "kubeconfig", scripted.url)
    async with await KubeClient.from_kubeconfig(path) as client:
        yield Office(client)


async def test_a_new_job_is_not_asked_for(office: Office, scripted: ScriptedApi) -> None:
    office.store.upsert(job())
    await office.confirm(job())
    assert scripted.seen == []


@pytest.mark.parametrize("age_s", [60, -60], ids=["old", "of another clock"])
async def test_a_job_that_is_not_new_is_asked_for_once(
    office: Office, scripted: ScriptedApi, age_s: float
) -> None:
    scripted.others = [scripted.json(job(age_s))]
    office.store.upsert(job(age_s))
    await office.confirm(job(age_s))
    await office.confirm(job(age_s))
    assert len(scripted.seen) == 1


@pytest.mark.parametrize("told", ["", "yesterday", "2026-01-01T00:00:00"])
async def test_a_job_of_an_age_that_cannot_be_told_is_asked_for(
    office: Office, scripted: ScriptedApi, told: str
) -> None:
    scripted.others = [scripted.json(job())]
    office.store.upsert(job(creationTimestamp=told))
    await office.confirm(job())
    assert len(scripted.seen) == 1


async def test_a_job_that_lost_a_child_is_asked_for(office: Office, scripted: ScriptedApi) -> None:
    scripted.others = [scripted.json(job())]
    office.store.upsert(job())
    office.owners.lost_child("uid-a")
    await office.confirm(job())
    assert len(scripted.seen) == 1


async def test_a_child_that_is_lost_while_the_api_is_asked_counts(
    office: Office, scripted: ScriptedApi
) -> None:
    async def lose(_request: object) -> object:
        office.owners.lost_child("uid-a")
        return await scripted.json(job(60))(_request)  # type: ignore[arg-type]

    scripted.others = [lose]  # type: ignore[list-item]
    office.store.upsert(job(60))
    await office.owners.confirm(observed(job(60)))
    with pytest.raises(Conflict, match="deleted meanwhile"):
        office.owners.check(observed(job(60)))


async def test_a_job_that_is_gone_is_not_found_and_leaves_the_store(
    office: Office, scripted: ScriptedApi
) -> None:
    scripted.others = [scripted.json(GONE, 404)]
    office.store.upsert(job(60))
    with pytest.raises(NotFound):
        await office.confirm(job(60))
    assert office.store.get(A) is None
    with pytest.raises(Conflict):
        office.owners.check(observed(job(60)))


async def test_a_job_that_is_being_deleted_is_refused_each_time(
    office: Office, scripted: ScriptedApi
) -> None:
    scripted.others = [scripted.json(job(60, deletionTimestamp="2026-01-01T00:00:00Z"))]
    office.store.upsert(job(60))
    for _ in range(2):
        with pytest.raises(Conflict, match="being deleted"):
            await office.confirm(job(60))


async def test_an_answer_that_fails_confirms_nothing(office: Office, scripted: ScriptedApi) -> None:
    scripted.others = [scripted.failure(503, "Away"), scripted.json(job(60))]
    office.store.upsert(job(60))
    with pytest.raises(ServerError):
        await office.confirm(job(60))
    await office.confirm(job(60))
    assert len(scripted.seen) == 2


@pytest.mark.parametrize(
    "newer", [{"status": {"restarts": {"w": 1}}}, {"metadata": {"generation": 2}}]
)
async def test_a_plan_on_an_older_state_is_refused_and_the_newer_state_is_confirmed(
    office: Office, scripted: ScriptedApi, newer: Object
) -> None:
    now = {**job(60), **newer}
    now["metadata"] = {**job(60)["metadata"], **newer.get("metadata", {}), "resourceVersion": "2"}
    scripted.others = [scripted.json(now)]
    office.store.upsert(job(60))
    with pytest.raises(Conflict, match="newer"):
        await office.confirm(job(60))
    assert office.store.get(A) == now
    await office.confirm(now)
    assert len(scripted.seen) == 1


async def test_a_new_leader_asks_for_a_job_that_it_had_confirmed_before(
    office: Office, scripted: ScriptedApi
) -> None:
    scripted.others = [scripted.json(job())]
    office.store.upsert(job())
    office.owners.begin_reign()
    await office.confirm(job())
    assert len(scripted.seen) == 1


async def test_what_was_confirmed_is_forgotten_with_the_job(
    office: Office, scripted: ScriptedApi
) -> None:
    office.store.upsert(job())
    office.store.remove(make("a", version=2))
    with pytest.raises(Conflict):
        office.owners.check(observed(job()))
    assert office.owners._confirmed == set()
