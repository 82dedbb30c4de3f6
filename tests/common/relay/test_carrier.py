"""Two carriers over a real WebSocket: deadlines, bounds, and the streams at an end."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from common import wire
from common.ratelimit import TokenBucket
from common.relay.carrier import MAX_QUEUED_BYTES, Carrier, CarrierTiming, StreamRefused
from common.relay.frames import INITIAL_CREDIT, MAX_DATA_BYTES, Open, Refusal, Target
from common.relay.session import Budget, RelaySession
from common.relay.stream_socket import StreamSocket
from common.session import Timing
from common.tasks import TaskGroup
from edgeai.ids import Uid, WorkerName
from tests.support.waiting import PATIENCE_S, async_eventually

TIMING = Timing(opening_s=5.0, beat_s=5.0, silence_s=120.0)
DEFAULT = CarrierTiming()
QUICK = 0.2
LOOPBACK = "127.0.0.1"
Wanted = Callable[[Carrier, Open], None]


def new_session(*, opens: bool, windows_bytes: int = 1 << 30) -> RelaySession:
    budget = Budget(windows_bytes)
    now = asyncio.get_running_loop().time()
    return RelaySession(now=now, timing=TIMING, opens=opens, budget=budget, max_streams=1000)


class Ends:
    """The two ends of a relay. `edge` opens the streams."""

    def __init__(self) -> None:
        self.edge: Carrier
        self.cloud: Carrier
        self.wanted: list[Open] = []
        self._peers: list[Peer] = []
        self.over = asyncio.Event()  # the edge's end is over

    def on_wanted(self, carrier: Carrier, wanted: Open) -> None:
        self.wanted.append(wanted)

    async def open(self) -> int:
        return await self.edge.open(Uid("u"), WorkerName("w"), Target("a", 1))

    async def stream(self) -> tuple["Peer", "Peer"]:
        """A stream. Returns: what the worker has, and what the Service has"""
        opening = asyncio.create_task(self.open())
        number = len(self.wanted) + 1
        await async_eventually("the wish", lambda: len(self.wanted) == number)
        worker, service = await Peer.made(), await Peer.made()
        self._peers += (worker, service)
        self.cloud.accept(self.wanted[-1].stream, service.near)
        self.edge.join(await opening, worker.near)
        return worker, service

    async def until_left(self) -> None:
        """No StreamSocket outlives its stream."""
        for peer in self._peers:
            await asyncio.wait_for(peer.lost.wait(), PATIENCE_S)


class Peer:
    """A TCP connection between a StreamSocket, `near`, and the test. Its buffers are small."""

    def __init__(self, near: StreamSocket, far: socket.socket, lost: asyncio.Event) -> None:
        self.near, self._far, self.lost = near, far, lost
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def made(cls) -> "Peer":
        loop = asyncio.get_running_loop()
        with socket.create_server((LOOPBACK, 0)) as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
            buffer, lost = memoryview(bytearray(MAX_DATA_BYTES)), asyncio.Event()
            transport, near = await loop.create_connection(
                lambda: StreamSocket(buffer, on_lost=lost.set), *listening.getsockname()
            )
            far, _ = listening.accept()
        near_socket = transport.get_extra_info("socket")
        near_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)
        far.setblocking(False)
        return cls(near, far, lost)

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self._far, data)

    async def receive(self) -> bytes:
        return await self._loop.sock_recv(self._far, 1 << 20)

    async def receive_all(self, size: int) -> int:
        """Returns: the number of bytes that came, `size` unless the connection ended before"""
        got = 0
        while got < size and (data := await self.receive()):
            got += len(data)
        return got

    async def wait_for_reset(self) -> None:
        with pytest.raises(ConnectionResetError):
            await self._read_on()

    async def _read_on(self) -> None:
        while await self.receive():
            pass

    def reset(self) -> None:
        self._far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._far.close()

    def close(self) -> None:
        self._far.close()


def close(*peers: Peer) -> None:
    for each in peers:
        each.close()


@contextlib.asynccontextmanager
async def joined(
    *,
    edge_timing: CarrierTiming = DEFAULT,
    max_empty_s: float = 1e9,
    **cloud: Any,
) -> AsyncIterator[Ends]:
    """Args: cloud: arguments of the cloud's Carrier"""
    ends = Ends()
    accepted = asyncio.Event()

    async def handle(websocket: ServerConnection) -> None:
        session = new_session(opens=False)
        ends.cloud = Carrier(websocket, session, on_wanted=ends.on_wanted, **cloud)
        accepted.set()
        await ends.cloud.run()

    async def run() -> None:
        await ends.edge.run()
        ends.over.set()

    as_in_the_product: Any = {"compression": None, "ping_interval": None}
    async with serve(handle, LOOPBACK, 0, **as_in_the_product) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        websocket = await connect(f"ws://{LOOPBACK}:{port}", proxy=None, **as_in_the_product)
        session = new_session(opens=True)
        ends.edge = Carrier(websocket, session, timing=edge_timing, max_empty_s=max_empty_s)
        async with TaskGroup() as tasks:
            tasks.create_task(run(), name="edge")
            await accepted.wait()
            yield ends
            ends.edge.close(wire.Close.NORMAL, "the test is over")
        await ends.until_left()


async def test_a_receiver_that_takes_no_byte_for_too_long_loses_its_stream_alone() -> None:
    timing = CarrierTiming(stall_s=QUICK, look_s=0.1)
    async with joined(edge_timing=timing) as ends:
        deaf, source = await ends.stream()
        worker, service = await ends.stream()
        flood = asyncio.create_task(source.send(bytes(20_000_000)))
        with pytest.raises(ConnectionResetError):
            await flood
        await deaf.wait_for_reset()
        await worker.send(b"still here")
        assert await service.receive() == b"still here"
        close(deaf, source, worker, service)


