"""The edge side of a GlobalManager in a process of its own, on uvloop as in production and without
a Kubernetes API, and a worker that goes through the relay to a server of the measurement.

Called by the sections `relay` and `delivery`. Node number N has task number N, which is of tenant
number N.
"""

import asyncio
import base64
import contextlib
import hashlib
import json
import socket
import socketserver
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from common import wire
from edgeai.ids import NodeName, TaskKey, Uid, WorkerName
from globalmanager.contract import Assignment, ServicePort
from tests.globalmanager.edge.world import EdgeSide

HOST: Final = "127.0.0.1"


def secret(number: int) -> str:
    return str(number) * 64


def key_of(number: int) -> TaskKey:
    return TaskKey(f"jointinferenceservices.edgeai.io/tenant-{number}/bench")


# ---- from outside -------------------------------------------------------------------------------


class Questions:
    """The process: one line in, one line of JSON out, one question at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.pid, self._in, self._out = process.pid, process.stdin, process.stdout
        self._lock = asyncio.Lock()

    async def answer(self) -> Any:
        while not (line := await self._out.readline()).startswith(b"{"):
            assert line, "the process has ended"
        return json.loads(line)["answer"]

    async def ask(self, question: str) -> Any:
        async with self._lock:
            self._in.write(f"{question}\n".encode())
            return await self.answer()


@contextlib.asynccontextmanager
async def process(module: str, *arguments: object) -> AsyncIterator[Questions]:
    """A module of tests.bench that answers questions."""
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", f"tests.bench.{module}", *map(str, arguments)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**20,  # for each answer: the times of thousands of Assigns
    )
    try:
        yield Questions(started)
    finally:
        if started.stdin is not None:
            started.stdin.close()
        await started.wait()


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


def receive(connection: socket.socket, size: int) -> None:
    buffer = bytearray(2**18)
    while size > 0:
        received = connection.recv_into(buffer)
        if not received:
            raise EOFError(f"{size} bytes are missing")
        size -= received


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128


@contextlib.contextmanager
def serving(handler: type[socketserver.BaseRequestHandler]) -> Iterator[int]:
    """The port of a server in a thread of this process."""
    with _Server((HOST, 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


# ---- the process itself -------------------------------------------------------------------------


class Cloud:
    """Args: target_port: what the worker of each task may reach"""

    def __init__(self, directory: Path, nodes: Sequence[NodeName], target_port: int) -> None:
        self.world = EdgeSide(directory / "tokens", nodes=nodes)
        self.nodes, self.target_port = nodes, target_port

    def assign(self, number: int, node: NodeName, version: int = 1) -> None:
        grant = wire.WorkerGrant(hashlib.sha256(secret(number).encode()).hexdigest())
        namespace, key, uid = f"tenant-{number}", key_of(number), Uid(f"uid-{number}")
        body = wire.AssignmentBody(namespace, "bench", {}, {WorkerName("worker"): grant})
        targets = frozenset({ServicePort("cloud", self.target_port)})
        self.world.desired.assign(key, {node: Assignment(key, uid, version, body, targets=targets)})
        self.world.services[uid, namespace, "cloud"] = HOST

    def are_synced(self) -> bool:
        sessions = list(self.world.sessions.snapshot())
        return len(sessions) == len(self.nodes) and all(each.synced for each in sessions)

    async def assignment_ms(self, number: int, node: NodeName) -> float:
        """From a new version of a task to its acknowledgement, which follows the commit."""
        session, key = self.world.sessions._open[node], key_of(number)  # knows what the node holds
        version = session.task_versions[key].version + 1
        began = time.perf_counter()
        self.assign(number, node, version)
        while session.task_versions[key].version < version:  # noqa: ASYNC110 - from outside
            await asyncio.sleep(0.0005)
        return (time.perf_counter() - began) * 1000


async def questions() -> AsyncIterator[list[str]]:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while question := (await reader.readline()).decode().split():
        yield question


def tell(answer: Any) -> None:
    sys.stdout.write(json.dumps({"answer": answer}) + "\n")
    sys.stdout.flush()
