"""A GlobalManager that is killed at each of its writes to the API and messages to an edge.

One process after the other reconciles jobs on the same API, until the fault hits it at the next
point; its successor finds what the fault has left. The LocalController is a real process and goes
on. The promises (oracle: I1, I3, I6, I7, I11) are checked after each end and at the last.
"""

import contextlib
import signal
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from tests.globalmanager.cluster import TOKEN
from tests.support.kubeconfig import write_kubeconfig
from tests.support.waiting import async_eventually
from tests.system.bad_line import BadLine
from tests.system.faulty import hit, is_hit
from tests.system.manager_world import SERVICES, ManagerAndNode, Place, running_node, world
from tests.system.next_release import SKEWS, Skew

__all__ = ["world"]  # a fixture

DAY_S: Final = 86_400
TOO_EARLY: Final = "GlobalManager answers the handshake with 503"
LEASE_S: Final = 3
REFUSALS: Final = 3
WRITTEN: Final = ("before", "sent", "after")
SENT: Final = ("before", "after")
# What is swept -> the point of each life, the n-th time that it passes, and what the fault hits.
SWEPT: Final[dict[str, list[tuple[str, int, str]]]] = {
    "children": [
        ("before-create", 1, "secrets"),  # the key of all workers' secrets
        *((f"{when}-create", n, "default/") for n in (1, 2, 3) for when in WRITTEN),
    ],
    "statuses": [(f"{when}-status", n, "/status") for n in (1, 2) for when in WRITTEN],
    "reports": [(f"{when}-fold", n, "/status") for n in (1, 2) for when in WRITTEN],
    "messages": [
        (f"{when}-{frame}", 1, frame)
        for frame in ("welcome", "assign", "synced", "ack", "withdraw")
        for when in SENT
    ],
}


SWEEPS: Final = {
    f"{what}, {name}": (SWEPT[what], skew)
    for name, skew in SKEWS.items()
    for what in SWEPT
    if name == "one release" or what in ("reports", "messages")  # the node has no part in the rest
}


@pytest.mark.timeout(300)  # eleven starts of a GlobalManager, on a machine that may be busy
@pytest.mark.parametrize(("points", "skew"), SWEEPS.values(), ids=SWEEPS)
async def test_a_global_manager_that_is_killed_at_any_point_leaves_no_trace(
    points: list[tuple[str, int, str]], skew: Skew, world: ManagerAndNode, tmp_path: Path
) -> None:
    async with running_node(tmp_path, world.line.port, release=skew.node) as node:
        for point, count, about in points:
            fault = ("kill", point, str(count))
            async with world.manager(*fault, release=skew.manager) as manager:
                await world.work(node, manager)
                await manager.process.wait()
            assert manager.process.returncode == -signal.SIGKILL, manager.log
            found = hit(manager.log, point)
            assert about in found
            await world.check_kept(node)
            others = [name for name in world.jobs if f"/{name}" not in found]
            if len(others) > 1:  # one goes while nobody watches
                await world.delete_job(others[0])
        async with world.manager(release=skew.manager):
            await async_eventually("what no fault leaves", lambda: world.is_settled(node))
    assert world.jobs, "every job is gone, so the test shows little"


@pytest.mark.parametrize("skew", SKEWS.values(), ids=SKEWS)
@pytest.mark.parametrize("jump_s", [DAY_S, -DAY_S], ids=["a day ahead", "a day back"])
async def test_a_clock_that_jumps_moves_neither_the_lead_nor_a_session(
    jump_s: int, skew: Skew, world: ManagerAndNode, tmp_path: Path
) -> None:
    fault = (f"clock:{jump_s}", "after-fold", "2")
    async with (
        running_node(tmp_path, world.line.port, release=skew.node) as node,
        world.manager(*fault, release=skew.manager) as manager,
    ):
        await world.add_job("digits")
        await world.report(node, "digits", manager)
        epoch = await world.epoch()
        while not is_hit(manager.log):
            await world.report(node, "digits", manager)
        await world.add_job("faces")
        for name in world.jobs:
            await world.report(node, name, manager)
        await async_eventually("what no fault leaves", lambda: world.is_settled(node))
        assert "digits/status" in hit(manager.log, "after-fold")
        assert await world.epoch() == epoch, "the lead changed"
        assert len(node.logged("session open")) == 1, "the session was cut"
        assert manager.process.returncode is None


