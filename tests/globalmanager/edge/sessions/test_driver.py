"""What a session costs while nothing happens in it. Real sockets throughout."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from common.session import Timing
from globalmanager.edge.sessions.driver import SessionDriver
from tests.globalmanager.edge.world import A, B, World
from tests.waiting import async_eventually

# GlobalManager and peers beat five times a second, in slots of 1/75 of that.
QUICK = Timing(opening_s=10, beat_s=0.2, silence_s=30)


def driver_of(world: World, node: str) -> SessionDriver:
    return next(each for each in world.sessions._open.values() if each.node == node)


async def test_sessions_that_began_at_different_times_beat_together(tmp_path: Path) -> None:
    """So one wake-up of the process serves many of them."""
    timing = Timing(opening_s=1000, beat_s=750, silence_s=2000)  # slots of 10 s
    quick = World(tmp_path / "tokens", timing=timing)
    async with quick.running() as world, world.peer(A) as a, world.peer(B) as b:
        await async_eventually("synced peers", lambda: a.is_synced and b.is_synced)
        for node in (A, B):
            timer = driver_of(world, node)._timer
            assert timer.when() % 10 == pytest.approx(0, abs=1e-6)


async def test_a_beat_does_not_wake_the_writer(tmp_path: Path) -> None:
    quick = World(tmp_path / "tokens", timing=QUICK)
    async with quick.running() as world, world.peer(A, timing=QUICK) as peer:
        await async_eventually("a synced peer", lambda: peer.is_synced)
        driver = driver_of(world, A)
        await async_eventually("an idle writer", lambda: not driver._is_writing)
        waits_on = driver._wake._waiter
        before = world.sample("edgeai_edge_messages_total", direction="in")

        def has_beaten() -> bool:
            return world.sample("edgeai_edge_messages_total", direction="in") > before + 2

        await async_eventually("beats both ways", has_beaten)
        assert driver._wake._waiter is waits_on


async def test_a_beat_is_not_written_into_a_buffer_that_the_peer_does_not_empty(
    tmp_path: Path,
) -> None:
    quick = World(tmp_path / "tokens", timing=QUICK)
    async with quick.running() as world, world.peer(A, timing=QUICK) as peer:
        await async_eventually("a synced peer", lambda: peer.is_synced)
        driver = driver_of(world, A)
        peer.websocket.transport.pause_reading()
        transport = driver._websocket.transport
        transport.write(bytes(16 * 1024 * 1024))  # more than the buffers of the kernel take
        assert transport.get_write_buffer_size()
        assert not driver._write_at_once()
        transport.abort()
        await asyncio.sleep(0)


class Counted:
    """A WebSocket that counts how often data is given to the network."""

    def __init__(self, websocket: Any) -> None:
        self.websocket = websocket
        self.sent = 0

    def send_data(self) -> None:
        self.sent += 1
        self.websocket.send_data()

    async def send(self, message: bytes) -> None:
        self.sent += 1
        await self.websocket.send(message)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.websocket, name)


async def test_acknowledgements_that_come_together_leave_together(tmp_path: Path) -> None:
    quick = World(tmp_path / "tokens")
    async with quick.running() as world, world.peer(A) as peer:
        world.assign(0, A, workers=tuple("abcdef"))
        await async_eventually("the task", lambda: peer.held)
        world.statuses.open.clear()
        for worker in "abcdef":
            await peer.report(worker=worker)
        await async_eventually("six reports", lambda: world.inbox.depth == 6)
        driver = driver_of(world, A)
        await async_eventually("an idle writer", lambda: not driver._is_writing)
        counted = Counted(driver._websocket)
        driver._websocket = counted  # type: ignore[assignment]
        for seq in range(1, 7):
            driver.acknowledge(seq)
        await async_eventually("six acknowledgements", lambda: len(peer.acked) == 6)
        assert counted.sent == 1
        world.statuses.open.set()


async def test_a_report_does_not_wake_the_writer_before_its_acknowledgement(
    tmp_path: Path,
) -> None:
    quick = World(tmp_path / "tokens")
    async with quick.running() as world, world.peer(A) as peer:
        world.assign(0, A)
        await async_eventually("the task", lambda: peer.held)
        driver = driver_of(world, A)
        await async_eventually("an idle writer", lambda: not driver._is_writing)
        waits_on = driver._wake._waiter
        assert waits_on is not None
        world.statuses.open.clear()
        await peer.report()
        await async_eventually("the report", lambda: world.inbox.depth == 1)
        assert driver._wake._waiter is waits_on
        assert not waits_on.done()
        world.statuses.open.set()
        await async_eventually("the acknowledgement", lambda: len(peer.acked) == 1)
