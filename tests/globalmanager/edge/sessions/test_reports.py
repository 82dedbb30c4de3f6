"""Reports from real peers: durable before acknowledged, and nothing for what is not theirs."""

import asyncio
import contextlib
import copy
from functools import partial
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed

from common import wire
from common.session import Timing
from edgeai.ids import WorkerName
from globalmanager.edge.door.admission import AdmissionLimits
from globalmanager.edge.sessions.driver import FRAME_BYTES, DriverTiming
from globalmanager.edge.sessions.inbox import InboxLimits, Retry
from globalmanager.edge.sessions.quota import NodeLimits
from tests.globalmanager.edge.world import A, B, EdgeSide, Peer, key, report_body, uid
from tests.support.tasks import beside
from tests.support.waiting import async_eventually


async def test_a_report_reaches_the_status_and_is_acknowledged(world: EdgeSide) -> None:
    world.assign(0, A)
    async with world.peer() as peer:
        await async_eventually("a synced peer", lambda: peer.is_synced)
        await peer.report(body=report_body(seen=3))
        await async_eventually("peer.acked", lambda: peer.acked)
        assert [ack.refusal for ack in peer.acked] == [""]
        assert world.statuses.by_uid[uid()]["w"]["taskInfo"] == {"seen": 3}
        (info,) = world.sessions.snapshot()
        assert info.last_report_at is not None


async def test_a_write_that_fails_first_takes_effect_once(world: EdgeSide) -> None:
    world.assign(0, A)
    async with world.peer() as peer:
        await async_eventually("a synced peer", lambda: peer.is_synced)
        world.statuses.fail = [Retry("away"), OSError("reset")]
        await peer.report()
        await async_eventually("peer.acked", lambda: peer.acked)
        assert len(world.statuses.writes) == 1
        assert len(peer.acked) == 1


async def test_a_report_of_a_session_that_ended_takes_effect(world: EdgeSide) -> None:
    world.assign(0, A)
    world.statuses.open.clear()
    async with world.peer() as peer:
        await async_eventually("a synced peer", lambda: peer.is_synced)
        await peer.report(body=report_body("completed"))
        await async_eventually("world.inbox.depth == 1", lambda: world.inbox.depth == 1)
    await async_eventually(
        "no contact any more",
        lambda: not world.contacts.by_node()[A].connected,
    )
    world.statuses.open.set()
    await async_eventually("world.statuses.by_uid[uid()]", lambda: world.statuses.by_uid[uid()])
    await async_eventually("world.inbox.depth == 0", lambda: world.inbox.depth == 0)


async def test_a_foreign_report_is_refused_and_the_session_lives(world: EdgeSide) -> None:
    world.assign(0, B)
    async with world.peer(A) as peer:
        await async_eventually("a synced peer", lambda: peer.is_synced)
        await peer.report()
        await async_eventually("peer.acked", lambda: peer.acked)
        assert "not bound to node 'node-0'" in peer.acked[0].refusal
        assert world.statuses.by_uid[uid()] == {}
        assert peer.close_code is None


FRAMES = st.one_of(
    st.builds(
        wire.Report,
        st.integers(1, 300),
        st.sampled_from([uid(0), uid(1), uid(2)]),
        st.sampled_from(["w", "x", "", "é" * 9]).map(WorkerName),
        st.integers(0, 3),
        st.sampled_from([report_body("completed"), report_body("failed", seen=9), b"", b"\xc1"]),
    ),
    st.builds(wire.Ack, st.integers(1, 9), st.text(max_size=5)),
    st.builds(wire.Hello, st.just([1]), st.text(max_size=5), st.just({})),
    st.builds(wire.Withdraw, st.integers(1, 9), st.just(key(0)), st.just(uid(0))),
    st.builds(wire.Synced, st.integers(1, 9), st.just([])),
    st.builds(wire.Chunk, st.binary(max_size=9), st.booleans()),
    st.just(wire.Beat()),
).map(lambda frame: wire.encode(frame)[0])
MESSAGES = st.lists(st.one_of(FRAMES, st.binary(max_size=40)), max_size=12)
HELLO = wire.encode(wire.Hello([1], "i", {}))[0]


async def test_no_sequence_of_frames_changes_what_is_bound_to_another_node(
    tmp_path: Path,
) -> None:
    """Node A sends anything at all; tasks 0 and 1 are bound to B alone, task 2 to both."""
    loop = asyncio.get_running_loop()
    limits = AdmissionLimits(per_address_per_s=1000, per_address_burst=1000)
    async with EdgeSide(tmp_path / "tokens", limits=limits).running() as world:
        world.assign(0, B)
        world.assign(1, B, workers=("w", "x"))
        world.assign(2, A, B, workers=("v",))
        for n in range(3):
            world.statuses.by_uid[uid(n)][WorkerName("w")] = {"status": "running"}
        before = msgspec.json.encode(world.statuses.by_uid)
        bodies = [copy.deepcopy(world.desired.for_node(B)[key(n)]) for n in range(3)]

        async def attack(messages: list[bytes]) -> None:
            async with world.socket(A) as websocket:
                with contextlib.suppress(ConnectionClosed):
                    for message in (HELLO, *messages):
                        await websocket.send(message)
            await async_eventually(
                "world.inbox.depth == 0 and not list(world.sessions.snapshot())",
                lambda: world.inbox.depth == 0 and not list(world.sessions.snapshot()),
            )
            assert msgspec.json.encode(world.statuses.by_uid) == before
            assert [world.desired.for_node(B)[key(n)] for n in range(3)] == bodies

        @settings(max_examples=100, suppress_health_check=list(HealthCheck))
        @given(MESSAGES)
        def attacks(messages: list[bytes]) -> None:
            asyncio.run_coroutine_threadsafe(attack(messages), loop).result(20)

        await asyncio.to_thread(attacks)


