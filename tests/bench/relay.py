"""The relay of one node: throughput, delay, memory, and what bulk costs an assignment.

The LocalController is a real process. The edge side of the GlobalManager is another one, on uvloop
as in production, without a Kubernetes API: `python -m tests.bench.relay DIRECTORY TARGET_PORT`. The
target and the workers are threads of this process, so the figures are those of all four sides on
one machine.
"""

import asyncio
import base64
import hashlib
import json
import socket
import socketserver
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import uvloop

from common import wire
from edgeai.ids import TaskKey, Uid, WorkerName
from edgeai.open_files import allow_open_files
from globalmanager.contract import Assignment, ServicePort
from tests.bench.spread import spread
from tests.globalmanager.edge.world import A, EdgeSide, token
from tests.localcontroller.test_process import Controller, running
from tests.support.processes import memory_kib
from tests.support.waiting import async_eventually

HOST: Final = "127.0.0.1"
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
    with tempfile.TemporaryDirectory() as directory, target() as port:
        return asyncio.run(_measure(Path(directory), port))


async def _measure(directory: Path, port: int) -> dict[str, Any]:
    cloud = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.bench.relay", str(directory), str(port)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        side = CloudSide(cloud)
        url = await side.told()
        (directory / "token").write_text(token(A))
        flags = ("--node-name", A, "--global-manager", url, "--edge-plaintext", "allow")
        files = ("--token-file", str(directory / "token"))
        async with running(directory / "state", *flags, *files) as edge:
            await side.ask("synced")
            return await _figures(side, edge, Worker(await edge.until_listening("worker"), port))
    finally:
        if cloud.stdin is not None:
            cloud.stdin.close()
        await cloud.wait()


async def _figures(side: "CloudSide", edge: Controller, worker: "Worker") -> dict[str, Any]:
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


class CloudSide:
    """The process of the edge side of the GlobalManager: one line in, one line of JSON out."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.pid, self._in, self._out = process.pid, process.stdin, process.stdout

    async def told(self) -> Any:
        while not (line := await self._out.readline()).startswith(b"{"):
            assert line, "the cloud side has ended"
        return json.loads(line)["answer"]

    async def ask(self, question: str) -> Any:
        self._in.write(f"{question}\n".encode())
        return await self.told()


class Worker:
    """A worker of the node, which goes through its proxy."""

    def __init__(self, proxy_port: int, target_port: int) -> None:
        self._proxy_port, self._target_port = proxy_port, target_port

    def open(self, kind: bytes, *, number: int = 0, is_direct: bool = False) -> socket.socket:
        port = self._target_port if is_direct else self._proxy_port
        connection = socket.create_connection((HOST, port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not is_direct:
            pair = base64.b64encode(f"worker:{secret(number)}".encode()).decode()
            at = f"cloud.tenant-{number}:{self._target_port}"
            head = (
                f"CONNECT {at} HTTP/1.1\r\nHost: {at}\r\nProxy-Authorization: Basic {pair}\r\n\r\n"
            )
            connection.sendall(head.encode())
            answer = connection.recv(4096)
            assert answer.startswith(b"HTTP/1.1 200"), answer
        connection.sendall(kind)
        return connection

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


def receive(connection: socket.socket, size: int) -> None:
    buffer = bytearray(2**18)
    while size > 0:
        received = connection.recv_into(buffer)
        if not received:
            raise EOFError(f"{size} bytes are missing")
        size -= received


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


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128


@contextmanager
def target() -> Iterator[int]:
    with Server((HOST, 0), Target) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


# ---- the cloud side, a process of its own -------------------------------------------------------


def secret(number: int) -> str:
    return str(number) * 64


def key(number: int) -> TaskKey:
    return TaskKey(f"jointinferenceservices.edgeai.io/tenant-{number}/bench")


async def cloud_side(directory: Path, target_port: int) -> None:
    world = EdgeSide(directory / "tokens")
    for number in range(TENANTS):
        assign(world, number, 1, target_port)
    questions = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(questions), sys.stdin
    )
    async with world.running():
        tell(world.url.rstrip("/"))
        while question := (await questions.readline()).decode().split():
            match question:
                case ["synced"]:
                    tell(await async_eventually("a session", lambda: is_synced(world)))
                case ["assign", seconds]:
                    tell(await assign_times_ms(world, float(seconds), target_port))


def is_synced(world: EdgeSide) -> bool:
    return any(each.synced for each in world.sessions.snapshot())


def assign(world: EdgeSide, number: int, version: int, target_port: int) -> None:
    grant = wire.WorkerGrant(hashlib.sha256(secret(number).encode()).hexdigest())
    namespace = f"tenant-{number}"
    body = wire.AssignmentBody(namespace, "bench", {}, {WorkerName("worker"): grant})
    uid = Uid(f"uid-{number}")
    named = frozenset({ServicePort("cloud", target_port)})
    task = Assignment(key(number), uid, version, body, targets=named)
    world.desired.assign(key(number), {A: task})
    world.services[uid, namespace, "cloud"] = HOST


async def assign_times_ms(world: EdgeSide, seconds: float, target_port: int) -> list[float]:
    """From a new version of a task to its acknowledgement, which follows the commit at the edge."""
    times: list[float] = []
    end = time.monotonic() + seconds
    session = world.sessions._open[A]  # the driver knows what the node holds
    while time.monotonic() < end:
        version = session.task_versions[key(0)].version + 1
        began = time.perf_counter()
        assign(world, 0, version, target_port)
        while session.task_versions[key(0)].version < version:  # noqa: ASYNC110 - measured from outside
            await asyncio.sleep(0.0005)
        times.append((time.perf_counter() - began) * 1000)
    return times


def tell(answer: Any) -> None:
    sys.stdout.write(json.dumps({"answer": answer}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    allow_open_files(8192)
    uvloop.run(cloud_side(Path(sys.argv[1]), int(sys.argv[2])))
