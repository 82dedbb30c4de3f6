"""The HTTP forward proxy on the port of the worker API: the workers' way to the cloud.

A worker names itself and its secret as user and password of the proxy. A hook of the node does so
with a secret of its own, for the time of a download. The proxy opens a stream of the relay for each
request. The GlobalManager decides whether the worker's assignment names the
target. CONNECT carries any protocol. A request with an absolute URL is passed on with the path
alone, and its connection carries nothing after the request.
"""

import asyncio
import contextlib
import hashlib
import ipaddress
import json
import secrets
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from http import HTTPStatus
from typing import Any, Final, Protocol, cast

from common.relay.carrier import Carrier, StreamRefused
from common.relay.frames import MAX_DATA_BYTES, Refusal, Target
from common.relay.stream_socket import StreamSocket
from edgeai.errors import Overloaded
from edgeai.ids import TaskKey, Uid, WorkerName
from localcontroller.http_server import Place
from localcontroller.ledger.ledger import Ledger
from localcontroller.ledger.tables import Grant
from localcontroller.metrics import Metrics
from localcontroller.workers.proxy_request import (
    MAX_HEAD_BYTES,
    MalformedRequest,
    ProxyRequest,
    is_for_proxy,
    parse,
)
from localcontroller.workers.rates import RequestRates, Shares, WorkerApiRates

RATES: Final = RequestRates(
    # Clients without CONNECT ask for each of their requests.
    of_task_per_s=500.0,
    of_task_burst=1000,
    of_namespace_per_s=1000.0,
    of_namespace_burst=2000,
)
HEAD_S: Final = 10.0
LINGER_S: Final = 1.0
BUSY_RETRY_S: Final = 5
MAX_STREAMS: Final = 1024

_STATUS: Final = {
    Refusal.FORBIDDEN: 403,
    Refusal.BUSY: 503,
    Refusal.UNREACHABLE: 502,
    Refusal.BROKEN: 502,
    Refusal.TIMEOUT: 504,
}
_ESTABLISHED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


class Relay(Protocol):
    async def carrier(self) -> Carrier:
        """The open relay. Opens the relay first if there is none. Raises: StreamRefused"""


class RelayPass:
    """The right of the node itself to use the proxy. Args: grant: what it may reach"""

    def __init__(self, grant: Grant, worker: WorkerName, address: tuple[str, int]) -> None:
        self.grant = grant
        self.problem = ""  # why there is no stream for the last request
        self.host, port = address
        self.secret = secrets.token_hex(32)
        host = f"[{self.host}]" if ":" in self.host else self.host
        self.proxy_url = f"http://{worker}:{self.secret}@{host}:{port}"


class Proxy:
    """Args: head_s: limit for the arrival of a whole head"""

    def __init__(
        self,
        ledger: Ledger,
        relay: Relay,
        metrics: Metrics,
        *,
        max_streams: int = MAX_STREAMS,
        head_s: float = HEAD_S,
        rates: RequestRates = RATES,
    ) -> None:
        self._ledger = ledger
        self._relay = relay
        self._metrics = metrics
        self.head_s = head_s
        self._rates = WorkerApiRates(
            rates, limit=max_streams, delays=metrics.worker_requests_delayed
        )
        self._buffer = memoryview(bytearray(MAX_DATA_BYTES))
        self._streams = Shares(max_streams)
        self._tasks: set[asyncio.Task[None]] = set()
        self._passes: dict[str, RelayPass] = {}  # by the sha256 of the secret
        self._address = ("", 0)
        metrics.relay_streams.set_function(lambda: self._streams.used)

    def divert(self, first: bytes, place: Place) -> asyncio.Protocol | None:
        """The protocol of a connection whose first bytes begin a request to the proxy, or None."""
        return ProxyConnection(self, place) if is_for_proxy(first) else None

    def listens(self, host: str, port: int) -> None:
        """The port is open at this address of the machine."""
        address = ipaddress.ip_address(host)
        loopback = "127.0.0.1" if address.version == 4 else "::1"
        self._address = loopback if address.is_unspecified else host, port

    @contextlib.contextmanager
    def passing(self, key: TaskKey, uid: Uid, worker: WorkerName) -> Iterator[RelayPass]:
        """Let the node itself reach what the assignment of its own worker names."""
        pass_ = RelayPass(Grant(key, uid, frozenset({worker})), worker, self._address)
        digest = _digest(pass_.secret)
        self._passes[digest] = pass_
        try:
            yield pass_
        finally:
            del self._passes[digest]

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="proxy request")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def turn_away(self, connection: "ProxyConnection", status: int, reason: str) -> None:
        """Refuse what no worker of this node sends, at the rate of strangers."""
        try:
            await self._rates.wait_as_stranger(connection.address)
        except Overloaded:
            connection.abort()
        else:
            self._refuse(connection, status, reason)

    async def serve(
        self, connection: "ProxyConnection", request: ProxyRequest, rest: bytes
    ) -> None:
        """Open a stream for the request, or refuse the request."""
        digest = _digest(request.password)
        pass_ = self._passes.get(digest)
        grant = pass_.grant if pass_ else self._ledger.grant(digest)
        if grant is None or request.user not in grant.workers:
            reason = "the proxy accepts only workers of this node, with their secret"
            await self.turn_away(connection, 407, reason)
            return
        try:
            await self._rates.wait(grant)
            await self._open(connection, request, rest, grant)
        except StreamRefused as error:
            if pass_:
                pass_.problem = error.reason
            self._refuse(connection, _STATUS[error.refusal], error.reason)
        except Overloaded as error:
            self._refuse(connection, 503, str(error))
        else:
            self._metrics.proxied.labels(outcome="opened").inc()

    def _refuse(self, connection: "ProxyConnection", status: int, reason: str) -> None:
        self._metrics.proxied.labels(outcome=str(status)).inc()
        connection.refuse(status, reason)

    async def _open(
        self, connection: "ProxyConnection", request: ProxyRequest, rest: bytes, grant: Grant
    ) -> None:
        """Raises: StreamRefused"""
        try:
            self._streams.take(grant)
        except Overloaded as error:
            reason = "too many connections through this proxy"
            raise StreamRefused(Refusal.BUSY, reason) from error
        connection.leave_place()
        leave = partial(self._streams.give_back, grant)
        try:
            carrier = await self._relay.carrier()
            target = Target(request.host, request.port)
            stream = await carrier.open(grant.uid, WorkerName(request.user), target)
        except BaseException:
            leave()
            raise
        socket = connection.hand_over(request, self._buffer, leave)
        if socket is None:
            leave()
            carrier.refuse(stream, Refusal.BROKEN, "the worker has gone")
            return
        carrier.join(stream, socket, first=request.forwarded + rest)


