"""The relay of one node: throughput, delay, memory, and what bulk costs an assignment.

The LocalController is a real process. The edge side of the GlobalManager is another one:
`python -m tests.bench.relay DIRECTORY TARGET_PORT`. The target and the workers are threads of this
process, so the figures are those of all four sides on one machine.
"""

import asyncio
import socket
import socketserver
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import uvloop

from edgeai.open_files import allow_open_files
from tests.bench import cloud_side
from tests.bench.cloud_side import Cloud, Questions, process, questions, receive, serving, tell
from tests.bench.spread import spread
from tests.globalmanager.edge.world import A, token
from tests.localcontroller.test_process import Controller, running
from tests.support.processes import memory_kib
from tests.support.waiting import async_eventually

BULK_BYTES: Final = 200 * 2**20
WEIGHTS_BYTES: Final = 10 * 100_000_000  # ten times, so that assignments are beside them
SMALL_BYTES: Final = 4096
SMALL_REQUESTS: Final = 1000
IDLE_STREAMS: Final = 1000
TENANTS: Final = 5  # with one task each; a worker gets a quarter of the streams
ROUNDS: Final = 3
SETTLED_S: Final = 1.0


def measure() -> dict[str, Any]:
    """Figures of docs/performance.md, "The relay"."""
    allow_open_files(8192)
    with tempfile.TemporaryDirectory() as directory, serving(Target) as port:
        return asyncio.run(_measure(Path(directory), port))


async def _measure(directory: Path, port: int) -> dict[str, Any]:
    async with process("relay", directory, port) as side:
        url = await side.answer()
        (directory / "token").write_text(token(A))
        flags = ("--node-name", A, "--global-manager", url, "--edge-plaintext", "allow")
        files = ("--token-file", str(directory / "token"))
        async with running(directory / "state", *flags, *files) as edge:
            await side.ask("synced")
            return await _figures(side, edge, Worker(await edge.until_listening("worker"), port))


async def _figures(side: Questions, edge: Controller, worker: "Worker") -> dict[str, Any]:
    in_thread = asyncio.to_thread
    await in_thread(worker.request_times_ms)  # the relay is open, all is loaded
    before = resident_mib(side.pid)
    idle = await in_thread(worker.idle, IDLE_STREAMS)
    await asyncio.sleep(SETTLED_S)
    idle_mib = round(resident_mib(side.pid) - before, 1)
    for each in idle:
        each.close()
    figures = {
        "idle_streams_mib": idle_mib,
        "to_the_edge_mb_s": [await in_thread(worker.megabytes_per_s, b"D") for _ in range(ROUNDS)],
        "to_the_cloud_mb_s": [await in_thread(worker.megabytes_per_s, b"U") for _ in range(ROUNDS)],
        "request_4_kib_ms": spread(await in_thread(worker.request_times_ms)),
        "request_4_kib_direct_ms": spread(await in_thread(worker.request_times_ms, is_direct=True)),
        "localcontroller_mib": resident_mib(edge.process.pid),
    }
    alone = await side.ask("assign 2")
    bulk = asyncio.create_task(in_thread(worker.megabytes_per_s, b"W"))
    await asyncio.sleep(0.1)
    figures["assign_alone_ms"] = spread(alone)
    figures["assign_beside_100_mb_ms"] = spread(await side.ask("assign 1"))
    await bulk
    return figures


class Worker(cloud_side.Worker):
    def megabytes_per_s(self, kind: bytes) -> float:
        with self.open(kind) as connection:
            began = time.monotonic()
            size = WEIGHTS_BYTES if kind == b"W" else BULK_BYTES
            if kind == b"U":
                connection.sendall(bytes(size))
                receive(connection, 1)
            else:
                receive(connection, size)
            return round(size / 1e6 / (time.monotonic() - began), 1)

    def request_times_ms(self, *, is_direct: bool = False) -> list[float]:
        times = []
        with self.open(b"P", is_direct=is_direct) as connection:
            for _ in range(SMALL_REQUESTS):
                began = time.perf_counter()
                connection.sendall(bytes(SMALL_BYTES))
                receive(connection, SMALL_BYTES)
                times.append((time.perf_counter() - began) * 1000)
        return times

    def idle(self, count: int) -> list[socket.socket]:
        return [self.open(b"P", number=each % TENANTS) for each in range(count)]


def resident_mib(pid: int) -> float:
    return round(memory_kib(pid)["VmRSS"] / 1024, 1)


class Target(socketserver.BaseRequestHandler):
    """A Service. The first byte says what it does: send, take, or answer small requests."""

    def handle(self) -> None:
        connection: socket.socket = self.request
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        match connection.recv(1):
            case b"D":
                connection.sendall(bytes(BULK_BYTES))
            case b"W":
                for _ in range(10):
                    connection.sendall(bytes(WEIGHTS_BYTES // 10))
            case b"U":
                receive(connection, BULK_BYTES)
                connection.sendall(b"k")
            case b"P":
                try:
                    while True:
                        receive(connection, SMALL_BYTES)
                        connection.sendall(bytes(SMALL_BYTES))
                except (EOFError, OSError):
                    return


# ---- the cloud side, a process of its own -------------------------------------------------------


async def run(directory: Path, target_port: int) -> None:
    cloud = Cloud(directory, [A], target_port)
    for number in range(TENANTS):
        cloud.assign(number, A)
    async with cloud.world.running():
        tell(cloud.world.url.rstrip("/"))
        async for question in questions():
            match question:
                case ["synced"]:
                    tell(await async_eventually("a session", cloud.are_synced))
                case ["assign", seconds]:
                    tell(await assign_times_ms(cloud, float(seconds)))


async def assign_times_ms(cloud: Cloud, seconds: float) -> list[float]:
    times: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        times.append(await cloud.assignment_ms(0, A))
    return times


if __name__ == "__main__":
    allow_open_files(8192)
    uvloop.run(run(Path(sys.argv[1]), int(sys.argv[2])))
