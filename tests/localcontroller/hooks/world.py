"""The Dataset hook on a real ledger. The period between two checks ends when a test says so."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from common import wire
from edgeai.ids import TaskKey, Uid, WorkerName
from localcontroller.hooks.addresses import parse_networks
from localcontroller.hooks.dataset import DatasetHook
from localcontroller.hooks.sources import DEFAULT_TIMEOUTS, SourceOptions, SourceTimeouts
from localcontroller.ledger.ledger import Ledger
from localcontroller.ledger.outbox import Outgoing
from tests.localcontroller.builders import report_of
from tests.support.tasks import beside
from tests.support.waiting import async_eventually

UID = Uid("uid-d")
LOOPBACK = parse_networks(["127.0.0.0/8"])


def key(name: str = "faces") -> TaskKey:
    return TaskKey(f"datasets.edgeai.io/default/{name}")


def assign(*, name: str = "faces", uid: str = UID, version: int = 1, **spec: Any) -> wire.Assign:
    workers = {WorkerName(name): wire.THE_NODE_ITSELF}
    body = wire.AssignmentBody("default", name, spec, workers)
    return wire.Assign(1, key(name), Uid(uid), version, wire.pack(body))


class Pauses:
    """Stands in for sleeping. Periods end when a test calls `end_period`, slots after `slot_s`."""

    def __init__(self, timeouts: SourceTimeouts) -> None:
        self.periods_s: list[float] = []  # all periods that began; one begins after each check
        self.slot_s = timeouts.slot_s  # a test may change it between checks
        self._default_slot_s = timeouts.slot_s
        self._period_end = asyncio.Event()

    async def __call__(self, delay_s: float) -> None:
        if delay_s == self._default_slot_s:
            await asyncio.sleep(self.slot_s)
        else:
            self.periods_s.append(delay_s)
            await self._period_end.wait()

    def end_period(self) -> None:
        self._period_end.set()
        self._period_end = asyncio.Event()


class DatasetChecks:
    def __init__(self, ledger: Ledger, pauses: Pauses) -> None:
        self.ledger = ledger
        self.pauses = pauses

    async def hold(self, **fields: Any) -> None:
        """Assign a Dataset, and wait for the end of its first check."""
        before = len(self.pauses.periods_s)
        assert await self.ledger.apply([assign(**fields)]) == [""]
        await self.until_checked(before + 1)

    async def check_again(self) -> None:
        before = len(self.pauses.periods_s)
        self.pauses.end_period()
        await self.until_checked(before + 1)

    async def until_checked(self, count: int) -> None:
        """Wait for the end of so many checks since the start."""

        def check() -> bool:
            ended = len(self.pauses.periods_s)
            assert ended >= count, f"{ended} checks"
            return True

        await async_eventually(f"the end of check number {count}", check)

    async def until_counted(self, samples: int) -> None:
        """Check again until the report has so many samples."""

        async def check() -> bool:
            await self.check_again()
            report = await self.report()
            found = report.task_info.get("numberOfSamples")
            assert (report.status, found) == ("running", samples), f"{report.status}: {found}"
            return True

        await async_eventually(f"{samples} samples", check)

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
async def watching(
    ledger: Ledger,
    options: SourceOptions | None = None,
    *,
    timeouts: SourceTimeouts = DEFAULT_TIMEOUTS,
) -> AsyncIterator[DatasetChecks]:
    pauses = Pauses(timeouts)
    given = options or SourceOptions(networks=LOOPBACK)  # where the servers of tests are
    hook = DatasetHook(ledger, given, timeouts=timeouts, pause=pauses)
    async with beside(hook.run(), "datasets"):
        yield DatasetChecks(ledger, pauses)
