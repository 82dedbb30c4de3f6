"""What a session costs while nothing happens in it. Real sockets throughout."""

import asyncio
from pathlib import Path

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
