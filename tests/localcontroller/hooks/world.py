"""A LocalController's datasets hook on a real ledger, whose period ends when a test says so."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from common import wire
from common.edge_session import Outgoing
from common.ids import TaskKey, Uid, WorkerName
from localcontroller.hooks.dataset import Datasets, Options
from localcontroller.ledger.ledger import Ledger
from tests.localcontroller.builders import report_of, until

UID = Uid("uid-d")


def key(name: str = "faces") -> TaskKey:
    return TaskKey(f"datasets.edgeai.io/default/{name}")


def assign(*, name: str = "faces", uid: str = UID, version: int = 1, **spec: Any) -> wire.Assign:
    workers = {WorkerName(name): wire.THE_NODE_ITSELF}
    body = wire.AssignmentBody("default", name, spec, workers)
    return wire.Assign(1, key(name), Uid(uid), version, wire.pack(body))


class Period:
    """Stands in for sleeping: ends for all that wait when told."""

    def __init__(self) -> None:
        self.waited_s: list[float] = []
        self._end = asyncio.Event()

    async def __call__(self, delay_s: float) -> None:
        self.waited_s.append(delay_s)
        await self._end.wait()

    def end(self) -> None:
        self._end.set()
        self._end = asyncio.Event()


class World:
    def __init__(self, ledger: Ledger, period: Period) -> None:
        self.ledger = ledger
        self.period = period

    async def hold(self, **fields: Any) -> None:
        """A Dataset comes, and has been looked at."""
        looks = len(self.period.waited_s)
        assert await self.ledger.apply([assign(**fields)]) == [""]
        await until(lambda: len(self.period.waited_s) > looks)

    async def look_again(self) -> None:
        looks = len(self.period.waited_s)
        self.period.end()
        await until(lambda: len(self.period.waited_s) > looks)

    async def owed(self) -> list[Outgoing]:
        return await self.ledger.reports()

    async def report(self) -> wire.ReportBody:
        (outgoing,) = await self.owed()
        return report_of(outgoing.body)

    async def samples(self) -> Any:
        return (await self.report()).task_info.get("numberOfSamples")

    async def problem(self) -> str | None:
        return (await self.report()).details.get("problem")


@contextlib.asynccontextmanager
async def watching(ledger: Ledger, options: Options | None = None) -> AsyncIterator[World]:
    period = Period()
    hook = Datasets(ledger, options or Options(), pause=period)
    task = asyncio.create_task(hook.run(), name="datasets")
    try:
        yield World(ledger, period)
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
