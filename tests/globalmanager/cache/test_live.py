"""What the API answers about one object is in the store at once, absence included."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from edgeai.api.resources import Object, ObjectRef
from edgeai.ids import Uid
from edgeai.kube.client import KubeClient
from edgeai.kube.errors import Conflict, NotFound
from globalmanager.cache.live import Live
from globalmanager.cache.store import Store, uid_of
from tests.globalmanager.objects import GADGETS, make
from tests.globalmanager.scripted_api import ScriptedApi
from tests.support.kubeconfig import write_kubeconfig

A: Final = ObjectRef(GADGETS, "ns", "a")
UID: Final = Uid("uid-a")


def absence(name: str = "a", kind: str = "gadgets") -> Object:
    details = {"name": name, "kind": kind}
    return {"kind": "Status", "code": 404, "reason": "NotFound", "details": details}


class Desk:
    """One object `a` that the store knows, and an API that answers what a test wants."""

    def __init__(self, client: KubeClient, scripted: ScriptedApi) -> None:
        self.store = Store(GADGETS)
        self.store.upsert(make("a", version=3))
        self.live = Live(client, lambda _type: self.store)
        self._scripted = scripted

    def answer(self, *bodies: tuple[int, Any]) -> None:
        self._scripted.others = [self._scripted.json(body, code) for code, body in bodies]

    @property
    def uid(self) -> str | None:
        known = self.store.get(A)
        return None if known is None else uid_of(known)


@pytest.fixture
async def desk(scripted: ScriptedApi, tmp_path: Path) -> AsyncIterator[Desk]:
    path = write_kubeconfig(tmp_path / "kubeconfig", scripted.url)
    async with await KubeClient.from_kubeconfig(path) as client:
        yield Desk(client, scripted)


async def test_an_object_that_get_does_not_find_is_gone(desk: Desk) -> None:
    desk.answer((404, absence()))
    with pytest.raises(NotFound):
        await desk.live.get(A)
    assert desk.uid is None
    desk.store.upsert(make("a", version=9))
    assert desk.uid is None, "the watch is late"


NO_ABSENCE: Final = {
    "a page of a proxy": "<html>",
    "no such path": {"kind": "Status", "code": 404, "reason": "NotFound", "details": {}},
    "no details": {"kind": "Status", "code": 404, "reason": "NotFound"},
    "another name": absence(name="b"),
    "a namespace of that name": absence(kind="namespaces"),
}


@pytest.mark.parametrize("body", NO_ABSENCE.values(), ids=NO_ABSENCE)
async def test_a_404_that_names_no_object_says_nothing_of_it(desk: Desk, body: Any) -> None:
    """A server that has just started does not know custom resources yet."""
    desk.answer((404, body))
    for attempt in (desk.live.get(A), desk.live.get(A, uid=UID)):
        with pytest.raises(NotFound):
            await attempt
    await desk.live.delete(A, UID)
    assert desk.uid == UID


async def test_an_object_of_another_uid_takes_the_place(desk: Desk) -> None:
    desk.answer((200, make("a", version=7, uid="new")))
    with pytest.raises(NotFound, match="uid-a is gone, the name was taken by new"):
        await desk.live.get(A, uid=UID)
    assert desk.uid == "new"
    desk.store.upsert(make("a", version=5))
    assert desk.uid == "new"


async def test_the_answer_to_a_get_is_seen_at_once(desk: Desk) -> None:
    desk.answer((200, make("a", version=7, spec="new")))
    await desk.live.get(A)
    assert desk.store.get(A) == make("a", version=7, spec="new")


async def test_what_delete_ended_is_gone_at_once(desk: Desk) -> None:
    desk.answer((200, {"kind": "Status", "status": "Success"}))
    assert await desk.live.delete(A, UID)
    assert desk.uid is None


async def test_what_delete_does_not_find_is_gone(desk: Desk) -> None:
    desk.answer((404, absence()))
    assert not await desk.live.delete(A, UID)
    assert desk.uid is None


async def test_what_ends_gracefully_is_still_there(desk: Desk) -> None:
    desk.answer((200, make("a", version=4, metadata={"deletionTimestamp": "soon"})))
    assert await desk.live.delete(A, UID)
    assert desk.uid == UID


CONFLICT: Final = {"kind": "Status", "code": 409, "reason": "Conflict"}


@pytest.mark.parametrize("verb", ["delete", "replace"])
async def test_a_conflict_is_looked_into(desk: Desk, verb: str) -> None:
    """It may be another object by now."""
    desk.answer((409, CONFLICT), (200, make("a", version=8, uid="new")))
    attempt = (
        desk.live.delete(A, UID)
        if verb == "delete"
        else desk.live.replace(GADGETS, make("a", version=3))
    )
    with pytest.raises(Conflict):
        await attempt
    assert desk.uid == "new"


async def test_what_replace_does_not_find_is_gone(desk: Desk) -> None:
    desk.answer((404, absence()))
    with pytest.raises(NotFound):
        await desk.live.replace(GADGETS, make("a", version=3))
    assert desk.uid is None


async def test_a_conflict_that_cannot_be_looked_into_stays_a_conflict(desk: Desk) -> None:
    desk.answer((409, CONFLICT), (503, {}))
    with pytest.raises(Conflict):
        await desk.live.delete(A, UID)
    assert desk.uid == UID