async def test_a_slow_receiver_keeps_its_stream_and_gets_every_byte() -> None:
    """It takes bytes within each deadline, and far longer than one deadline in all."""
    timing = CarrierTiming(stall_s=QUICK, look_s=0.1)
    async with joined(edge_timing=timing) as ends:
        slow, source = await ends.stream()
        size = 1_500_000
        flood = asyncio.create_task(source.send(bytes(size)))
        got, loop = 0, asyncio.get_running_loop()
        while got < size:
            got += len(await loop.sock_recv(slow._far, 50_000))
            await asyncio.sleep(0.01)
        await flood
        close(slow, source)


async def test_a_receiver_that_reads_late_gets_every_byte() -> None:
    """Credit comes back when the connection has taken what had to wait."""
    async with joined() as ends:
        late, source = await ends.stream()
        size = 5_000_000
        flood = asyncio.create_task(source.send(bytes(size)))
        await async_eventually("bytes that wait", lambda: late.near._undrained > 0)
        assert await late.receive_all(size) == size
        await flood
        close(late, source)


async def test_a_stream_without_a_byte_ends_and_one_with_bytes_goes_on() -> None:
    timing = CarrierTiming(idle_s=QUICK, look_s=0.1)
    async with joined(edge_timing=timing) as ends:
        idle, idle_service = await ends.stream()
        worker, service = await ends.stream()
        waiting = asyncio.create_task(idle.wait_for_reset())
        while not waiting.done():
            await worker.send(b"x")
            assert await service.receive() == b"x"
        await waiting
        await idle_service.wait_for_reset()
        close(idle, idle_service, worker, service)


async def test_a_stream_that_nobody_answers_is_refused_and_given_up_at_both_ends() -> None:
    async with joined(edge_timing=CarrierTiming(open_s=QUICK)) as ends:
        with pytest.raises(StreamRefused) as refused:
            await ends.open()
        assert refused.value.refusal is Refusal.TIMEOUT
        assert len(ends.edge) == 0
        await async_eventually("the end in the cloud", lambda: len(ends.cloud) == 0)


async def test_who_waits_for_a_stream_learns_of_the_relays_end_at_once() -> None:
    async with joined() as ends:
        opening = asyncio.create_task(ends.open())
        await async_eventually("the wish", lambda: ends.wanted)
        ends.cloud.close(wire.Close.GOING_AWAY, "the GlobalManager stops")
        with pytest.raises(StreamRefused, match="the relay has ended"):
            await opening


async def test_the_relays_end_is_a_reset_for_every_connection() -> None:
    async with joined() as ends:
        worker, service = await ends.stream()
        ends.cloud.close(wire.Close.GOING_AWAY, "the GlobalManager stops")
        await worker.wait_for_reset()
        await service.wait_for_reset()
        close(worker, service)


async def test_a_connection_that_breaks_is_a_reset_at_the_other_end() -> None:
    """An end would let the other side take a part for the whole."""
    async with joined() as ends:
        worker, service = await ends.stream()
        await service.send(b"a part")
        assert await worker.receive() == b"a part"
        service.reset()
        await worker.wait_for_reset()
        worker.close()


async def test_a_relay_without_streams_is_closed_and_one_with_streams_is_not() -> None:
    timing = CarrierTiming(look_s=0.1)
    async with joined(edge_timing=timing, max_empty_s=QUICK) as ends:
        worker, service = await ends.stream()
        for _ in range(5):
            await asyncio.sleep(0.1)
            assert not ends.over.is_set()
        close(worker, service)
        await asyncio.wait_for(ends.over.wait(), 20)


async def test_frames_beyond_the_rate_wait() -> None:
    frames = TokenBucket(qps=1.0, burst=3, max_wait_s=float("inf"))
    async with joined(frames=frames) as ends:
        opening = [asyncio.create_task(ends.open()) for _ in range(10)]
        await async_eventually("the first of them", lambda: len(ends.wanted) >= 3)
        await (await ends.edge._websocket.ping())  # the pong comes after all that was sent before
        assert len(ends.wanted) < 10
        ends.cloud.close(wire.Close.NORMAL, "enough")
        await asyncio.gather(*opening, return_exceptions=True)


async def test_a_peer_that_does_not_read_ends_the_relay_and_little_waits_for_it() -> None:
    """Each of 100 streams has credit for 16 KiB, 1.6 MB in all."""
    async with joined(edge_timing=CarrierTiming(send_s=1.0)) as ends:
        pairs = [await ends.stream() for _ in range(100)]
        ends.cloud._websocket.transport.pause_reading()
        _shrink(ends)
        sending = [asyncio.create_task(worker.send(bytes(200_000))) for worker, _ in pairs]
        most = 0
        async with asyncio.timeout(30):  # far less than the silence that ends a relay, too
            while not ends.over.is_set():
                most = max(most, ends.edge._queued_bytes)
                await asyncio.sleep(0.01)
        await asyncio.gather(*sending, return_exceptions=True)
        ends.cloud._websocket.transport.resume_reading()
        # One read of each connection at most comes on top, while the queue is short.
        assert most <= MAX_QUEUED_BYTES + 100 * 4096 + 2 * INITIAL_CREDIT
        close(*(each for pair in pairs for each in pair))


def _shrink(ends: Ends) -> None:
    """Let the kernel take little of what the edge sends."""
    for end, option in ((ends.edge, socket.SO_SNDBUF), (ends.cloud, socket.SO_RCVBUF)):
        accepted = end._websocket.transport.get_extra_info("socket")
        accepted.setsockopt(socket.SOL_SOCKET, option, 16_384)