HASTY = Timing(opening_s=5, beat_s=0.1, silence_s=0.5)


async def test_while_the_inbox_is_full_a_session_is_neither_read_nor_cut(tmp_path: Path) -> None:
    """The API hangs for longer than the silence deadline; then everything is acknowledged."""
    limits = InboxLimits(writers=1, reports_per_node=2, backoff_base_s=0.01, backoff_max_s=0.02)
    async with EdgeSide(tmp_path / "tokens", timing=HASTY, inbox=limits).running() as world:
        world.assign(0, A, workers=tuple(f"w{n}" for n in range(9)))
        world.statuses.open.clear()
        async with world.peer(timing=HASTY) as peer:
            await async_eventually("a synced peer", lambda: peer.is_synced)
            for n in range(9):
                await peer.report(worker=f"w{n}")
            loop = asyncio.get_running_loop()
            until = loop.time() + 2 * HASTY.silence_s
            await async_eventually("loop.time() > until", lambda: loop.time() > until)
            assert world.inbox.depth == 2
            assert peer.close_code is None
            world.statuses.open.set()
            await async_eventually("len(peer.acked) == 9", lambda: len(peer.acked) == 9)
            assert len(world.statuses.writes) == 9


BEAT = wire.encode(wire.Beat())[0]
FOREIGN = wire.encode(wire.Report(1, uid(), WorkerName("w"), 1, report_body()))[0]
ACK = wire.encode(wire.Ack(10**6))[0]
LARGE = wire.encode(wire.Report(1, uid(), WorkerName("w"), 1, b"\x00" * 64_000))[0]


def is_acked(peer: Peer, number: int) -> bool:
    return len(peer.acked) > number


def received_by(world: EdgeSide) -> float:
    return world.sample("edgeai_edge_messages_total", direction="in")


@pytest.mark.parametrize(
    "message", [BEAT, FOREIGN, ACK, LARGE], ids=["beat", "foreign", "ack", "large"]
)
async def test_a_session_that_sends_without_pause_is_read_at_a_bounded_rate(
    world: EdgeSide, message: bytes
) -> None:
    world.assign(0, B)
    async with world.peer(B) as other, world.socket(A) as websocket:
        await async_eventually("a synced peer", lambda: other.is_synced)
        await websocket.send(HELLO)
        loop = asyncio.get_running_loop()
        began, before = loop.time(), received_by(world)

        async def flood() -> None:
            with contextlib.suppress(ConnectionClosed):
                while True:
                    for _ in range(20):
                        await websocket.send(message)
                    await asyncio.sleep(0.002)  # the other node is served by the same loop

        async def read() -> None:
            with contextlib.suppress(ConnectionClosed):
                while True:
                    await websocket.recv()

        async with beside(flood(), "flood"), beside(read(), "answers"):
            await asyncio.sleep(1.0)
            for number in range(5):
                await other.report(body=report_body(seen=number))
                acked = partial(is_acked, other, number)
                await async_eventually("an ack of the other node", acked)
            received = received_by(world) - before
            timing = DriverTiming()
            weight = max(1.0, len(message) / FRAME_BYTES)
            allowed = timing.frames_burst + timing.frames_per_s * (loop.time() - began)
            assert received * weight < allowed + 100
            assert received * weight > timing.frames_burst / 2, "it is read as fast as it may be"
            websocket.transport.abort()


async def test_acknowledgements_of_what_was_sent_are_read_at_once(tmp_path: Path) -> None:
    count = 3 * DriverTiming().frames_burst
    limits = NodeLimits(tasks=count)
    async with EdgeSide(tmp_path / "tokens", node_limits=limits).running() as world:
        for n in range(count):
            world.assign(n, A)
        async with world.peer(A) as peer:
            await async_eventually("a synced peer", lambda: peer.is_synced)
            driver = world.sessions._open[A]
            await async_eventually("all acknowledged", lambda: driver.synced)
            assert len(driver.task_versions) == count
            assert driver._frames._tokens > DriverTiming().frames_burst - 10


async def test_a_new_session_brings_no_new_burst_of_frames(tmp_path: Path) -> None:
    burst = DriverTiming().frames_burst
    async with EdgeSide(tmp_path / "tokens", frames_per_s=0.01).running() as world:
        world.assign(0, B)
        for _ in range(2):
            async with world.socket(A) as websocket:
                async with world.socket(B):
                    pass  # a node that comes takes no rate from one that has sent nothing yet
                await websocket.send(HELLO)
                for _ in range(burst):
                    await websocket.send(BEAT)
                await async_eventually("the first burst", lambda: received_by(world) >= burst)
                websocket.transport.abort()
        before = received_by(world)
        async with world.socket(A) as websocket, world.peer(B) as other:
            await websocket.send(HELLO)
            for _ in range(50):
                await websocket.send(BEAT)
            await async_eventually("a synced peer", lambda: other.is_synced)
            await other.report()
            await async_eventually("an ack of the other node", lambda: other.acked)
            assert received_by(world) - before < 20
            websocket.transport.abort()
