"""A GlobalManager's edge side on a real socket, and peers that play LocalControllers.

The status of objects is a dict that does what the engine's writer does, failures included.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from ssl import SSLContext
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from common import wire
from common.session import Timing
from edgeai.ids import NodeName, TaskKey, Uid, WorkerName
from globalmanager.contract import Assignment, ServicePort, WorkerReport
from globalmanager.edge.door.admission import AdmissionLimits
from globalmanager.edge.door.server import EdgeServer
from globalmanager.edge.door.tls import ServerTls
from globalmanager.edge.identity.handshake import Authenticator
from globalmanager.edge.identity.node_tokens import TokenAuthenticator
from globalmanager.edge.metrics import EdgeMetrics
from globalmanager.edge.sessions.desired_sets import DesiredSets
from globalmanager.edge.sessions.driver import DriverTiming
from globalmanager.edge.sessions.inbox import (
    Done,
    Inbox,
    InboxLimits,
    Outcome,
    Refused,
    ReportWriter,
)
from globalmanager.edge.sessions.quota import NodeLimits
from globalmanager.edge.sessions.registry import Sessions
from globalmanager.edge.sessions.relay import RelayLimits, Relays
from globalmanager.ha.contacts import Contacts, ContactSubscriber
from localcontroller.ledger.outbox import Outgoing, ReportAcked
from localcontroller.link.edge_session import EdgeSession
from tests.support.tasks import beside

NODES = [NodeName(f"node-{n}") for n in range(3)]
A, B, C = NODES
SLOW = Timing(opening_s=10, beat_s=15, silence_s=40)
QUICK_RETRY = InboxLimits(writers=2, backoff_base_s=0.001, backoff_max_s=0.002)


def key(n: int = 0) -> TaskKey:
    return TaskKey(f"jointinferenceservices.edgeai.io/default/task-{n}")


def uid(n: int = 0) -> Uid:
    return Uid(f"uid-{n}")


def assignment(
    n: int = 0,
    *,
    version: int = 1,
    workers: tuple[str, ...] = ("w",),
    spec: dict[str, Any] | None = None,
    incarnation: str = "",
) -> Assignment:
    grants = {WorkerName(name): wire.WorkerGrant("0" * 64) for name in workers}
    body = wire.AssignmentBody(
        namespace="default", name=f"task-{n}", spec=spec or {}, workers=grants
    )
    return Assignment(key(n), Uid(uid(n) + incarnation), version, body)


def report_body(status: wire.WorkerStatus = "running", **task_info: float) -> bytes:
    return wire.pack(wire.ReportBody(phase="inference", status=status, task_info=task_info))


@contextlib.asynccontextmanager
async def serving(inbox: Inbox) -> AsyncIterator[None]:
    """Run the inbox, which must outlive the block."""
    async with beside(inbox.run(), "inbox") as task:
        yield
        assert not task.done(), "the inbox has ended"


class Statuses:
    """A ReportWriter: .status of each object, in memory."""

    def __init__(self) -> None:
        self.by_uid: dict[Uid, dict[str, Any]] = {}
        self.slices: dict[WorkerName, str] = {}
        self.writes: list[tuple[Uid, WorkerName]] = []
        self.calls: list[tuple[Uid, int]] = []  # with the number of reports
        self.reports: list[WorkerReport] = []  # those that were to be written
        self.fail: list[Outcome | Exception] = []  # answers of the next calls
        self.open = asyncio.Event()  # while it is not set, writes hang
        self.open.set()
        self.hanging: dict[Uid, asyncio.Event] = {}  # writes about these objects hang until then
        self.hung = 0

    async def write(self, key: TaskKey, uid: Uid, reports: Sequence[WorkerReport]) -> list[Outcome]:
        self.calls.append((uid, len(reports)))
        await self.open.wait()
        self.reports.extend(reports)
        if (released := self.hanging.get(uid)) is not None:
            self.hung += 1
            await released.wait()
        if self.fail:
            answer = self.fail.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return [answer] * len(reports)
        return [self._store(uid, report) for report in reports]

    def _store(self, uid: Uid, report: WorkerReport) -> Outcome:
        workers = self.by_uid.get(uid)
        if workers is None:
            return Refused("gone")
        state = msgspec.to_builtins(report.body)
        if workers.get(report.worker) != state:
            workers[report.worker] = state
            self.writes.append((uid, report.worker))
        return Done()

    def slice_of(self, key: TaskKey, worker: WorkerName) -> str:
        return self.slices.get(worker, "")

    def ledgers_of(
        self, node: NodeName, key: TaskKey, workers: Iterable[WorkerName]
    ) -> Iterable[str]:
        return ()


class EdgeSide(ContactSubscriber):
    """Everything of the edge side, wired as app does."""

    def __init__(
        self,
        token_file: Path,
        *,
        nodes: Sequence[NodeName] = NODES,
        timing: Timing = SLOW,
        send_s: float = 10.0,
        frames_per_s: float = 500.0,
        limits: AdmissionLimits | None = None,
        inbox: InboxLimits = QUICK_RETRY,
        authenticator: Authenticator | None = None,
        tls: ServerTls | None = None,
        relay_limits: RelayLimits | None = None,
        review_s: float = 60.0,
        writer: ReportWriter | None = None,
        node_limits: NodeLimits | None = None,
    ) -> None:
        token_file.write_text(
            "".join(
                f"{node} {hashlib.sha256(token(node).encode()).hexdigest()}\n" for node in nodes
            )
        )
        self.registry = CollectorRegistry()
        self.metrics = EdgeMetrics(self.registry)
        self.statuses = Statuses()
        self.desired = DesiredSets(node_limits or NodeLimits())
        self.contact_changes: list[NodeName] = []
        self.duplicates: list[NodeName] = []
        self.contacts = Contacts()
        self.contacts.subscribe(self)
        self.is_ready = True
        self.may_relay = True
        self.epoch = 7
        self.inbox = Inbox(
            desired=self.desired,
            writer=writer or self.statuses,
            metrics=self.metrics,
            limits=inbox,
        )
        self.sessions = Sessions(
            desired=self.desired,
            inbox=self.inbox,
            elector=self,
            contacts=self.contacts,
            metrics=self.metrics,
            timing=DriverTiming(
                session=timing, send_s=send_s, close_s=0.5, frames_per_s=frames_per_s
            ),
        )
        self.services: dict[tuple[Uid, str, str], str] = {}  # (uid, namespace, name) -> cluster IP
        self.relays = Relays(
            desired=self.desired,
            services=self,
            cluster_domain="",
            metrics=self.metrics,
            timing=timing,
            limits=relay_limits or RelayLimits(),
        )
        self.server = EdgeServer(
            "127.0.0.1",
            0,
            sessions=self.sessions,
            relays=self.relays,
            authenticator=authenticator or TokenAuthenticator(token_file),
            replica=self,
            metrics=self.metrics,
            limits=limits or AdmissionLimits(),
            tls=tls,
            review_s=review_s,
        )
        self._scheme = "ws" if tls is None else "wss"

    def contact_changed(self, node: NodeName) -> None:
        self.contact_changes.append(node)

    def clash(self, node: NodeName) -> None:
        self.duplicates.append(node)

    def cluster_ip(self, uid: Uid, namespace: str, port: ServicePort) -> str:
        return self.services.get((uid, namespace, port.service), "")

    def can_open_sessions(self) -> bool:
        return self.is_ready

    def can_serve_edges(self) -> bool:
        return self.may_relay

    def assign(self, n: int, *nodes: NodeName, **fields: Any) -> None:
        """Give task `n` to `nodes`; its object exists from then on."""
        task = assignment(n, **fields)
        self.statuses.by_uid.setdefault(task.uid, {})
        self.desired.assign(task.key, dict.fromkeys(nodes, task))

    def sample(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0

    @property
    def url(self) -> str:
        return "{}://{}:{}/".format(self._scheme, *self.server.address)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["EdgeSide"]:
        async with serving(self.inbox), self.server:
            yield self

    @contextlib.asynccontextmanager
    async def socket(self, node: NodeName = A, **options: Any) -> AsyncIterator[ClientConnection]:
        """An authenticated WebSocket on which nothing was said yet."""
        async with dial(self.url, token(node), **options) as websocket:
            yield websocket

    @contextlib.asynccontextmanager
    async def peer(
        self,
        node: NodeName = A,
        *,
        ssl: SSLContext | None = None,
        local_addr: tuple[str, int] | None = None,
        agent: str | None = None,
        **fields: Any,
    ) -> AsyncIterator["Peer"]:
        options = {"ssl": ssl, "local_addr": local_addr, "user_agent_header": agent}
        async with self.socket(node, **options) as websocket:
            peer = Peer(websocket, **fields)
            async with beside(peer.run(), f"peer {node}"):
                yield peer


def token(node: NodeName) -> str:
    return f"secret-of-{node}"


def dial(url: str, bearer: str, *, subprotocol: str = wire.SUBPROTOCOL, **options: Any) -> connect:
    return connect(
        url,
        subprotocols=[Subprotocol(subprotocol)],
        additional_headers={"Authorization": f"Bearer {bearer}"},
        compression=None,
        close_timeout=0.2,
        ping_interval=None,
        **options,
    )


class Peer:
    """A LocalController with its ledger in memory; it may withhold its acknowledgements."""

    def __init__(
        self,
        websocket: ClientConnection,
        *,
        held: Mapping[TaskKey, wire.TaskVersion] | None = None,
        instance: str = "ledger-1",
        acknowledges: bool = True,
        timing: Timing = SLOW,
    ) -> None:
        self.websocket = websocket
        self.held = dict(held or {})
        self.bodies: dict[TaskKey, bytes] = {}
        self.frames: list[wire.Assign | wire.Withdraw | wire.Synced] = []
        self.acked: list[ReportAcked] = []
        self.welcomed: wire.Welcome | None = None
        self.acknowledges = acknowledges
        self.close_code: int | None = None
        self._loop = asyncio.get_running_loop()
        self.session = EdgeSession(
            now=self._loop.time(), timing=timing, instance=instance, tasks=self.held, epoch=0
        )

    @property
    def is_synced(self) -> bool:
        return any(isinstance(frame, wire.Synced) for frame in self.frames)

    async def run(self) -> None:
        try:
            await self.flush()
            while True:
                data = await self.websocket.recv()
                assert isinstance(data, bytes)
                for event in self.session.receive(data, self._loop.time()):
                    self._on_event(event)
                await self.flush()
        except ConnectionClosed:
            self.close_code = self.websocket.close_code

    async def flush(self) -> None:
        for data in self.session.data_to_send(self._loop.time()):
            await self.websocket.send(data)

    async def report(
        self, n: int = 0, worker: str = "w", body: bytes | None = None, attempt: int = 1
    ) -> None:
        out = Outgoing(
            uid(n), WorkerName(worker), attempt, 1, report_body() if body is None else body
        )
        self.session.report(out)
        await self.flush()

    async def acknowledge_all(self) -> None:
        """Acknowledge what was withheld, and everything from now on."""
        self.acknowledges = True
        for frame in self.frames:
            self.session.acknowledge(frame.seq)
        await self.flush()

    def _on_event(self, event: msgspec.Struct) -> None:
        match event:
            case wire.Welcome():
                self.welcomed = event
            case ReportAcked():
                self.acked.append(event)
            case wire.Assign() | wire.Withdraw() | wire.Synced():
                self._apply(event)

    def _apply(self, frame: wire.Assign | wire.Withdraw | wire.Synced) -> None:
        self.frames.append(frame)
        match frame:
            case wire.Assign():
                self.held[frame.key] = wire.TaskVersion(frame.uid, frame.version)
                self.bodies[frame.key] = frame.body
            case wire.Withdraw():
                self.held.pop(frame.key, None)
            case wire.Synced():
                for extra in self.held.keys() - set(frame.keys):
                    del self.held[extra]
        if self.acknowledges:
            self.session.acknowledge(frame.seq)
