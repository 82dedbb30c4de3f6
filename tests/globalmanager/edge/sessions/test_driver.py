"""What a session costs while nothing happens in it. Real sockets throughout."""

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest
from structlog.contextvars import get_contextvars
from structlog.testing import capture_logs

from common import wire
from common.session import Timing
from edgeai.ids import WorkerName
from globalmanager.edge.sessions.driver import SessionDriver
from globalmanager.edge.sessions.flag import Flag
from tests.globalmanager.edge.world import A, B, EdgeSide, report_body, uid
from tests.support.waiting import async_eventually

# GlobalManager and peers beat five times a second, in slots of 1/75 of that.
QUICK = Timing(opening_s=10, beat_s=0.2, silence_s=30)


def driver_of(world: EdgeSide, node: str) -> SessionDriver:
    return next(each for each in world.sessions._open.values() if each.node == node)


def is_idle(driver: SessionDriver) -> bool:
    """Whether the writer waits, and nothing of the node that wakes it is under way."""
    is_awake = driver._is_writing or driver._wake.is_set()
    return driver.synced and driver.unacknowledged_since == math.inf and not is_awake


async def test_sessions_that_began_at_different_times_beat_together(tmp_path: Path) -> None:
    """So one wake-up of the process serves many of them."""
    timing = Timing(opening_s=1000, beat_s=750, silence_s=2000)  # slots of 10 s
    quick = EdgeSide(tmp_path / "tokens", timing=timing)
    async with quick.running() as world, world.peer(A) as a, world.peer(B) as b:
        await async_eventually("synced peers", lambda: a.is_synced and b.is_synced)
        for node in (A, B):
            timer = driver_of(world, node)._timer
            assert timer.when() % 10 == pytest.approx(0, abs=1e-6)


async def test_a_beat_does_not_wake_the_writer(tmp_path: Path) -> None:
    quick = EdgeSide(tmp_path / "tokens", timing=QUICK)
    async with quick.running() as world, world.peer(A, timing=QUICK) as peer:
        await async_eventually("a synced peer", lambda: peer.is_synced)
        driver = driver_of(world, A)
        await async_eventually("an idle writer", lambda: is_idle(driver))
        waits_on = driver._wake._waiter
        before = world.sample("edgeai_edge_messages_total", direction="in")

        def has_beaten() -> bool:
            return world.sample("edgeai_edge_messages_total", direction="in") > before + 2

        await async_eventually("beats both ways", has_beaten)
        assert driver._wake._waiter is waits_on


async def test_a_beat_is_not_written_into_a_buffer_that_the_peer_does_not_empty(
    tmp_path: Path,
) -> None:
    quick = EdgeSide(tmp_path / "tokens", timing=QUICK)
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


class Counted:
    """A WebSocket that counts how often data is given to the network."""

    def __init__(self, websocket: Any) -> None:
        self.websocket = websocket
        self.sent = 0

    def send_data(self) -> None:
        self.sent += 1
        self.websocket.send_data()

    async def send(self, message: bytes) -> None:
        self.sent += 1
        await self.websocket.send(message)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.websocket, name)


async def test_acknowledgements_that_come_together_leave_together(tmp_path: Path) -> None:
    quick = EdgeSide(tmp_path / "tokens")
    async with quick.running() as world, world.peer(A) as peer:
        world.assign(0, A, workers=tuple("abcdef"))
        await async_eventually("the task", lambda: peer.held)
        world.statuses.open.clear()
        for worker in "abcdef":
            await peer.report(worker=worker)
        await async_eventually("six reports", lambda: world.inbox.depth == 6)
        driver = driver_of(world, A)
        await async_eventually("an idle writer", lambda: is_idle(driver))
        counted = Counted(driver._websocket)
        driver._websocket = counted  # type: ignore[assignment]
        for seq in range(1, 7):
            driver.acknowledge(seq)
        await async_eventually("six acknowledgements", lambda: len(peer.acked) == 6)
        assert counted.sent == 1
        world.statuses.open.set()


async def test_a_report_does_not_wake_the_writer_before_its_acknowledgement(
    tmp_path: Path,
) -> None:
    quick = EdgeSide(tmp_path / "tokens")
    async with quick.running() as world, world.peer(A) as peer:
        world.assign(0, A)
        await async_eventually("the task", lambda: peer.held)
        driver = driver_of(world, A)
        await async_eventually("an idle writer", lambda: is_idle(driver))
        waits_on = driver._wake._waiter
        assert waits_on is not None
        world.statuses.open.clear()
        await peer.report()
        await async_eventually("the report", lambda: world.inbox.depth == 1)
        assert driver._wake._waiter is waits_on
        assert not waits_on.done()
        world.statuses.open.set()
        await async_eventually("the acknowledgement", lambda: len(peer.acked) == 1)