class ProxyConnection(asyncio.Protocol):
    """The connection of a worker until its stream is open."""

    def __init__(self, proxy: Proxy, place: Place) -> None:
        self._proxy = proxy
        self._place = place
        self._transport: asyncio.Transport | None = None
        self._head = bytearray()
        self._is_refused = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._set_timer(self._proxy.head_s, self.abort)

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._is_refused:
            return  # the rest of what is refused
        self._head += data
        head, end, rest = bytes(self._head).partition(b"\r\n\r\n")
        if len(head) > MAX_HEAD_BYTES:
            self._set_timer(None)
            self._is_refused = True
            reason = f"the head is longer than {MAX_HEAD_BYTES} bytes"
            self._proxy.start(self._proxy.turn_away(self, 431, reason))
        elif end:
            self._set_timer(None)
            self._head.clear()
            self._transport.pause_reading()
            try:
                request = parse(head + end)
                if request.framing is not None:
                    rest = request.framing(rest)
            except MalformedRequest as error:
                self._proxy.start(self._proxy.turn_away(self, 400, str(error)))
            else:
                self._proxy.start(self._proxy.serve(self, request, rest))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._set_timer(None)
        self._place.leave()

    @property
    def address(self) -> str:
        peer = self._transport.get_extra_info("peername") if self._transport else None
        return str(peer[0]) if peer else ""

    def leave_place(self) -> None:
        """Leave the bounded connections of the worker API: streams have a bound of their own."""
        self._place.leave()

    def hand_over(
        self, request: ProxyRequest, buffer: memoryview, leave: Callable[[], None]
    ) -> StreamSocket | None:
        """Give the connection to its stream. Returns: None: the worker has gone

        Args: buffer, leave: see StreamSocket, on_lost
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            return None
        if request.is_connect:
            transport.write(_ESTABLISHED)
        self._transport = None

        socket = StreamSocket(buffer, on_lost=leave, framing=request.framing)
        socket.take_over(transport)
        transport.set_protocol(socket)
        return socket

    def refuse(self, status: int, reason: str) -> None:
        """Answer with an error, and let the worker read it although its body is not read."""
        if self._transport is None:
            return
        body = json.dumps({"status": status, "message": reason}).encode()
        lines = [
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
            "Content-Type: application/json; charset=utf-8",
            f"Content-Length: {len(body)}",
            "Connection: close",
        ]
        if status == 407:
            lines.append('Proxy-Authenticate: Basic realm="edgeai"')
        if status == 503:
            lines.append(f"Retry-After: {BUSY_RETRY_S}")
        self._transport.write("\r\n".join([*lines, "", ""]).encode() + body)
        self._is_refused = True
        self._set_timer(LINGER_S, self.abort)
        with contextlib.suppress(OSError, RuntimeError):
            self._transport.write_eof()
        self._transport.resume_reading()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _set_timer(self, seconds: float | None, then: Callable[[], None] | None = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if seconds is not None and then is not None:
            self._timer = asyncio.get_running_loop().call_later(seconds, then)
