"""Many edge sessions in one process: the load of the measurements, never what is measured.

    python -m tests.bench.edges URL COUNT [CA CERTIFICATE_DIRECTORY]

Speaks the protocol with the LocalController's own session, without its ledger: what is assigned
is acknowledged at once. A line of stdin is a command, a line of stdout an answer, both JSON:

    {"report": N, "every": S, "of": [UID, …]}   N reports of each object's worker, S seconds apart

    {"open": COUNT}             all sessions are open and synced
    {"assigned": UID, "at": S}  an assignment came; seconds of the machine's monotonic clock
    {"sent": S, "acked": S}     when the last report of all was sent, and had taken effect
"""

import asyncio
import hashlib
import json
import ssl
import sys
import time
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException
from websockets.typing import Subprotocol

from common import wire
from common.session import Timing
from edgeai.ids import Uid, WorkerName
from localcontroller.ledger.outbox import Outgoing, ReportAcked
from localcontroller.link.edge_session import EdgeSession

OPENING: Final = 20  # sessions that are opened at the same time
RETRY_S: Final = 0.5
TIMING: Final = Timing(opening_s=20.0, beat_s=10.0, silence_s=30.0)


def node_name(number: int) -> str:
    return f"edge-{number:04}"


def token_of(node: str) -> str:
    return hashlib.sha256(f"bench {node}".encode()).hexdigest()


def say(**answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


class Edge:
    """One node's session."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.workers: dict[Uid, WorkerName] = {}
        self.is_synced = asyncio.Event()
        self.is_idle = asyncio.Event()  # every worker's newest report has taken effect
        self.is_idle.set()
        self._revision = 0
        self._owed: dict[Uid, int] = {}

    async def open(self, url: str, tls: ssl.SSLContext | None) -> asyncio.Task[None]:
        self._ws = await self._dial(url, tls)
        self._session = EdgeSession(
            now=time.monotonic(), timing=TIMING, instance=f"of {self.node}", tasks={}, epoch=0
        )
        await self._send()
        task = asyncio.create_task(self._run())
        await self.is_synced.wait()
        return task

    async def _dial(self, url: str, tls: ssl.SSLContext | None) -> ClientConnection:
        """As a LocalController does: whoever is not admitted now comes again."""
        while True:
            try:
                return await connect(
                    url,
                    ssl=tls,
                    subprotocols=[Subprotocol(wire.SUBPROTOCOL)],
                    additional_headers={"Authorization": f"Bearer {token_of(self.node)}"},
                    compression=None,
                    ping_interval=None,
                    open_timeout=60,
                )
            except (OSError, WebSocketException):
                await asyncio.sleep(RETRY_S)

    async def _run(self) -> None:
        beats = asyncio.create_task(self._tick())
        try:
            async for data in self._ws:
                assert isinstance(data, bytes)
                for event in self._session.receive(data, time.monotonic()):
                    self._handle(event)
                await self._send()
            sys.exit(f"session of {self.node} ended: {self._ws.close_code}")
        finally:
            beats.cancel()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(max(0.0, self._session.next_tick() - time.monotonic()))
            self._session.tick(time.monotonic())
            await self._send()

    def _handle(self, event: msgspec.Struct) -> None:
        match event:
            case wire.Assign():
                say(assigned=event.uid, at=time.monotonic())
                body: wire.AssignmentBody = wire.unpack(event.body, wire.AssignmentBody)
                self.workers[event.uid] = next(iter(body.workers))
                self._session.acknowledge(event.seq)
            case wire.Withdraw():
                self.workers.pop(event.uid, None)
                self._session.acknowledge(event.seq)
            case wire.Synced():
                self._session.acknowledge(event.seq)
                self.is_synced.set()
            case ReportAcked():
                if event.refusal:
                    sys.exit(f"report refused: {event.refusal}")
                if self._owed.get(event.report.uid) == event.report.revision:
                    del self._owed[event.report.uid]
                if not self._owed:
                    self.is_idle.set()

    async def report(self, uids: Set[str], *, seen: int) -> None:
        """One report of the worker of each object; `is_idle` once they have taken effect."""
        mine = [(uid, name) for uid, name in self.workers.items() if uid in uids]
        for uid, name in mine:
            self._revision += 1
            body = wire.ReportBody(phase="inference", task_info={"seen": seen, "uploaded": seen})
            self._owed[uid] = self._revision
            self._session.report(Outgoing(uid, name, 1, self._revision, wire.pack(body)))
        if mine:
            self.is_idle.clear()
            await self._send()

    async def _send(self) -> None:
        for data in self._session.data_to_send(time.monotonic()):
            await self._ws.send(data)


def batches(edges: list[Edge]) -> Iterator[list[Edge]]:
    for start in range(0, len(edges), OPENING):
        yield edges[start : start + OPENING]


def client_context(ca: Path, directory: Path, node: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca)
    context.load_cert_chain(directory / f"{node}.crt", directory / f"{node}.key")
    return context


async def report_all(edges: list[Edge], command: dict[str, Any]) -> None:
    uids, begin_s = frozenset(command["of"]), time.monotonic()
    for n in range(command["report"]):
        await asyncio.sleep(max(0.0, begin_s + n * command["every"] - time.monotonic()))
        for edge in edges:
            await edge.report(uids, seen=n + 1)
    sent_s = time.monotonic()
    for edge in edges:
        await edge.is_idle.wait()
    say(sent=sent_s, acked=time.monotonic())


async def serve(url: str, count: int, ca: Path | None, certificates: Path) -> None:
    edges = [Edge(node_name(number)) for number in range(count)]
    running = []
    for some in batches(edges):
        contexts = [client_context(ca, certificates, e.node) if ca else None for e in some]
        opened = (edge.open(url, tls) for edge, tls in zip(some, contexts, strict=True))
        running += await asyncio.gather(*opened)
    say(open=len(running))
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        await report_all(edges, json.loads(line))
    for task in running:
        task.cancel()


if __name__ == "__main__":
    url, count, *files = sys.argv[1:]
    ca, certificates = map(Path, files) if files else (None, Path())
    uvloop.run(serve(url, int(count), ca, certificates))
