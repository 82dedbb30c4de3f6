"""A node behind a bad line loses nothing, and gets what it must hold (oracle: I1, I3, I6, I11)."""

from pathlib import Path
from typing import Final

import pytest

from tests.localcontroller.test_process import Controller
from tests.support.waiting import async_eventually
from tests.system.bad_line import BadLine, Way
from tests.system.manager_world import ManagerAndNode, running_node, world
from tests.system.next_release import SKEWS, Skew

BETWEEN: Final = pytest.mark.parametrize("skew", SKEWS.values(), ids=SKEWS)
__all__ = ["world"]  # a fixture

BYTES_PER_S: Final = 8000.0
PIECE_BYTES: Final = 37  # of a frame, so that each frame comes in several pieces
RESETS: Final = 5


@BETWEEN
async def test_a_slow_line_that_splits_everything(
    skew: Skew, world: ManagerAndNode, tmp_path: Path
) -> None:
    with BadLine(world.edge_address, bytes_per_s=BYTES_PER_S, piece_bytes=PIECE_BYTES) as line:
        async with (
            running_node(tmp_path, line.port, release=skew.node) as node,
            world.manager(release=skew.manager),
        ):
            for number in range(4):
                await world.add_job(f"digits-{number}")
            for name in (*world.jobs, *world.jobs):
                await world.report(node, name)
            await settled(world, node)
            assert line.pieces > 100, "the line split little"
            assert len(node.logged("session open")) == 1, "the session did not last"


@BETWEEN
@pytest.mark.parametrize("way", ["up", "down"])
async def test_a_line_that_stalls_one_way(
    way: Way, skew: Skew, world: ManagerAndNode, tmp_path: Path
) -> None:
    with BadLine(world.edge_address) as line:
        async with (
            running_node(tmp_path, line.port, release=skew.node) as node,
            world.manager(release=skew.manager),
        ):
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


@BETWEEN
async def test_a_line_that_is_reset_again_and_again(
    skew: Skew, world: ManagerAndNode, tmp_path: Path
) -> None:
    with BadLine(world.edge_address) as line:
        async with (
            running_node(tmp_path, line.port, release=skew.node) as node,
            world.manager(release=skew.manager),
        ):
            for number in range(RESETS):
                await world.add_job(f"digits-{number}")
                await world.report(node, f"digits-{number}")
                line.reset()
                await world.report(node, f"digits-{number}")
            await settled(world, node)
            assert line.connections > RESETS, "nothing was reset"


async def settled(world: ManagerAndNode, node: Controller) -> None:
    await async_eventually("what no fault leaves", lambda: world.is_settled(node))