async def test_a_message_does_not_wake_the_reader(tmp_path: Path) -> None:
    quick = EdgeSide(tmp_path / "tokens", timing=QUICK)
    async with quick.running() as world, world.peer(A, timing=QUICK) as peer:
        world.assign(0, A)
        await async_eventually("the task", lambda: peer.held)
        driver = driver_of(world, A)
        await async_eventually("an idle session", lambda: is_idle(driver))
        frames = driver._websocket.recv_messages.frames
        waits_on = frames.get_waiter
        assert waits_on is not None
        before = world.sample("edgeai_edge_messages_total", direction="in")

        def has_beaten() -> bool:
            return world.sample("edgeai_edge_messages_total", direction="in") > before + 3

        await peer.report()
        await async_eventually("the acknowledgement", lambda: len(peer.acked) == 1)
        await async_eventually("beats", has_beaten)
        assert frames.get_waiter is waits_on


class Faulty:
    """The owner of a session, with a bug."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.named: list[dict[str, Any]] = []  # what each log line of the session would name

    def on_hello(self, session: SessionDriver) -> None:
        raise AssertionError("a second Hello")

    def on_report(self, _session: SessionDriver, report: wire.Report) -> bool:
        self.taken.append(report.worker)
        self.named.append(get_contextvars())
        raise RuntimeError(f"cannot take {report.worker}")


async def test_a_message_that_fails_ends_its_session_alone(tmp_path: Path) -> None:
    faulty = Faulty()

    quick = EdgeSide(tmp_path / "tokens")
    async with quick.running() as world, world.peer(A) as a, world.peer(B) as b:
        world.assign(0, A, B)
        await async_eventually("the task", lambda: a.held and b.held)
        failing = driver_of(world, A)
        failing._owner = faulty
        with capture_logs() as logs:
            await a.report()
            await async_eventually("the end", lambda: A not in world.sessions._open)
        await async_eventually("the peer's end", lambda: a.close_code is not None)
        assert faulty.named == [{"node": A, "session": failing.session_id}]
        assert [each["node"] for each in logs if each["event"] == "session failed"] == [A]
        await b.report()
        await async_eventually("the acknowledgement", lambda: len(b.acked) == 1)


async def test_after_a_message_that_fails_no_other_is_taken(tmp_path: Path) -> None:
    """Else a later report would overtake it."""
    faulty = Faulty()

    quick = EdgeSide(tmp_path / "tokens")
    async with quick.running() as world, world.peer(A) as peer:
        world.assign(0, A)
        await async_eventually("the task", lambda: peer.held)
        driver = driver_of(world, A)
        await async_eventually("an idle session", lambda: is_idle(driver))
        driver._owner = faulty
        arrive = driver._websocket.reader
        assert arrive is not None
        for seq in (1, 2):  # as of one piece of the stream
            worker = WorkerName(f"w{seq}")
            report = wire.Report(seq, uid(0), worker, attempt=1, body=report_body())
            assert arrive(wire.encode(report)[0])
        assert faulty.taken == ["w1"]


@pytest.mark.parametrize("room", ["_may_read", "_answers_taken"])
async def test_a_message_waits_behind_one_that_the_reader_holds(tmp_path: Path, room: str) -> None:
    quick = EdgeSide(tmp_path / "tokens")
    async with quick.running() as world, world.peer(A) as peer:
        world.assign(0, A)
        await async_eventually("the task", lambda: peer.held)
        driver = driver_of(world, A)
        await async_eventually("an idle session", lambda: is_idle(driver))
        flag: Flag = getattr(driver, room)
        flag.clear()
        await peer.report()
        await async_eventually("the reader holds the report", lambda: not driver._is_awaiting)
        assert not driver._websocket.recv_messages.frames
        flag.set()
        reader = driver._websocket.reader
        assert reader is not None
        assert not reader(wire.encode(wire.Beat())[0])
        await async_eventually("the acknowledgement", lambda: len(peer.acked) == 1)
        assert reader(wire.encode(wire.Beat())[0])
