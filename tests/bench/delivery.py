"""A Model comes to eight nodes through the relay: how fast, how exact, and what it costs an Assign.

    python -m tests.bench.delivery [MIB]        MiB for each node; without it 512

Each node has a line of LINE_BYTES_PER_S. The LocalControllers are real processes; each is killed
twice while the content comes, and its line is cut once. The edge side of the GlobalManager is
another process, and the lines are a third one; the server of the content is a thread of this one.
First a worker of each node takes bytes through the same relay and line: this is the rate of the
relay. The Assign goes to a ninth node, to which the content comes, too, without a fault.
"""

import asyncio
import contextlib
import hashlib
import json
import math
import random
import re
import signal
import socket
import socketserver
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import uvloop

from common import wire
from common.ratelimit import TokenBucket
from edgeai.ids import NodeName, TaskKey, Uid, WorkerName
from edgeai.open_files import allow_open_files
from globalmanager.contract import Assignment, ServicePort
from tests.bench import cloud_side
from tests.bench.cloud_side import (
    HOST,
    Questions,
    Worker,
    process,
    questions,
    receive,
    serving,
    tell,
)
from tests.bench.spread import spread
from tests.globalmanager.edge.world import token
from tests.localcontroller.test_process import Controller, running
from tests.support.waiting import async_eventually

NODES: Final = tuple(NodeName(f"node-{number}") for number in range(9))
ASSIGNED: Final = NODES[8]
DEFAULT_MIB: Final = 512
RAW_PART: Final = 8  # of the content, to measure the relay
LINE_BYTES_PER_S: Final = 8 * 2**20
CUT_S: Final = 1.0
ALONE_S: Final = 4.0
FAULTS: Final = (("cut", 0.2), ("kill", 0.4), ("kill", 0.7))
"""Of each node, and the part of the content that it then has."""
KEY: Final = TaskKey("models.edgeai.io/tenant-0/big")


def measure(mib: int = DEFAULT_MIB) -> dict[str, Any]:
    """Figures of docs/performance.md, "Models through the relay"."""
    allow_open_files(8192)
    data = random.Random(1).randbytes(2**20) * mib
    Handler.data = data
    with tempfile.TemporaryDirectory() as directory, serving(Handler) as port:
        return asyncio.run(_measure(Path(directory), port, data))


async def _measure(directory: Path, port: int, data: bytes) -> dict[str, Any]:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(len(NODES)))
    async with process("delivery", "cloud", directory, port) as cloud:
        url = await cloud.answer()
        async with process("delivery", "lines", url.rpartition(":")[2]) as lines:
            nodes = [
                KilledNode(directory, name, f"ws://{HOST}:{at}", port)
                for name, at in zip(NODES, await lines.answer(), strict=True)
            ]
            async with asyncio.TaskGroup() as tasks:
                for node in nodes:
                    tasks.create_task(node.run())
                figures = await _figures(cloud, lines, nodes, data)
                for node in nodes:
                    node.end()
            return figures


