"""A LocalController that is killed, or loses power, at each of its commits, syncs and sends.

One process after the other works on the same ledger, until the fault hits it at a later point than
the process before. Its cloud is scripted, and runs the GlobalManager's end of the session. The
promises (oracle: I1, I2, I4, I5) are checked at each start and at the end.
"""

import asyncio
import contextlib
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from websockets.exceptions import ConnectionClosed

from localcontroller.ledger.ledger import Ledger
from tests.localcontroller.builders import SECRET, WORKER, desired, key, report_of
from tests.localcontroller.cloud import Cloud, running_cloud
from tests.localcontroller.test_process import Controller, command, started
from tests.support.waiting import PATIENCE_S, async_eventually
from tests.system.faulty import hit, wrapped
from tests.system.next_release import NEXT, THIS, Release

LIVES: Final = 8  # of one sweep: the fault hits at the 1st, 2nd, … of its points
SWEPT: Final[dict[str, tuple[str, str, Release]]] = {
    "killed before a commit": ("kill", "before-commit", THIS),
    "killed after a commit": ("kill", "after-commit", THIS),
    "killed before a report": ("kill", "before-report", THIS),
    "killed after a report": ("kill", "after-report", THIS),
    "killed before an acknowledgement": ("kill", "before-ack", THIS),
    "killed after an acknowledgement": ("kill", "after-ack", THIS),
    "power lost before a sync": ("power-cut", "before-sync", THIS),
    "power lost after a sync": ("power-cut", "after-sync", THIS),
    "power lost after a report": ("power-cut", "after-report", THIS),
    "power lost after an acknowledgement": ("power-cut", "after-ack", THIS),
    "killed, of the next release": ("kill", "after-commit", NEXT),
    "power lost, of the next release": ("power-cut", "after-report", NEXT),
}


class FaultyNode:
    """A ledger, the processes that work on it, its worker, and the cloud that it reports to."""

    def __init__(self, cloud: Cloud, directory: Path) -> None:
        self.cloud = cloud
        self.directory = directory
        self.posted = self.acked = 0  # the worker's count; the newest that was answered with 200
        self.refused = 0  # answers of 503
        self.version = 1  # of the task
        self._acked_before = 0  # assignments that were acknowledged in earlier lives
        cloud.desired = {key(): desired(version=1)}

    @contextlib.asynccontextmanager
    async def running(self, *fault: str, release: Release = THIS) -> AsyncIterator[Controller]:
        """Args: fault: FAULT, POINT and N of `tests.system.faulty`; nothing: no fault"""
        python, _, module, *flags = command(self.directory, "--global-manager", self.cloud.url)
        async with started(python, *wrapped(module, fault, release), *flags) as controller:
            yield controller

    async def work(self, controller: Controller) -> None:
        """Report, and change the task, until the process ends."""
        while controller.process.returncode is None:
            self.posted += 1
            if await self.post(controller, self.posted):
                self.acked = self.posted
                if self.posted % 2:
                    self.version += 1
                    with contextlib.suppress(ConnectionClosed):  # the next session tells it
                        await self.cloud.desire(key(), desired(version=self.version))

    async def post(self, controller: Controller, seen: int, **fields: Any) -> bool:
        """Whether the message was taken before the process ended."""
        message = {
            "status": "running",
            "instance": "p1",
            "sequence": seen,
            "output": {"taskInfo": {"seen": seen}, "counts": ["seen"]},
            **fields,
        }
        async with asyncio.timeout(PATIENCE_S), aiohttp.ClientSession() as session:
            while controller.process.returncode is None:
                port = controller.port_of("worker")
                url = f"http://127.0.0.1:{port}/w/{SECRET}/v1/workers/{WORKER}/status"
                with contextlib.suppress(aiohttp.ClientError):
                    if port is not None:
                        async with session.post(url, json=message) as response:
                            if response.status == 200:
                                return True
                            self.refused += response.status == 503
                await asyncio.sleep(0.01)
        return False

    def check_history(self) -> None:
        """What the cloud was told so far never goes back."""
        known = 0
        for hello in self.cloud.hellos:
            found = hello.tasks.get(key())
            version = found.version if found else 0
            assert version >= known, f"the node held version {known}, and then {version} (I2)"
            known = version
        reports = [(each.attempt, report_of(each.body)) for each in self.cloud.reports]
        counts = [(attempt, told.task_info["seen"]) for attempt, told in reports]
        assert counts == sorted(counts), f"counts went back: {counts} (I4)"
        assert all(attempt == 1 for attempt, _ in counts), "one process is one attempt"

    async def check_durable(self, copy: Path) -> None:
        """What was acknowledged to the worker, and to the cloud, is in the ledger (I5).

        Args: copy: a new directory, for a copy of the ledger, so that the next process finds all as
            the fault has left it
        """
        acked = [int(each.version or 0) for each in self.cloud.held if each.key == key()]
        is_new = len(acked) > self._acked_before  # so the session of this life was open
        self._acked_before = len(acked)
        shutil.copytree(self.directory, copy)
        ledger = await Ledger.open(copy)
        try:
            found = ledger.view.task_versions.get(key())
            version = found.version if found else 0
            assert version >= max(acked, default=0), "an acknowledged task is lost"
            assert not is_new or ledger.view.epoch == self.cloud.epoch, "the epoch is lost"
            totals = [row.worker.totals["seen"] for row in await ledger.workers()]
            assert max(totals, default=0) >= self.acked, f"there is {totals}, not {self.acked}"
        finally:
            await ledger.close()

    def is_told(self) -> bool:
        """Whether the cloud knows all that the worker was told is kept."""
        told = [report_of(each.body).task_info["seen"] for each in self.cloud.reports]
        assert max(told, default=0) >= self.acked, f"the cloud was told {told}, not {self.acked}"
        return True

    async def finish(self) -> None:
        """Without faults, everything is as if there had been none (I1, I4)."""
        async with self.running() as controller:
            await async_eventually("what was kept before", self.is_told)
            assert await self.post(controller, self.posted + 1, status="completed")
            assert await self.post(controller, self.posted + 2)  # ignored: the end is final
            told = await self.cloud.until_reported(WORKER, status="completed")
            assert told.task_info["seen"] == self.posted + 1

            async def holds_what_it_must() -> bool:
                items = (await controller.get("/api/v1/tasks"))["items"]
                assert {item["name"] for item in items} == {"digits"}, items
                return True

            await async_eventually("the desired set", holds_what_it_must)
        self.check_history()
        last = report_of(self.cloud.reports[-1].body)
        assert (last.status, last.task_info["seen"]) == ("completed", self.posted + 1)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[FaultyNode]:
    async with running_cloud() as cloud:
        yield FaultyNode(cloud, tmp_path / "state")


@pytest.mark.parametrize(("fault", "point", "release"), SWEPT.values(), ids=SWEPT)
async def test_a_node_that_ends_at_any_point_loses_nothing(
    fault: str, point: str, release: Release, node: FaultyNode, tmp_path: Path
) -> None:
    for life in range(1, LIVES + 1):
        named = f"{fault}:{life}" if fault == "power-cut" else fault
        node.cloud.epoch = life  # each time it meets another leader
        async with node.running(named, point, str(life), release=release) as controller:
            await node.work(controller)
            await controller.process.wait()
        assert controller.process.returncode == -signal.SIGKILL, controller.log
        hit(controller.log, point)
        node.check_history()
        await node.check_durable(tmp_path / f"copy-{life}")
    assert node.acked, "no message was ever acknowledged, so the test shows nothing"
    await node.finish()
