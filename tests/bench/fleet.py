"""Thousands of nodes in one process: the load of measurements, never what is measured.

    python -m tests.bench.fleet HOST PORT COUNT [CA CERTIFICATE_DIRECTORY]

Each node has the LocalController's own session and delays between two dials, and a WebSocket that
does only what a session needs, so that the load leaves the machine to what is measured. Without a
ledger: what is assigned is acknowledged at once. The nodes have addresses of their own on loopback,
NODES_OF_ADDRESS to one.

A line of stdin is a command, a line of stdout an answer, both JSON:

    {"synced": COUNT}           answers {"synced": COUNT, "at": S} once so many nodes are synced;
                                S is in seconds of the machine's monotonic clock
    {"reporting": S, "every": E, "of": COUNT, "ending": N, "evenly": BOOL}
                                COUNT nodes with a task report its worker every E seconds, S seconds
                                long, ever greater values, one after the other evenly over the time
                                or all at once; N of the workers end on the way. Answers
                                {"first": VALUE, "reported": {UID: [S, …]}, "ended": {UID: S},
                                "late": S}: the first value, when each value was reported, and how
                                far this process was behind

    {"assigned": UID, "at": S}  comes for each new assignment
"""

import asyncio
import heapq
import itertools
import json
import socket
import ssl
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

from common import wire
from common.session import Closed, Timing
from edgeai.backoff import Backoff
from edgeai.ids import TaskKey, Uid, WorkerName
from localcontroller.ledger.outbox import Outgoing, ReportAcked
from localcontroller.link.edge_session import EdgeSession
from localcontroller.link.link import default_delays
from tests.bench.samples import node_name, token_of

NODES_OF_ADDRESS: Final = 50
ADDRESSES_OF_NETWORK: Final = 250  # of 127.1.0.0/24, 127.1.1.0/24, …
DIALS: Final = 512  # dials under way at the same time
TICK_S: Final = 0.02
_FINAL_BINARY: Final = 0x82  # first byte of a message in one frame, RFC 6455 §5.2
_CLOSE: Final = 0x88
_MASKED: Final = 0x80
_NO_MASK: Final = bytes(4)  # a key of zeros leaves the payload as it is