async def _figures(
    cloud: Questions, lines: Questions, nodes: list["KilledNode"], data: bytes
) -> dict[str, Any]:
    receivers = nodes[:-1]
    for node in nodes:
        await node.until_listening()
    await cloud.ask("synced")
    before = await relay_mb_s(receivers, len(data) // RAW_PART)
    alone = await cloud.ask(f"assign {ALONE_S}")
    digest = hashlib.sha256(data).hexdigest()
    Handler.sent = 0
    began = time.monotonic()
    await cloud.ask(f"deliver {digest}")
    await cloud.ask("measure")
    await asyncio.gather(*(node.receive(lines, digest, len(data)) for node in receivers))
    seconds = time.monotonic() - began
    beside = await cloud.ask("measured")
    await nodes[-1].until_here(digest)
    # Other load of the machine comes and goes: the better of two moments counts.
    raw = max(before, await relay_mb_s(receivers, len(data) // RAW_PART))
    rate = len(data) * len(receivers) / 1e6 / seconds
    return {
        "mib_of_each_node": len(data) // 2**20,
        "relay_mb_s": round(raw, 1),
        "delivery_mb_s": round(rate, 1),
        "of_the_relay": round(rate / raw, 2),
        "bytes_again_percent": round(100 * (Handler.sent / len(data) / len(nodes) - 1), 1),
        "exact": [node.digest() == digest for node in nodes].count(True),
        "assign_alone_ms": spread(alone),
        "assign_beside_ms": spread(beside),
    }


async def relay_mb_s(nodes: list["KilledNode"], size: int) -> float:
    """What a worker of each node gets, all at the same time."""
    began = time.monotonic()
    await asyncio.gather(*(node.take(size) for node in nodes))
    return size * len(nodes) / 1e6 / (time.monotonic() - began)


class KilledNode:
    """A LocalController that starts again when it was killed."""

    def __init__(self, directory: Path, name: NodeName, url: str, server_port: int) -> None:
        self.name, self._server_port = name, server_port
        self._state_dir = directory / name
        (directory / f"token-{name}").write_text(token(name))
        flags = ("--node-name", name, "--global-manager", url, "--edge-plaintext", "allow")
        self._flags = (*flags, "--token-file", str(directory / f"token-{name}"))
        self._controller: Controller | None = None
        self._is_over = False

    async def run(self) -> None:
        while not self._is_over:
            async with running(self._state_dir, *self._flags) as self._controller:
                await self._controller.process.wait()

    def end(self) -> None:
        self._is_over = True
        self.kill()

    def kill(self) -> None:
        assert self._controller is not None
        self._controller.process.send_signal(signal.SIGKILL)

    async def until_listening(self) -> int:
        await async_eventually("a process", lambda: self._controller)
        assert self._controller is not None
        return await self._controller.until_listening("worker")

    async def take(self, size: int) -> None:
        """A worker takes so many bytes of the content, as they come."""
        worker = Worker(await self.until_listening(), self._server_port)
        await asyncio.to_thread(take, worker, NODES.index(self.name), size)

    async def receive(self, lines: Questions, digest: str, size: int) -> None:
        """Wait until the content is here, past the faults."""
        for fault, part in FAULTS:
            while self._part_bytes() < part * size:  # noqa: ASYNC110 - measured from outside
                await asyncio.sleep(0.05)
            if fault == "kill":
                self.kill()
            else:
                await lines.ask(f"cut {NODES.index(self.name)}")
        await self.until_here(digest)

    async def until_here(self, digest: str) -> None:
        while not self._file(digest).exists():  # noqa: ASYNC110 - measured from outside
            await asyncio.sleep(0.05)

    def digest(self) -> str:
        (file,) = (each for each in self._content() if not each.suffix)
        with file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()

    def _file(self, digest: str) -> Path:
        return self._state_dir / "content" / digest

    def _content(self) -> list[Path]:
        return list((self._state_dir / "content").glob("*"))

    def _part_bytes(self) -> int:
        with contextlib.suppress(FileNotFoundError):
            return sum(file.stat().st_size for file in self._content() if file.suffix != ".model")
        return 0


def take(worker: Worker, number: int, size: int) -> None:
    with worker.open(b"GET /raw HTTP/1.1\r\n\r\n", number=number) as connection:
        receive(connection, size)


class Handler(socketserver.BaseRequestHandler):
    """Sends the content from the first byte that is asked for."""

    data = b""
    sent = 0
    lock = threading.Lock()

    def handle(self) -> None:
        connection: socket.socket = self.request
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += connection.recv(4096)
        match = re.search(rb"(?i)range: bytes=(\d+)-", head)
        start, whole = int(match[1]) if match else 0, len(self.data)
        lines = ["HTTP/1.1 206 Partial Content" if start else "HTTP/1.1 200 OK"]
        lines += [f"Content-Length: {whole - start}", 'ETag: "v1"', "Connection: close"]
        lines += [f"Content-Range: bytes {start}-{whole - 1}/{whole}"] if start else []
        with contextlib.suppress(OSError):
            if b"/raw" not in head:
                connection.sendall("\r\n".join([*lines, "", ""]).encode())
            for at in range(start, whole, 2**20):
                connection.sendall(memoryview(self.data)[at : at + 2**20])
                with self.lock:
                    Handler.sent += min(2**20, whole - at)


# ---- the cloud side, a process of its own -------------------------------------------------------


class Cloud(cloud_side.Cloud):
    def __init__(self, directory: Path, target_port: int) -> None:
        super().__init__(directory, NODES, target_port)
        self._assigning: asyncio.Task[list[float]] | None = None
        self._is_measuring = False
        for number, node in enumerate(NODES):
            self.assign(number, node)

    def _deliver(self, digest: str) -> None:
        uid = Uid("uid-model")
        spec = {"url": f"http://cloud.tenant-0.svc:{self.target_port}/big.onnx", "sha256": digest}
        named = frozenset({ServicePort("cloud", self.target_port, is_child=False)})
        workers = {node: {WorkerName(f"big-{node}"): wire.THE_NODE_ITSELF} for node in NODES}
        bodies = {
            node: wire.AssignmentBody("tenant-0", "big", spec, grants)
            for node, grants in workers.items()
        }
        self.world.statuses.by_uid.setdefault(uid, {})
        self.world.services[uid, "tenant-0", "cloud"] = HOST
        self.world.desired.assign(
            KEY,
            {n: Assignment(KEY, uid, 1, body, targets=named) for n, body in bodies.items()},
        )

    async def answer(self, question: list[str]) -> Any:
        match question:
            case ["synced"]:
                return await async_eventually("sessions", self.are_synced)
            case ["assign", seconds]:
                return await self._assign_times_ms(float(seconds))
            case ["measure"]:
                self._assigning = asyncio.create_task(self._assign_times_ms(1e9))
            case ["measured"]:
                assert self._assigning is not None
                self._is_measuring = False
                return await self._assigning
            case ["deliver", digest]:
                self._deliver(digest)
        return None

    async def _assign_times_ms(self, seconds: float) -> list[float]:
        times: list[float] = []
        end, self._is_measuring = time.monotonic() + seconds, True
        while time.monotonic() < end and self._is_measuring:
            times.append(await self.assignment_ms(NODES.index(ASSIGNED), ASSIGNED))
            await asyncio.sleep(0.01)
        return times


async def run_cloud(directory: Path, port: int) -> None:
    cloud = Cloud(directory, port)
    async with cloud.world.running():
        tell(cloud.world.url.rstrip("/"))
        async for question in questions():
            tell(await cloud.answer(question))


# ---- the lines, a process of their own ----------------------------------------------------------


class Line:
    """Carries the connections of one node, all together at LINE_BYTES_PER_S to the node."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: set[asyncio.StreamWriter] = set()
        self._is_cut = False
        burst = LINE_BYTES_PER_S // 20
        self._rate = TokenBucket(qps=LINE_BYTES_PER_S, burst=burst, max_wait_s=math.inf)

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        up_reader, up_writer = await asyncio.open_connection(HOST, self._port)
        ends = {writer, up_writer}
        self._writers |= ends
        with contextlib.suppress(asyncio.CancelledError):  # the process ends
            await asyncio.gather(
                self._pump(reader, up_writer, None), self._pump(up_reader, writer, self._rate)
            )
        self._writers -= ends

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rate: TokenBucket | None
    ) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            while data := await reader.read(32 * 1024):
                if rate is not None:
                    await rate.acquire(len(data))
                writer.write(data)
                await writer.drain()
            writer.close()

    async def cut(self) -> None:
        self._is_cut = True
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(CUT_S)
        self._is_cut = False


async def run_lines(port: int) -> None:
    lines = [Line(port) for _ in NODES]
    servers = [await asyncio.start_server(line.carry, HOST, 0) for line in lines]
    tell([server.sockets[0].getsockname()[1] for server in servers])
    cuts = []
    async for _, number in questions():
        cuts.append(asyncio.create_task(lines[int(number)].cut()))
        tell(None)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["cloud", directory, port]:
            allow_open_files(8192)
            uvloop.run(run_cloud(Path(directory), int(port)))
        case ["lines", port]:
            uvloop.run(run_lines(int(port)))
        case sizes:
            print(json.dumps(measure(*map(int, sizes)), indent=1))
