"""A guarded client: reads pass, writes pass only while the fence is open, and end when it shuts."""

import asyncio
import sys
import time
from typing import Final

import pytest

from common import clock
from edgeai.api.resources import PODS, ObjectRef
from edgeai.kube.client import KubeClient
from edgeai.kube.errors import NotLeading
from edgeai.kube.sender import Shut
from globalmanager.ha.fence import Fence
from tests.globalmanager.scripted_api import ScriptedApi
from tests.support.clock import Clock
from tests.support.waiting import async_eventually

POD: Final = ObjectRef(PODS, "default", "p")
WRITES = {
    "create": lambda client: client.create(PODS, {"metadata": {"name": "p"}}),
    "replace": lambda client: client.replace(PODS, {"metadata": {"name": "p"}}),
    "patch": lambda client: client.merge_patch(POD, {"status": {}}, subresource="status"),
    "delete": lambda client: client.delete(POD),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_a_shut_fence_lets_no_write_out(
    scripted: ScriptedApi, scripted_client: KubeClient, write: object
) -> None:
    assert callable(write)
    scripted.others = [scripted.json({"metadata": {"name": "p"}})]
    fence = Fence()
    client = scripted_client.guarded(fence)
    with pytest.raises(NotLeading, match="not the leader"):
        await write(client)
    assert scripted.seen == []
    await client.get(POD)
    await write(scripted_client)
    assert len(scripted.seen) == 2


async def test_it_shuts_by_the_clock_alone(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    """As for a process that was frozen: nobody had time to shut it."""
    scripted.others = [scripted.json({"metadata": {"name": "p"}})]
    clock = Clock(50.0)
    fence = Fence(clock)
    fence.open_until(60.0)
    client = scripted_client.guarded(fence)
    await client.create(PODS, {"metadata": {"name": "p"}})
    clock.now_s = 60.0
    with pytest.raises(NotLeading):
        await client.create(PODS, {"metadata": {"name": "p"}})


async def test_what_is_under_way_ends_when_it_is_shut(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    scripted.others = [scripted.hang()]
    fence = Fence()
    fence.open_until(clock.SYSTEM_CLOCK.elapsed() + 100)
    writing = asyncio.create_task(
        scripted_client.guarded(fence).create(PODS, {"metadata": {"name": "p"}}), name="write"
    )
    await async_eventually("scripted.seen", lambda: scripted.seen)
    fence.close()
    with pytest.raises(NotLeading):
        await writing


@pytest.mark.looptime
async def test_a_longer_reign_holds_for_what_is_under_way() -> None:
    fence = Fence(clock.LoopClock())
    fence.open_until(10.0)
    async with fence.passage():
        fence.open_until(100.0)
        await asyncio.sleep(99.0)
        assert fence.is_open
    with pytest.raises(Shut):
        async with fence.passage():
            await asyncio.sleep(2.0)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has the clock")
def test_the_clock_goes_on_while_the_machine_sleeps() -> None:
    assert clock._CLOCK_ID == time.CLOCK_BOOTTIME
