"""The garbage collector: the limit of Events, and its start. tests/conformance tests the rest."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from edgeai.localcluster.controllers.garbage_collector import GarbageCollector
from edgeai.localcluster.objects.resources import CONFIGMAPS, EVENTS
from edgeai.localcluster.objects.store import Store
from tests.edgeai.localcluster.conftest import configmap
from tests.support.waiting import async_eventually


@contextlib.asynccontextmanager
async def running(collector: GarbageCollector) -> AsyncIterator[None]:
    task = asyncio.create_task(collector.run(), name="collector")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_only_the_newest_events_are_kept(store: Store) -> None:
    async with running(GarbageCollector(store, max_events=10)):
        for index in range(15):
            metadata = {"name": f"e{index:02}", "namespace": "default"}
            store.create(EVENTS, {"metadata": metadata, "involvedObject": {}})
        await async_eventually("some are deleted", lambda: store.count(EVENTS) <= 11)
    names = [event["metadata"]["name"] for event in store.list(EVENTS).items]
    assert names[-1] == "e14"
    assert "e00" not in names


async def test_what_happened_while_it_was_down_is_caught_up(store: Store) -> None:
    owner = store.create(CONFIGMAPS, configmap("owner"))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner"}
    reference["uid"] = owner["metadata"]["uid"]
    store.create(CONFIGMAPS, configmap("child", ownerReferences=[reference]))
    store.delete(CONFIGMAPS, "default", "owner")
    async with running(GarbageCollector(store)):
        await async_eventually("all are deleted", lambda: store.count(CONFIGMAPS) == 0)
