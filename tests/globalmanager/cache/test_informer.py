"""The informer keeps a store equal to the API, whichever fault list or watch has."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from edgeai.api.resources import AUTOSCALERS, Object, ResourceType
from edgeai.kube.client import KubeClient
from edgeai.kube.sender import ClientSettings
from globalmanager.cache.informer import Informer, InformerSettings, InformerSubscriber
from globalmanager.cache.store import Store
from tests.globalmanager.objects import GADGETS, make
from tests.globalmanager.scripted_api import ScriptedApi
from tests.support.waiting import async_eventually

SETTINGS = InformerSettings(
    watch_s=1.0, backoff_base_s=0.02, backoff_max_s=0.05, absent_after_s=0.1
)


class Running(InformerSubscriber):
    """A running informer and the changes that its store reported."""

    def __init__(
        self,
        client: KubeClient,
        settings: InformerSettings = SETTINGS,
        type_: ResourceType = GADGETS,
    ) -> None:
        store = Store(type_)
        self.changes: list[tuple[str, str]] = []
        self.settlements = 0
        store.subscribe(self._changed)
        self.informer = Informer(
            client, store, settings=settings, subscriber=self, label_selector="a=b"
        )

    def _changed(self, old: Object | None, new: Object | None) -> None:
        what = "added" if old is None else "deleted" if new is None else "modified"
        self.changes.append((what, (new or old or {})["metadata"]["name"]))

    def completeness_changed(self) -> None:
        self.settlements += 1

    @property
    def names(self) -> list[str]:
        return [object_["metadata"]["name"] for object_ in self.informer.store.list()]

    async def wait_for_names(self, expected: list[str]) -> None:
        def check() -> bool:
            assert self.names == expected, f"the store has {self.names}"
            return True

        await async_eventually(f"a store of {expected}", check)


@pytest.fixture
async def running(impatient_client: KubeClient) -> AsyncIterator[Running]:
    running = Running(impatient_client)
    async with run(running):
        yield running


@asynccontextmanager
async def run(running: Running) -> AsyncIterator[None]:
    task = asyncio.create_task(running.informer.run(), name="informer")
    yield
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task  # an informer never ends by itself


def added(name: str, version: int) -> Object:
    return {"type": "ADDED", "object": make(name, version=version)}


def deleted(name: str, version: int) -> Object:
    return {"type": "DELETED", "object": make(name, version=version)}


def bookmark(version: int) -> Object:
    return {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version)}}}


def versions(scripted: ScriptedApi) -> list[str]:
    """The resourceVersion at which each watch so far began."""
    return [request.query["resourceVersion"] for request in scripted.paths("watch")]


async def test_a_list_fills_the_store_and_the_watch_goes_on(
    scripted: ScriptedApi, running: Running
) -> None:
    scripted.lists = [
        scripted.listing(make("a", version=3), version=5, more="p2"),
        scripted.listing(make("b", version=4), version=5),
    ]
    scripted.watches = [
        scripted.stream(added("c", 6), deleted("a", 7), then="hang"),
    ]
    await running.wait_for_names(["b", "c"])
    assert versions(scripted) == ["5"]
    assert scripted.seen[-1].query["labelSelector"] == "a=b"
    assert running.settlements == 1
    assert running.informer.synced
    assert running.informer.problem == ""


async def test_a_watch_that_ended_goes_on_from_the_last_event_or_bookmark(
    scripted: ScriptedApi, running: Running
) -> None:
    scripted.lists = [scripted.listing(version=5)]
    scripted.watches = [
        scripted.stream(added("a", 6)),
        scripted.stream(bookmark(20)),
        scripted.stream(then="hang"),
    ]
    await scripted.wait_for("watch", 3)
    assert versions(scripted) == ["5", "6", "20"]
    assert len(scripted.paths("list")) == 1


RELIST: dict[str, Callable[[ScriptedApi], Any]] = {
    "410 as an answer": lambda api: api.failure(410, "Expired"),
    "410 in the stream": lambda api: api.stream(
        {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}
    ),
    "another error in the stream": lambda api: api.stream(
        {"type": "ERROR", "object": {"kind": "Status", "code": 500}}
    ),
    "an error that is no status": lambda api: api.stream(
        {"type": "ERROR", "object": {"code": "x"}}
    ),
    "a line of garbage": lambda api: api.stream(b"<html>\n"),
    "an event of unknown type": lambda api: api.stream({"type": "MOVED", "object": make("a")}),
    "an event without metadata": lambda api: api.stream({"type": "ADDED", "object": {}}),
    "an event without a name": lambda api: api.stream(
        {"type": "ADDED", "object": {"metadata": {"resourceVersion": "9"}}}
    ),
    "forbidden": lambda api: api.failure(403, "Forbidden"),
    "a server error": lambda api: api.failure(504, "Timeout", "Too large resource version"),
}


@pytest.mark.parametrize("fault", RELIST.values(), ids=RELIST)
async def test_after_a_watch_that_cannot_go_on_a_list_finds_what_was_missed(
    scripted: ScriptedApi, running: Running, fault: Callable[[ScriptedApi], Any]
) -> None:
    scripted.lists = [
        scripted.listing(make("gone", version=3), make("stays", version=4), version=5),
        scripted.listing(make("new", version=8), make("stays", version=4), version=9),
    ]
    scripted.watches = [fault(scripted), scripted.stream(then="hang")]
    await scripted.wait_for("watch", 2)
    assert versions(scripted) == ["5", "9"]
    assert running.names == ["new", "stays"]
    assert running.changes[2:] == [("deleted", "gone"), ("added", "new")]


RESUME: dict[str, Callable[[ScriptedApi], Any]] = {
    "cut": lambda api: api.stream(added("a", 6), then="cut"),
    "silent": lambda api: api.stream(added("a", 6), then="hang"),
    "cut inside a line": lambda api: api.stream(added("a", 6), b'{"type":"ADD', then="cut"),
}


@pytest.mark.parametrize("fault", RESUME.values(), ids=RESUME)
async def test_after_a_broken_connection_the_watch_goes_on_where_it_was(
    scripted: ScriptedApi, running: Running, fault: Callable[[ScriptedApi], Any]
) -> None:
    scripted.lists = [scripted.listing(version=5)]
    scripted.watches = [fault(scripted), scripted.stream(added("b", 7), then="hang")]
    await running.wait_for_names(["a", "b"])
    assert versions(scripted)[:2] == ["5", "6"]
    assert len(scripted.paths("list")) == 1


async def test_an_overloaded_server_is_left_alone_for_as_long_as_it_asks(
    scripted: ScriptedApi, running: Running
) -> None:
    scripted.lists = [scripted.listing(version=5)]
    scripted.watches = [
        scripted.failure(429, "TooManyRequests", Retry_After="0.4"),
        scripted.stream(then="hang"),
    ]
    await scripted.wait_for("watch", 1)
    started = asyncio.get_running_loop().time()
    await scripted.wait_for("watch", 2)
    assert asyncio.get_running_loop().time() - started >= 0.3
    assert versions(scripted) == ["5", "5"]


async def test_a_server_that_ends_each_watch_at_once_is_not_asked_in_a_hot_loop(
    scripted: ScriptedApi, running: Running
) -> None:
    scripted.lists = [scripted.listing(version=5)]
    scripted.watches = [scripted.stream()]
    await async_eventually("the first watch", lambda: scripted.paths("watch"))
    started = asyncio.get_running_loop().time()
    await async_eventually("thirty more watches", lambda: len(scripted.paths("watch")) > 30)
    # Thirty backoffs between 0 and 0.05 s take 0.75 s on average.
    assert asyncio.get_running_loop().time() - started > 0.3


async def test_a_problem_is_shown_only_while_it_lasts(
    scripted: ScriptedApi, running: Running
) -> None:
    scripted.lists = [scripted.failure(403, "Forbidden", "gadgets is forbidden"), scripted.hang()]
    await async_eventually("the denial", lambda: "gadgets is forbidden" in running.informer.problem)
    assert not running.informer.is_complete
    scripted.lists = [scripted.listing(version=5)]
    scripted.watches = [scripted.stream(then="hang")]
    scripted.released.set()
    await async_eventually("the end of the problem", lambda: running.informer.problem == "")
    assert running.informer.synced


async def test_a_type_is_absent_until_the_server_serves_it(
    scripted: ScriptedApi, running: Running
) -> None:
    scripted.lists = [scripted.text("404 page not found", 404)]
    await async_eventually("absence of the type", lambda: running.informer.absent)
    assert running.informer.is_complete
    assert not running.informer.synced
    assert running.informer.stale_for_s() == 0
    scripted.watches = [scripted.stream(then="hang")]
    scripted.lists = [scripted.listing(make("a"), version=5)]
    await running.wait_for_names(["a"])
    assert not running.informer.absent
    assert running.settlements == 2


async def test_a_built_in_type_is_absent_at_the_first_denial(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    scripted.lists = [scripted.text("404 page not found", 404), scripted.hang()]
    patient = msgspec.structs.replace(SETTINGS, absent_after_s=3600.0)
    running = Running(scripted_client, patient, AUTOSCALERS)
    async with run(running):
        await async_eventually("absence of the type", lambda: running.informer.absent)


@pytest.mark.parametrize(
    ("group", "is_built_in"),
    [("", True), ("apps", True), ("coordination.k8s.io", True), ("edgeai.io", False)],
)
def test_kubernetes_own_types_are_known_by_their_group(group: str, *, is_built_in: bool) -> None:
    assert ResourceType(group, "v1", "things", "Thing").is_built_in is is_built_in


async def test_a_type_that_the_server_denies_for_a_moment_is_not_absent(
    scripted: ScriptedApi, running: Running
) -> None:
    """The server was away for longer than absent_after_s, starts, and lacks its CRDs at first."""
    away = scripted.failure(503, "ServiceUnavailable")
    scripted.lists = [*[away] * 12, scripted.text("404 page not found", 404), scripted.hang()]
    await scripted.wait_for("list", 14)
    assert not running.informer.is_complete


async def test_a_type_that_the_server_denies_later_keeps_its_objects(
    scripted: ScriptedApi, running: Running
) -> None:
    """A starting server denies types for a moment; the objects of those types still exist."""
    scripted.lists = [
        scripted.listing(make("a"), version=5),
        scripted.text("404 page not found", 404),
    ]
    scripted.watches = [scripted.failure(410, "Expired")]
    await async_eventually("absence of the type", lambda: running.informer.absent)
    assert running.names == ["a"]


async def test_a_list_of_a_server_that_was_restored_replaces_newer_states(
    scripted: ScriptedApi, running: Running
) -> None:
    scripted.lists = [
        scripted.listing(make("a", version=90), version=95),
        scripted.listing(make("a", version=2), version=3),
    ]
    scripted.watches = [scripted.failure(410, "Expired"), scripted.stream(then="hang")]
    await scripted.wait_for("watch", 2)
    [kept] = running.informer.store.list()
    assert kept["metadata"]["resourceVersion"] == "2"


# ---- contact ------------------------------------------------------------------------------------

PATIENT = InformerSettings(watch_s=60.0, backoff_base_s=0.02, backoff_max_s=0.05)


async def test_staleness_grows_while_the_api_is_away(
    scripted: ScriptedApi, running: Running
) -> None:
    scripted.lists = [scripted.listing(version=5)]
    scripted.watches = [scripted.stream(then="cut"), scripted.hang()]
    await async_eventually("the first list", lambda: running.informer.synced)
    await async_eventually("a problem", lambda: running.informer.problem)
    assert running.informer.stale_for_s() < 0.5
    await async_eventually("staleness of 0.5 s", lambda: running.informer.stale_for_s() > 0.5)


async def test_before_the_first_contact_staleness_counts_from_the_start(
    scripted: ScriptedApi, running: Running
) -> None:
    scripted.lists = [scripted.hang()]
    await async_eventually("staleness of 0.1 s", lambda: running.informer.stale_for_s() > 0.1)
    assert running.informer.silent_for_s() > 1e9


async def test_an_idle_watch_that_breaks_is_stale_from_then_on(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    scripted.lists = [scripted.listing(version=5)]
    scripted.watches = [scripted.stream(then="hang"), scripted.failure(500, "InternalError")]
    running = Running(scripted_client, PATIENT)
    async with run(running):
        await async_eventually(
            "a watch that is silent for 0.6 s",
            lambda: scripted.paths("watch") and running.informer.silent_for_s() > 0.6,
        )
        assert running.informer.stale_for_s() == 0
        transport = scripted.seen[-1].transport
        assert transport is not None
        transport.abort()
        await async_eventually("a problem", lambda: running.informer.problem)
        assert running.informer.stale_for_s() < 0.5
        assert running.informer.silent_for_s() > 0.6


async def test_a_watch_that_does_not_end_is_stale_from_its_requested_end_on(
    scripted: ScriptedApi, running: Running
) -> None:
    """The watch should end after 1 s; the client gives the connection up 0.3 s later."""
    scripted.lists = [scripted.listing(version=5)]
    scripted.watches = [scripted.stream(then="hang"), scripted.hang()]
    await async_eventually(
        "a watch that has not ended", lambda: "not ended" in running.informer.problem
    )
    informer = running.informer
    # Stale since the last contact it would be 0, since the client gave up 1.3 s.
    assert informer.silent_for_s() - informer.stale_for_s() == pytest.approx(1.0, abs=0.2)


async def test_a_watch_that_ended_at_its_time_is_followed_at_once(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    """With a backoff, an event would wait once a minute."""
    scripted.lists = [scripted.listing(version=5)]
    scripted.watches = [scripted.stream(), scripted.stream(then="hang")]
    slow = InformerSettings(healthy_watch_s=0.0, backoff_base_s=1000.0, backoff_max_s=1000.0)
    async with run(Running(scripted_client, slow)):
        await scripted.wait_for("watch", 2)


# ---- a new line ----


PATIENT = InformerSettings(watch_s=60, backoff_base_s=0.1, backoff_max_s=60)


async def test_a_new_line_continues_the_watch_where_it_was(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    """And what broke for it is no lost contact."""
    scripted.lists = [scripted.listing(make("a", version=3), version=5)]
    scripted.watches = [scripted.stream(added("b", 7), then="hang")]
    scripted.others = [scripted.json({"major": "1"})]
    running = Running(scripted_client.apart(ClientSettings()), PATIENT)
    async with run(running):
        await running.wait_for_names(["a", "b"])
        scripted.watches.append(scripted.stream(added("missed", 8), then="hang"))
        await scripted_client.redial(deadline_s=60)
        await async_eventually("the object that was missed", lambda: "missed" in running.names)
        assert versions(scripted) == ["5", "7"]
        assert len(scripted.paths("list")) == 1
        assert running.informer.problem == ""


async def test_a_new_line_is_tried_at_once_by_who_waits_for_the_next_try(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    scripted.lists = [scripted.failure(503, "ServiceUnavailable", Retry_After="300")]
    scripted.others = [scripted.json({"major": "1"})]
    running = Running(scripted_client.apart(ClientSettings()), PATIENT)
    async with run(running):
        await async_eventually("a problem", lambda: running.informer.problem)
        scripted.lists.append(scripted.listing(make("a", version=3), version=5))
        scripted.watches = [scripted.stream(then="hang")]
        await scripted_client.redial(deadline_s=60)
        await scripted.wait_for("list", 2)
