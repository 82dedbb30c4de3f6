"""Watches of the store: resuming, selectors, the end of the history."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeai.localcluster.objects import errors
from edgeai.localcluster.objects.history import Event, Watch
from edgeai.localcluster.objects.resources import CONFIGMAPS
from edgeai.localcluster.objects.selectors import EVERYTHING, Requirement, Selector
from edgeai.localcluster.objects.store import Store
from tests.edgeai.localcluster.conftest import configmap
from tests.edgeai.localcluster.running import patch
from tests.support.waiting import PATIENCE_S


def drain(watch: Watch) -> list[tuple[str, str]]:
    events: list[tuple[str, str]] = []
    while event := watch.poll():
        events.append((event.type, event.object["metadata"]["name"]))
    return events


def test_a_version_older_than_the_history_is_gone(tmp_path: Path) -> None:
    store = Store(tmp_path / "small.db", history=3)
    first = int(store.create(CONFIGMAPS, configmap("a"))["metadata"]["resourceVersion"])
    for index in range(4):
        patch(store, CONFIGMAPS, "default", "a", {"data": {"n": str(index)}})
    with pytest.raises(errors.Gone, match="too old resource version"):
        store.watch(CONFIGMAPS, since=first)
    assert len(drain(store.watch(CONFIGMAPS, since=first + 1))) == 3
    store.close()


def test_a_restart_forgets_the_history_but_not_the_present(tmp_path: Path) -> None:
    store = Store(tmp_path / "state.db")
    store.create(CONFIGMAPS, configmap("a"))
    version = store.resource_version
    store.close()
    store = Store(tmp_path / "state.db")
    assert drain(store.watch(CONFIGMAPS, since=version)) == []
    with pytest.raises(errors.Gone):
        store.watch(CONFIGMAPS, since=version - 1)
    store.close()


def test_a_version_from_the_future_is_gone(store: Store) -> None:
    with pytest.raises(errors.Gone, match="another cluster"):
        store.watch(CONFIGMAPS, since=store.resource_version + 1)


def test_a_slow_watcher_is_cut_and_holds_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "small.db", history=5)
    store.create(CONFIGMAPS, configmap("a"))
    slow = store.watch(CONFIGMAPS, since=store.resource_version)
    for index in range(6):
        patch(store, CONFIGMAPS, "default", "a", {"data": {"n": str(index)}})
    with pytest.raises(errors.Gone, match="too slow"):
        slow.poll()
    store.close()


async def test_a_waiting_watcher_is_woken(store: Store) -> None:
    with contextlib.closing(store.watch(CONFIGMAPS)) as watch:
        waiting = asyncio.create_task(anext_of(watch), name="watcher")
        await asyncio.sleep(0)
        store.create(CONFIGMAPS, configmap("a"))
        event = await asyncio.wait_for(waiting, PATIENCE_S)
    assert event.object["metadata"]["name"] == "a"


async def test_a_cancelled_wait_loses_no_event(store: Store) -> None:
    watch = store.watch(CONFIGMAPS)
    waiting = asyncio.create_task(anext_of(watch), name="watcher")
    await asyncio.sleep(0)
    store.create(CONFIGMAPS, configmap("a"))
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert drain(watch) == [("ADDED", "a")]


async def test_closing_ends_a_waiting_watcher(store: Store) -> None:
    watch = store.watch(CONFIGMAPS)
    waiting = asyncio.create_task(collect(watch), name="watcher")
    await asyncio.sleep(0)
    watch.close()
    assert await asyncio.wait_for(waiting, PATIENCE_S) == []


async def anext_of(watch: Watch) -> Event:
    return await anext(watch)


async def collect(watch: Watch) -> list[Event]:
    return [event async for event in watch]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["create", "patch", "delete", "read"]),
        st.sampled_from("abc"),
        st.sampled_from(["red", "green"]),
    ),
    max_size=40,
)


IS_RED = Requirement("color", frozenset({"red"}))
SELECTORS = [
    EVERYTHING,
    Selector(labels=(IS_RED,)),
    Selector(labels=(msgspec.structs.replace(IS_RED, negated=True),)),
]


@settings(max_examples=40)
@given(steps=STEPS, selector=st.sampled_from(SELECTORS))
def test_whatever_happens_a_watcher_ends_with_what_a_list_shows(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, str]], selector: Selector
) -> None:
    store = Store(tmp_path_factory.mktemp("cluster") / "state.db")
    seen: dict[str, Any] = {}
    watch = store.watch(CONFIGMAPS, selector=selector)
    for action, name, color in steps:
        if action == "read":
            follow(watch, seen)
        else:
            act(store, action, name, color)
    follow(watch, seen)
    page = store.list(CONFIGMAPS, selector=selector)
    assert seen == {item["metadata"]["name"]: item for item in page.items}
    store.close()


def act(store: Store, action: str, name: str, color: str) -> None:
    try:
        if action == "create":
            store.create(CONFIGMAPS, configmap(name, labels={"color": color}))
        elif action == "patch":
            patch(store, CONFIGMAPS, "default", name, {"metadata": {"labels": {"color": color}}})
        else:
            store.delete(CONFIGMAPS, "default", name)
    except (errors.NotFound, errors.AlreadyExists):
        return


def follow(watch: Watch, seen: dict[str, Any]) -> None:
    """Apply events, checking that each fits what was seen before."""
    while event := watch.poll():
        name = event.object["metadata"]["name"]
        assert (name in seen) is (event.type != "ADDED")
        if event.type == "DELETED":
            del seen[name]
        else:
            seen[name] = event.object
