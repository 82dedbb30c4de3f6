"""A conversation with a GlobalManager that sends too much, and a ledger that refuses a frame."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from common import wire
from localcontroller.ledger.ledger import CloudFrame, Ledger
from localcontroller.ledger.writer import DefectiveOperation
from localcontroller.link.conversation import MAX_BATCH, MAX_INBOX
from tests.localcontroller.builders import assign, desired, key
from tests.localcontroller.cloud import Cloud, running_cloud
from tests.localcontroller.full_disk import full_disk
from tests.localcontroller.link.test_link import linked
from tests.support.waiting import async_eventually


@pytest.fixture
async def cloud() -> AsyncIterator[Cloud]:
    async with running_cloud() as cloud:
        yield cloud


async def test_a_cloud_that_ignores_its_window_is_left_before_its_frames_fill_the_memory(
    ledger: Ledger, cloud: Cloud
) -> None:
    async with linked(ledger, cloud, retry_commit_s=60.0) as link:
        await cloud.until_synced()
        with full_disk():  # so no frame leaves the inbox, except one batch
            for number in range(1, MAX_INBOX + MAX_BATCH + 2):
                (data,) = wire.encode(assign(f"task-{number}", uid=f"uid-{number}", seq=number))
                await cloud.sockets[-1].send(data)

            def is_left() -> bool:
                assert "ignores its window" in link.state.last_error, link.state
                return True

            await async_eventually("the end of the session", is_left)


class LedgerWithDefect(Ledger):
    """A ledger whose operation on the task "bad" always fails. Waits for `may_apply`."""

    may_apply: asyncio.Event
    is_waiting = False

    async def apply(self, frames: Sequence[CloudFrame]) -> list[str]:
        self.is_waiting = True
        await self.may_apply.wait()
        if any(isinstance(frame, wire.Assign) and frame.key == key("bad") for frame in frames):
            raise DefectiveOperation("the ledger cannot do that")
        return await super().apply(frames)


async def test_a_frame_that_the_ledger_cannot_apply_is_refused_without_its_batch(
    cloud: Cloud, state_dir: Path
) -> None:
    ledger = await LedgerWithDefect.open(state_dir)
    assert isinstance(ledger, LedgerWithDefect)
    ledger.may_apply = asyncio.Event()
    ledger.may_apply.set()
    async with linked(ledger, cloud):
        await cloud.until_synced()
        ledger.may_apply.clear()
        ledger.is_waiting = False
        await cloud.desire(key("first"), desired(uid="first"))
        await async_eventually("a commit that waits", lambda: ledger.is_waiting)
        for name in ("good", "bad", "better"):  # one batch, because the first commit waits
            await cloud.desire(key(name), desired(uid=name))
        await (await cloud.sockets[-1].ping())  # answered after all frames have arrived
        ledger.may_apply.set()

        def answers() -> bool:
            found = {task.key: task.refusal for task in cloud.held}
            refused = "the ledger cannot do that"
            expected = dict.fromkeys(map(key, ("first", "good", "better")), "")
            assert found == {**expected, key("bad"): refused}, found
            return True

        await async_eventually("answers to four tasks", answers)
    assert set(ledger.view.task_versions) == {key("first"), key("good"), key("better")}
    await ledger.close()