def say(**answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def address_of(number: int) -> str:
    network, host = divmod(number // NODES_OF_ADDRESS, ADDRESSES_OF_NETWORK)
    return f"127.1.{network}.{host + 1}"


class FleetNode(asyncio.Protocol):
    """One node: its connection, if it has one, and its session, if that is open."""

    __slots__ = (
        "_buffer",
        "_fleet",
        "_is_upgraded",
        "_retry_after_s",
        "_revision",
        "_transport",
        "backoff",
        "held",
        "is_synced",
        "number",
        "session",
        "tick_at",
        "workers",
    )

    def __init__(self, number: int, fleet: "Fleet") -> None:
        self.number = number
        self.backoff: Backoff | None = None  # while it fails
        self.held: dict[TaskKey, wire.TaskVersion] = {}
        self.workers: dict[Uid, WorkerName] = {}
        self.session: EdgeSession | None = None
        self.tick_at = 0.0  # of the session
        self._revision = 0
        self.is_synced = False
        self._fleet = fleet
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._is_upgraded = False
        self._retry_after_s = 0.0

    @property
    def is_connected(self) -> bool:
        return self._transport is not None

    # ---- connection ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._buffer, self._is_upgraded, self._retry_after_s = b"", False, 0.0
        self._write(
            b"GET / HTTP/1.1\r\nHost: globalmanager\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: %s\r\n"
            b"Authorization: Bearer %s\r\n\r\n"
            % (wire.SUBPROTOCOL.encode(), token_of(node_name(self.number)).encode())
        )

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._is_upgraded:
            head, end, rest = self._buffer.partition(b"\r\n\r\n")
            if not end:
                return
            self._buffer = rest
            self._on_answer(head)
        if self.session is not None:
            for message in self._messages():
                self._on_message(message)
            self.send()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = self.session = None
        if self.is_synced:
            self.is_synced = False
            self._fleet.synced -= 1
        self._fleet.dial_later(self, at_least_s=self._retry_after_s)

    def _on_answer(self, head: bytes) -> None:
        status = head.split(b" ", 2)[1]
        if status == b"101":
            self._is_upgraded = True
            now = self._fleet.now()
            self.session = EdgeSession(
                now=now,
                timing=Timing(),
                instance=f"of {node_name(self.number)}",
                tasks=self.held,
                epoch=0,
            )
            self._fleet.tick_later(self)
            return
        if status != b"503":
            sys.exit(f"{node_name(self.number)} was answered {head.decode()!r}")
        after = next(v for v in head.lower().split(b"\r\n") if v.startswith(b"retry-after:"))
        self._retry_after_s = float(after.partition(b":")[2])
        self.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # ---- messages ----

    def _messages(self) -> Iterator[bytes]:
        while len(self._buffer) >= 2:
            first, size, start = self._buffer[0], self._buffer[1], 2
            if size >= 126:
                start = 4 if size == 126 else 10
                size = int.from_bytes(self._buffer[2:start], "big")
            if len(self._buffer) < start + size:
                return
            message, self._buffer = (
                self._buffer[start : start + size],
                self._buffer[start + size :],
            )
            if first == _FINAL_BINARY:
                yield message
            elif first == _CLOSE:
                self.close()
            else:
                sys.exit(f"a frame that begins with {first:#x}")

    def _on_message(self, message: bytes) -> None:
        assert self.session is not None
        for event in self.session.receive(message, self._fleet.now()):
            self._on_event(self.session, event)

    def _on_event(self, session: EdgeSession, event: msgspec.Struct) -> None:
        match event:
            case wire.Assign():
                if event.key not in self.held:
                    say(assigned=event.uid, at=self._fleet.now())
                self.held[event.key] = wire.TaskVersion(event.uid, event.version)
                body: wire.AssignmentBody = wire.unpack(event.body, wire.AssignmentBody)
                if body.workers:
                    self.workers[event.uid] = next(iter(body.workers))
                session.acknowledge(event.seq)
            case wire.Withdraw():
                self.held.pop(event.key, None)
                session.acknowledge(event.seq)
            case wire.Synced():
                self.held = {k: v for k, v in self.held.items() if k in set(event.keys)}
                session.acknowledge(event.seq)
                self.backoff = None
                self.is_synced = True
                self._fleet.count_synced()
            case ReportAcked(refusal=refusal) if refusal:
                sys.exit(f"report refused: {refusal}")
            case Closed():
                self.close()

    def report(self, value: int, status: wire.WorkerStatus) -> None:
        """The worker of the first task reports this value."""
        if self.session is None:
            sys.exit(f"{node_name(self.number)} has no session")
        uid, worker = next(iter(self.workers.items()))
        self._revision += 1
        body = wire.ReportBody(
            phase="inference", status=status, task_info={"seen": value, "uploaded": value}
        )
        self.session.report(Outgoing(uid, worker, 1, self._revision, wire.pack(body)))
        self.send()
        if self.session.next_tick() < self.tick_at:
            self._fleet.tick_later(self)

    def send(self) -> None:
        if self.session is None:
            return
        for data in self.session.data_to_send(self._fleet.now()):
            size = len(data)
            if size < 126:
                head = bytes((_FINAL_BINARY, _MASKED | size))
            elif size < 2**16:
                head = bytes((_FINAL_BINARY, _MASKED | 126)) + size.to_bytes(2, "big")
            else:
                head = bytes((_FINAL_BINARY, _MASKED | 127)) + size.to_bytes(8, "big")
            self._write(head + _NO_MASK + data)

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


class Fleet:
    """All nodes, with one timer for all of them."""

    def __init__(self, host: str, port: int, count: int, tls: "Certificates | None") -> None:
        self._to = host, port
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._order = itertools.count()  # so that the heaps compare no nodes
        self._ticks: list[tuple[float, int, FleetNode, EdgeSession]] = []
        self._dials: list[tuple[float, int, FleetNode]] = []
        self._dialling: set[asyncio.Task[None]] = set()
        self._wanted: list[int] = []  # numbers of synced nodes that were asked for
        self._value = 0  # the next value to report
        self.synced = 0
        self._nodes = [FleetNode(number, self) for number in range(count)]
        for node in self._nodes:
            self.dial_at(node, 0.0)

    now = staticmethod(time.monotonic)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            now = self.now()
            while self._ticks and self._ticks[0][0] <= now:
                at, _, node, session = heapq.heappop(self._ticks)
                if node.tick_at == at:  # else an earlier tick took the place of this one
                    self._tick(node, session, now)
            while self._dials and self._dials[0][0] <= now and len(self._dialling) < DIALS:
                task = asyncio.create_task(self._dial(heapq.heappop(self._dials)[2]))
                self._dialling.add(task)
                task.add_done_callback(self._dialling.discard)

    def tick_later(self, node: FleetNode) -> None:
        assert node.session is not None
        node.tick_at, session = node.session.next_tick(), node.session
        heapq.heappush(self._ticks, (node.tick_at, next(self._order), node, session))

    def dial_later(self, node: FleetNode, *, at_least_s: float) -> None:
        """Dial again when a LocalController would."""
        node.backoff = node.backoff or default_delays(min_s=1.0, max_s=60.0).usual
        self.dial_at(node, self.now() + node.backoff.next_s(at_least_s=at_least_s))

    def dial_at(self, node: FleetNode, at: float) -> None:
        heapq.heappush(self._dials, (at, next(self._order), node))

    def count_synced(self) -> None:
        self.synced += 1
        for count in [count for count in self._wanted if self.synced >= count]:
            self._wanted.remove(count)
            say(synced=count, at=self.now())

    def obey(self, command: dict[str, Any]) -> None:
        match command:
            case {"synced": int(count)}:
                if self.synced >= count:
                    say(synced=count, at=self.now())
                else:
                    self._wanted.append(count)
            case {
                "reporting": seconds,
                "every": every_s,
                "of": count,
                "ending": ending,
                "evenly": is_even,
            }:
                nodes = [node for node in self._nodes if node.workers][:count]
                rounds = round(seconds / every_s)
                spacing_s = every_s / len(nodes) if is_even else 0.0
                self._reporting = asyncio.create_task(
                    self._report(nodes, rounds, every_s=every_s, spacing_s=spacing_s, n=ending)
                )

    async def _report(
        self, nodes: list[FleetNode], rounds: int, *, every_s: float, spacing_s: float, n: int
    ) -> None:
        """All nodes in turn, `spacing_s` apart; `n` workers end in the middle half of the time."""
        ends_in = {nodes[i]: rounds // 4 + i * rounds // (2 * n) for i in range(n)}
        uids = {node: next(iter(node.workers)) for node in nodes}
        ended: dict[Uid, float] = {}
        reported: dict[Uid, list[float]] = {}
        began, late_s, first = self.now(), 0.0, self._value
        for value in range(rounds):
            for position, node in enumerate(nodes):
                due = began + value * every_s + position * spacing_s
                if due > self.now():
                    await asyncio.sleep(due - self.now())
                now, uid = self.now(), uids[node]
                late_s = max(late_s, now - due)
                if (last := ends_in.get(node, rounds)) == value:
                    ended[uid] = now
                    node.report(first + value, "completed")
                    del node.workers[uid]
                elif value < last:
                    reported.setdefault(uid, []).append(now)
                    node.report(first + value, "running")
        self._value += rounds
        say(first=first, reported=reported, ended=ended, late=late_s)

    def _tick(self, node: FleetNode, session: EdgeSession, now: float) -> None:
        if node.session is not session:
            return  # that session is over
        if session.next_tick() <= now:
            for event in session.tick(now):
                if isinstance(event, Closed):
                    node.close()
            node.send()
        self.tick_later(node)

    async def _dial(self, node: FleetNode) -> None:
        tcp = socket.socket()
        tcp.setblocking(False)
        tcp.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT of ip(7)
        tcp.bind((address_of(node.number), 0))
        tls = None if self._tls is None else self._tls.context_of(node_name(node.number))
        name = None if tls is None else self._to[0]
        try:
            async with asyncio.timeout(10.0):  # a LocalController's session_opening_s
                await self._loop.sock_connect(tcp, self._to)
                await self._loop.create_connection(
                    lambda: node, sock=tcp, ssl=tls, server_hostname=name
                )
        except OSError:  # also TimeoutError and ssl.SSLError
            tcp.close()
            if not node.is_connected:
                self.dial_later(node, at_least_s=0.0)


class Certificates:
    """Args: ca, directory: as tests.support.certificates.Authority makes them"""

    def __init__(self, ca: Path, directory: Path) -> None:
        self._ca, self._directory = ca, directory

    def context_of(self, node: str) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self._ca)
        context.load_cert_chain(self._directory / f"{node}.crt", self._directory / f"{node}.key")
        return context


async def serve(host: str, port: int, count: int, tls: Certificates | None) -> None:
    fleet = Fleet(host, port, count, tls)
    running = asyncio.create_task(fleet.run())
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        fleet.obey(json.loads(line))
    running.cancel()


if __name__ == "__main__":
    host, port, count, *files = sys.argv[1:]
    certificates = Certificates(*map(Path, files)) if files else None
    uvloop.run(serve(host, int(port), int(count), certificates))
