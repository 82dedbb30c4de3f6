"""Relays: carries connections of edge workers to Services of the cluster.

A node has one relay at a replica. The assignments of the node decide what a stream may reach: the
worker must belong to the node now, and the target must be a Service that the worker's assignment
names. The Service must be a child of the worker's job, or select pods of the job's namespace. Its
cluster IP is dialled, so no name of a tenant is resolved.
"""

import asyncio
import functools
import os
from collections import Counter
from typing import Final, NamedTuple, Protocol

import msgspec
from websockets.asyncio.server import ServerConnection

from common import wire
from common.clock import loop_time
from common.logs import bind, get_logger
from common.ratelimit import TokenBucket
from common.relay.carrier import Carrier
from common.relay.frames import MAX_DATA_BYTES, Open, Refusal, Target
from common.relay.session import Budget, RelaySession
from common.relay.stream_socket import StreamSocket
from common.session import Timing
from edgeai.ids import NodeName, TaskKey, Uid, parse_task_key
from globalmanager.contract import ServicePort
from globalmanager.edge.metrics import EdgeMetrics
from globalmanager.edge.sessions.cloud_session import Desired
from globalmanager.edge.sessions.desired_sets import Binding, DesiredSets

log = get_logger(__name__)

DEFAULT_DOMAIN: Final = "cluster.local"


class Services(Protocol):
    """The Services that assignments name."""

    def cluster_ip(self, uid: Uid, namespace: str, port: ServicePort) -> str:
        """The cluster IP of a Service that the job `uid` may reach; "": there is none."""


class RelayLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one replica carries at most."""

    streams: int = 8192
    streams_per_namespace: int = 2048
    streams_per_node: int = 1024
    windows_bytes: int = 64 * 1024 * 1024
    """Bytes of all windows beyond the first 16 KiB of each stream (common.relay.session)."""
    dial_s: float = 5.0
    """Longest time until a Service has taken a connection."""
    frames_per_s: float = 2000.0
    """Frames of one node that are read per second. Data has 64 KiB in a frame."""
    frames_burst: int = 4000


class RelayInfo(msgspec.Struct, frozen=True):
    """The open relay of a node. Bytes are those of this connection, with its frames."""

    streams: int
    sent_bytes: int
    received_bytes: int


class Relays:
    """Args:
    services: finds the address of a job's Service
    cluster_domain: of the names of Services; "" for the default of Kubernetes, "cluster.local"
    """

    def __init__(
        self,
        *,
        desired: DesiredSets,
        services: Services,
        cluster_domain: str,
        metrics: EdgeMetrics,
        timing: Timing = Timing(),  # noqa: B008 - frozen
        limits: RelayLimits = RelayLimits(),  # noqa: B008 - frozen
    ) -> None:
        self._desired = desired
        self._services = services
        self._suffixes = ("", ".svc", f".svc.{cluster_domain or DEFAULT_DOMAIN}")
        self._metrics = metrics
        self._timing = timing
        self._limits = limits
        self._budget = Budget(limits.windows_bytes)
        self._buffer = memoryview(bytearray(MAX_DATA_BYTES))
        self._carriers: dict[NodeName, Carrier] = {}
        self._streams: Counter[str] = Counter()  # namespace -> streams
        # The streams of each task that a node holds. They end when the node must drop the task.
        self._streams_of: dict[tuple[NodeName, TaskKey], set[tuple[Carrier, int]]] = {}
        self._dials: set[asyncio.Task[None]] = set()
        metrics.relays.set_function(lambda: len(self._carriers))
        metrics.relay_streams.set_function(self._streams.total)
        desired.subscribe(self._on_desired)

    async def serve(self, node: NodeName, websocket: ServerConnection) -> None:
        """Carry the streams of one authenticated connection of `node` until it ends."""
        session = RelaySession(
            now=loop_time(),
            timing=self._timing,
            opens=False,
            budget=self._budget,
            max_streams=self._limits.streams_per_node,
        )
        frames = TokenBucket(
            qps=self._limits.frames_per_s, burst=self._limits.frames_burst, max_wait_s=float("inf")
        )
        carrier = Carrier(
            websocket,
            session,
            on_wanted=functools.partial(self._on_wanted, node),
            frames=frames,
        )
        self._cut(node, wire.Close.REPLACED, "a newer relay of this node took over")
        self._carriers[node] = carrier
        with bind(node=node):
            log.info("relay open")
            try:
                await carrier.run()
            finally:
                if self._carriers.get(node) is carrier:
                    del self._carriers[node]
                log.info("relay over")

    def info(self, node: NodeName) -> RelayInfo | None:
        """None: the node has no open relay at this replica."""
        carrier = self._carriers.get(node)
        if carrier is None:
            return None
        return RelayInfo(len(carrier), carrier.sent_bytes, carrier.received_bytes)

    def revoke(self, node: NodeName, websocket: ServerConnection) -> None:
        """End the relay on this connection, because its credential is no longer good."""
        carrier = self._carriers.get(node)
        if carrier is not None and carrier.is_on(websocket):
            self._cut(node, wire.Close.REVOKED, "the credential is no longer good")

    def _cut(self, node: NodeName, code: int, reason: str) -> None:
        carrier = self._carriers.pop(node, None)
        if carrier is not None:
            carrier.close(code, reason)

    def _on_desired(self, node: NodeName, key: TaskKey, task: Desired | None) -> None:
        if task is not None:
            return
        for carrier, stream in list(self._streams_of.get((node, key), ())):
            carrier.refuse(stream, Refusal.FORBIDDEN, "the node no longer has the task")

    # ---- streams --------------------------------------------------------------------------------

    def _on_wanted(self, node: NodeName, carrier: Carrier, request: Open) -> None:
        binding = self._desired.binding_of(node, request.uid)
        port = None if binding is None else self._port(binding, request)
        if binding is None or port is None:
            reason = f"no assignment of worker {request.worker} names {request.target}"
            self._refuse(carrier, request.stream, Refusal.FORBIDDEN, reason)
            return
        namespace = parse_task_key(binding.key).namespace
        limits, streams = self._limits, self._streams
        is_full = streams.total() >= limits.streams
        if is_full or streams[namespace] >= limits.streams_per_namespace:
            reason = f"too many streams of namespace {namespace}"
            self._refuse(carrier, request.stream, Refusal.BUSY, reason)
            return
        address = self._services.cluster_ip(request.uid, namespace, port)
        if not address:
            lack = "no cluster IP" if port.is_child else "no cluster IP, or no selector"
            reason = f"Service {port.service} of namespace {namespace} has {lack}"
            self._refuse(carrier, request.stream, Refusal.UNREACHABLE, reason)
            return
        place = _Place(node, binding.key, carrier, request.stream)
        self._enter(place)
        dial = self._dial(place, request.target, address)
        task = asyncio.create_task(dial, name=f"relay dial {node}")
        self._dials.add(task)
        task.add_done_callback(self._dials.discard)

    def _port(self, binding: Binding, request: Open) -> ServicePort | None:
        """The Service of the assignment that the target names."""
        if request.worker not in binding.workers:
            return None
        namespace = parse_task_key(binding.key).namespace
        for port in binding.targets:
            long_names = (f"{port.service}.{namespace}{suffix}" for suffix in self._suffixes)
            names = {port.service, *long_names}
            if request.target.port == port.port and request.target.host.rstrip(".") in names:
                return port
        return None

    async def _dial(self, place: "_Place", target: Target, address: str) -> None:
        """Connect a stream to its Service. The stream keeps its place until the connection ends."""
        connection = StreamSocket(self._buffer, on_lost=functools.partial(self._leave, place))
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._limits.dial_s):
                await loop.create_connection(lambda: connection, address, target.port)
        except OSError as error:  # TimeoutError is an OSError
            self._leave(place)
            self._refuse(place.carrier, place.stream, *_refusal_of(target, error))
            return
        self._metrics.relay_opened.labels("opened").inc()
        place.carrier.accept(place.stream, connection)

    def _enter(self, place: "_Place") -> None:
        self._streams[place.namespace] += 1
        streams = self._streams_of.setdefault((place.node, place.key), set())
        streams.add((place.carrier, place.stream))

    def _leave(self, place: "_Place") -> None:
        self._streams[place.namespace] -= 1
        if not self._streams[place.namespace]:
            del self._streams[place.namespace]
        streams = self._streams_of[place.node, place.key]
        streams.discard((place.carrier, place.stream))
        if not streams:
            del self._streams_of[place.node, place.key]

    def _refuse(self, carrier: Carrier, stream: int, refusal: Refusal, reason: str) -> None:
        self._metrics.relay_opened.labels(str(refusal)).inc()
        carrier.refuse(stream, refusal, reason)


class _Place(NamedTuple):
    """A stream that counts."""

    node: NodeName
    key: TaskKey
    carrier: Carrier
    stream: int

    @property
    def namespace(self) -> str:
        return parse_task_key(self.key).namespace


def _refusal_of(target: Target, error: OSError) -> tuple[Refusal, str]:
    if isinstance(error, TimeoutError):
        return Refusal.TIMEOUT, f"{target} takes no connection in time"
    why = os.strerror(error.errno) if error.errno else "cannot be reached"
    return Refusal.UNREACHABLE, f"{target}: {why}"
