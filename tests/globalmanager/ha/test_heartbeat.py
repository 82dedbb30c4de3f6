"""Silence of the Leases has the API server dialled anew, until it answers, and not too often."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from edgeai.errors import Unavailable
from globalmanager.ha.heartbeat import Heartbeat

pytestmark = pytest.mark.looptime

SILENCE_S = 6.0


class Line:
    """What the heartbeat dials; it answers or not."""

    def __init__(self) -> None:
        self.answers = True
        self.dialled_at: list[float] = []

    async def redial(self, *, deadline_s: float) -> None:
        self.dialled_at.append(asyncio.get_running_loop().time())
        if not self.answers:
            await asyncio.sleep(2)
            raise Unavailable("no answer")


@asynccontextmanager
async def listening(line: Line) -> AsyncIterator[Heartbeat]:
    heartbeat = Heartbeat(line, silence_s=SILENCE_S)
    task = asyncio.create_task(heartbeat.run(), name="heartbeat")
    await asyncio.sleep(0)
    yield heartbeat
    task.cancel()
    await asyncio.wait([task])


async def test_a_line_with_heartbeats_stays() -> None:
    line = Line()
    async with listening(line) as heartbeat:
        for _ in range(20):
            await asyncio.sleep(SILENCE_S - 1)
            heartbeat.heard()
        assert line.dialled_at == []


async def test_a_silent_line_is_dialled_anew() -> None:
    line = Line()
    async with listening(line) as heartbeat:
        await asyncio.sleep(4)
        heartbeat.heard()
        await asyncio.sleep(SILENCE_S + 0.1)
        assert line.dialled_at == pytest.approx([4 + SILENCE_S])


async def test_a_server_that_does_not_answer_is_tried_until_it_does() -> None:
    """So the line is in use again within 4 s of its return."""
    line = Line()
    async with listening(line):
        line.answers = False
        await asyncio.sleep(60)
        pauses = [b - a for a, b in zip(line.dialled_at, line.dialled_at[1:], strict=False)]
        assert line.dialled_at[0] == pytest.approx(SILENCE_S)
        assert all(3.0 <= pause <= 3.5 for pause in pauses)
        line.answers = True
        tried = len(line.dialled_at)
        await asyncio.sleep(3.6)
        assert len(line.dialled_at) == tried + 1


async def test_a_heartbeat_while_it_dials_does_not_keep_the_old_line() -> None:
    """The connection of the Leases was mended, those of the other watches need not be."""
    line = Line()
    async with listening(line) as heartbeat:
        line.answers = False
        await asyncio.sleep(SILENCE_S + 1)
        heartbeat.heard()
        line.answers = True
        await asyncio.sleep(3.6)
        assert len(line.dialled_at) == 2


async def test_where_no_lease_can_be_written_it_dials_seldom() -> None:
    line = Line()
    async with listening(line) as heartbeat:
        await asyncio.sleep(1000)
        pauses = [b - a for a, b in zip(line.dialled_at, line.dialled_at[1:], strict=False)]
        assert pauses[:4] == pytest.approx([12, 24, 48, 60])
        assert set(pauses[4:]) == {60.0}
        heartbeat.heard()
        since = asyncio.get_running_loop().time()
        await asyncio.sleep(SILENCE_S + 0.1)
        assert line.dialled_at[-1] == pytest.approx(since + SILENCE_S)
