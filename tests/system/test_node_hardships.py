"""A LocalController whose disk fails, whose clock jumps, or whose workers storm.

The process goes on: nothing ends it but a kill of the test (oracle: I3, I5, I10).
"""

import asyncio
import contextlib
import signal
from typing import Any, Final

import aiohttp
import pytest

from tests.localcontroller.builders import SECRET, WORKER, report_of
from tests.localcontroller.test_process import Controller
from tests.support.waiting import async_eventually
from tests.system.faulty import hit
from tests.system.next_release import NEXT, THIS, Release
from tests.system.test_faulty_node import FaultyNode, node

__all__ = ["node"]  # a fixture

MESSAGES: Final = 40
DAY_S: Final = 86_400
PROCESSES: Final = 8
STORM_S: Final = 2.0
COMMITS: Final = 60  # of a storm, until the node is killed
RELEASES: Final = {"this release": THIS, "the next release": NEXT}


async def send(node: FaultyNode, controller: Controller, **fields: Any) -> None:
    """MESSAGES, each of which is taken in the end."""
    for _ in range(MESSAGES):
        node.posted += 1
        assert await node.post(controller, node.posted, **fields), controller.log
        node.acked = node.posted


@pytest.mark.parametrize("release", RELEASES.values(), ids=RELEASES)
async def test_a_disk_that_fails_for_a_time_costs_no_message(
    release: Release, node: FaultyNode
) -> None:
    async with node.running("io-error:5", "after-sync", "20", release=release) as controller:
        await send(node, controller)
        hit(controller.log, "after-sync")
        assert node.refused, "no commit failed"
        assert not controller.logged("ledger damaged, started a new one")
        await node.cloud.until_reported(WORKER, seen=node.posted)
    node.check_history()
    await node.finish()


@pytest.mark.parametrize("release", RELEASES.values(), ids=RELEASES)
@pytest.mark.parametrize("jump_s", [DAY_S, -DAY_S], ids=["a day ahead", "a day back"])
async def test_a_clock_that_jumps_loses_no_worker_and_no_session(
    jump_s: int, release: Release, node: FaultyNode
) -> None:
    fault = (f"clock:{jump_s}", "after-commit", "10")
    async with node.running(*fault, release=release) as controller:
        await send(node, controller, heartbeatSeconds=30)
        hit(controller.log, "after-commit")
        await node.cloud.until_reported(WORKER, seen=node.posted)
        assert len(controller.logged("session open")) == 1, controller.log
        assert {report_of(each.body).status for each in node.cloud.reports} == {"running"}
    node.check_history()
    await node.finish()


@pytest.mark.parametrize("release", RELEASES.values(), ids=RELEASES)
async def test_a_storm_of_reports_is_counted_exactly_over_a_kill(
    release: Release, node: FaultyNode
) -> None:
    """Eight processes of a worker send as fast as they can, and again what was not answered."""
    sent = [0] * PROCESSES
    async with node.running("kill", "after-commit", str(COMMITS), release=release) as controller:
        await storm(controller, sent)
        await controller.process.wait()
    assert controller.process.returncode == -signal.SIGKILL, controller.log
    hit(controller.log, "after-commit")
    async with node.running(release=release) as controller:
        loop = asyncio.get_running_loop()
        await storm(controller, sent, until_s=loop.time() + STORM_S)

        def check() -> bool:
            told = [report_of(each.body).task_info["seen"] for each in node.cloud.reports]
            assert max(told, default=0) == sum(sent), f"told {max(told, default=0)} of {sum(sent)}"
            return True

        await async_eventually("the sum of all processes", check)
    assert sum(sent) > 2 * len(node.cloud.reports), "no report stands for several messages (I10)"


async def storm(controller: Controller, sent: list[int], until_s: float = 0.0) -> None:
    """Until the process ends, or until each process has an answer after `until_s`.

    A process sends its last message again, because a controller that was killed may have taken it.

    Args: sent: by process, messages that were taken
    """
    loop = asyncio.get_running_loop()

    async def one(number: int, session: aiohttp.ClientSession) -> None:
        port = await controller.until_listening("worker")
        url = f"http://127.0.0.1:{port}/w/{SECRET}/v1/workers/{WORKER}/status"
        is_over = False
        while controller.process.returncode is None and not is_over:
            seen = sent[number] + 1
            message = {
                "status": "running",
                "instance": f"p{number}",
                "sequence": seen,
                "output": {"taskInfo": {"seen": seen}, "counts": ["seen"]},
            }
            with contextlib.suppress(aiohttp.ClientError):
                async with session.post(url, json=message) as response:
                    sent[number] += response.status == 200
                    is_over = bool(until_s) and response.status == 200 and loop.time() >= until_s

    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
        for number in range(PROCESSES):
            group.create_task(one(number, session))
