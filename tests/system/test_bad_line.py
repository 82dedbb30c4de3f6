"""A node behind a bad line loses nothing, and gets what it must hold (DESIGN: I1, I3, I6, I11)."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.localcontroller.test_process import Controller
from tests.system.bad_line import BadLine, Way
from tests.system.test_faulty_manager import World, running_node, world
from tests.waiting import async_eventually

__all__ = ["world"]  # a fixture

BYTES_PER_S: Final = 8000.0
PIECE_BYTES: Final = 37  # of a frame, so that each frame comes in several pieces
RESETS: Final = 5


async def test_a_slow_line_that_splits_everything(world: World, tmp_path: Path) -> None:
    line = BadLine(target(world), bytes_per_s=BYTES_PER_S, piece_bytes=PIECE_BYTES)
    with line:
        async with running_node(tmp_path, line.port) as node, world.manager():
            for number in range(4):
                await world.add_job(f"digits-{number}")
            for name in (*world.jobs, *world.jobs):
                await world.report(node, name)
            await settled(world, node)
            assert line.pieces > 100, "the line split little"
            assert len(node.logged("session open")) == 1, "the session did not last"


@pytest.mark.parametrize("way", ["up", "down"])
async def test_a_line_that_stalls_one_way(way: Way, world: World, tmp_path: Path) -> None:
    with BadLine(target(world)) as line:
        async with running_node(tmp_path, line.port) as node, world.manager():
            await world.add_job("digits")
            await world.report(node, "digits")
            await settled(world, node)
            line.stall(way)
            await world.report(node, "digits")  # is durable on the node
            await world.add_job("faces")

            async def is_over() -> bool:
                return not (await node.get("/api/v1/link"))["connected"]

            await async_eventually("the end of the session", is_over)
            assert line.withheld_bytes, "nothing was withheld"
            held = {each["name"] for each in (await node.get("/api/v1/tasks"))["items"]}
            assert "digits" in held, "a task was dropped because contact was lost (I11)"
            line.mend()
            await world.report(node, "faces")
            await settled(world, node)


async def test_a_line_that_is_reset_again_and_again(world: World, tmp_path: Path) -> None:
    with BadLine(target(world)) as line:
        async with running_node(tmp_path, line.port) as node, world.manager():
            for number in range(RESETS):
                await world.add_job(f"digits-{number}")
                await world.report(node, f"digits-{number}")
                line.reset()
                await world.report(node, f"digits-{number}")
            await settled(world, node)
            assert line.connections > RESETS, "nothing was reset"


def target(world: World) -> Callable[[], tuple[str, int]]:
    return lambda: ("127.0.0.1", world.edge_port)


async def settled(world: World, node: Controller) -> None:
    await async_eventually("what no fault leaves", lambda: world.is_settled(node))