async def test_a_global_manager_that_does_not_know_the_jobs_yet_tells_a_node_nothing(
    world: ManagerAndNode, tmp_path: Path
) -> None:
    """It knows the other replicas, and not the jobs yet, and turns the node away."""
    with BadLine(world.api_address) as line:
        kubeconfig = write_kubeconfig(tmp_path / "held", f"http://127.0.0.1:{line.port}", TOKEN)
        held_up = world.east._replace(kubeconfig=kubeconfig)
        async with running_node(tmp_path, world.line.port) as node:
            async with world.manager():
                for name in ("digits", "faces"):
                    await world.add_job(name)
                    await world.report(node, name)
            line.stall("up", mark=f"/{SERVICES.plural}".encode())
            fault = ("kill", "after-synced", "1")
            async with world.manager(*fault, at=held_up, is_awaited=False) as manager:
                await async_eventually(
                    "everything but the jobs", lambda: _waits_for_jobs_alone(held_up)
                )
                before = node.log.count(TOO_EARLY)
                await async_eventually(
                    "an answer to a later dial of the node",
                    lambda: (
                        node.log.count(TOO_EARLY) > before + 1
                        or manager.process.returncode is not None
                    ),
                )
                assert manager.process.returncode is None, "the node got a session"
                assert line.withheld_bytes, "the lists were not held up"
                line.mend()
                await manager.process.wait()
            hit(manager.log, "after-synced")
            await world.check_kept(node)
            async with world.manager():
                await async_eventually("what no fault leaves", lambda: world.is_settled(node))


async def _waits_for_jobs_alone(place: Place) -> bool:
    """/readyz first names what is unknown of the other replicas, then the jobs."""
    with contextlib.suppress(aiohttp.ClientError):
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{place.http_port}/readyz") as answer,
        ):
            text = await answer.text()
            return SERVICES.plural in text and "replicas" not in text and "Lease" not in text
    return False


async def test_a_global_manager_whose_time_is_over_gets_no_edge(
    world: ManagerAndNode, tmp_path: Path
) -> None:
    """It cannot reach the API any more, does not know what its successor did, and still serves."""
    with BadLine(world.api_address) as line:
        kubeconfig = write_kubeconfig(tmp_path / "east", f"http://127.0.0.1:{line.port}", TOKEN)
        east, west = Place.of("east", kubeconfig), Place.of("west", world.cluster.kubeconfig)
        async with (
            running_node(tmp_path, world.line.port) as node,
            world.manager(at=east, lease_s=LEASE_S) as old,
        ):
            await world.add_job("digits")
            await world.report(node, "digits")
            epoch = await world.epoch()
            line.stall("up")
            async with world.manager(at=west, lease_s=LEASE_S) as new:
                await async_eventually("a successor", lambda: new.logged("leading"))
                world.line.reset()  # a session tells its epoch when it begins
                await world.add_job("faces")
                await world.report(node, "faces")
            assert await world.epoch() > epoch
            world.faced = east

            def is_refused() -> bool:
                # The node refuses east; and after a while without the API, east refuses the node.
                count = node.log.count(f"GlobalManager's epoch {epoch} is older than")
                count += node.log.count("answers the handshake with 503")
                assert count >= REFUSALS, node.log[-3000:]
                return True

            await async_eventually("refusals", is_refused)
            assert old.process.returncode is None, old.log
            await world.check_kept(node)
            line.mend()
            await async_eventually("what no fault leaves", lambda: world.is_settled(node))
