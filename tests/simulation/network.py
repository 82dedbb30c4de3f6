"""WebSockets in memory, which lose connections, delay messages and never reorder one connection.

`Network.dial` takes the place of the LocalController's Endpoint.dial. The GlobalManager gets
the other end as the connection that its edge server would have authenticated. Messages of one
connection arrive in order; messages of two connections do not.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.frames import Close
from websockets.http11 import Response
from websockets.protocol import State

from common import wire
from tests.simulation.world import Process, VirtualTime

LATENCY_S: Final = 0.02
BUFFER: Final = 32  # messages that a dead connection takes before a send waits


class End:
    """One end of a connection: the part of a WebSocket that both drivers use."""

    subprotocol = wire.SUBPROTOCOL
    release = ""
    certificate_expires_at = math.inf

    def __init__(self, connection: "Connection", process: Process) -> None:
        self.transport = self.protocol = self
        self.process = process
        self.peer: End
        self.close_code: int | None = None
        self.close_reason = ""
        self.on_message: Callable[[bytes], None] = lambda _message: None  # is sent from here
        self.on_arrival: Callable[[bytes], None] = lambda _message: None  # arrives here
        self.reader: Callable[[bytes], bool] | None = None  # as of a SessionConnection
        self._connection = connection
        self._arrived: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._closed = asyncio.Event()
        self._last_at = 0.0  # when the newest message to the peer arrives
        self._is_mute = False  # nothing arrives of what is sent from here
        self._unsent = 0  # messages that never arrive
        self._sent_close = False

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    async def recv(self) -> bytes:
        while not self._arrived:
            if self.is_closed:
                raise self._error()
            self._wake.clear()
            await self._wake.wait()
        return self._arrived.popleft()

    async def send(self, message: bytes) -> None:
        if self.is_closed or self._sent_close:
            raise self._error()
        self.send_binary(message)
        if self._unsent > BUFFER:
            await self._closed.wait()
            raise self._error()

    def send_binary(self, message: bytes) -> None:
        if self._is_mute or self._connection.is_dead:
            self._unsent += 1
            return
        self.on_message(message)
        self._carry(lambda: self.peer._take(message))

    def send_data(self) -> None:
        """`send_binary` has sent everything."""

    def mute(self) -> None:
        """Nothing that is sent from here arrives any more, and nobody is told."""
        self._is_mute = True

    def get_write_buffer_size(self) -> int:
        return max(0, self._unsent - BUFFER)

    @property
    def state(self) -> State:
        return State.CLOSED if self.is_closed or self._sent_close else State.OPEN

    async def close(self, code: int = 1000, reason: str = "") -> None:
        if not self.is_closed and not self._sent_close:
            self._sent_close = True
            self._carry(lambda: self.peer._take_close(code, reason))
        await self._closed.wait()

    async def wait_closed(self) -> None:
        await self._closed.wait()

    def abort(self) -> None:
        if self.process.is_alive and not self.is_closed:
            self._carry(lambda: self.peer.lose())
            self.lose()

    def lose(self) -> None:
        """The connection ends here without a close frame."""
        self._end(1006, "")

    def _carry(self, arrive: Callable[[], None]) -> None:
        """Let the peer get something after all that was sent before."""
        if self._is_mute or self._connection.is_dead:
            return
        world = self.process.world
        at = max(self._last_at, world.now + world.delay_s(LATENCY_S))
        self._last_at = at
        world.after(at - world.now, lambda: None if self._connection.is_dead else arrive())

    def inject(self, message: bytes) -> None:
        """A message arrives that the driver of the peer has not sent."""
        if self.process.is_alive and not self.is_closed and not self._connection.is_dead:
            self._arrived.append(message)
            self._wake.set()

    def _take(self, message: bytes) -> None:
        if self.process.is_alive and not self.is_closed:
            self.on_arrival(message)
            if not self._is_read_at_once(message):
                self._arrived.append(message)
                self._wake.set()

    def _is_read_at_once(self, message: bytes) -> bool:
        if self.reader is None or self._arrived:
            return False
        with self.process.entered():
            return self.reader(message)

    def _take_close(self, code: int, reason: str) -> None:
        if not self.is_closed and self.process.is_alive:
            self._carry(lambda: self.peer._end(code, reason))
            self._end(code, reason)

    def _end(self, code: int, reason: str) -> None:
        if not self.is_closed:
            self.close_code, self.close_reason = code, reason
            self._closed.set()
            self._wake.set()

    def _error(self) -> ConnectionClosedError:
        received = None if self.close_code in (None, 1006) else Close(self.close_code, "")
        if received is not None:
            received = Close(received.code, self.close_reason)
        return ConnectionClosedError(received, None)


class Connection:
    """Two ends and what lies between them."""

    def __init__(self, node: str, edge: Process, cloud: Process) -> None:
        self.node = node
        self.is_dead = False  # takes everything and delivers nothing
        self.newest_report: wire.Report | None = None  # that the cloud's end has received
        self.edge_end, self.cloud_end = End(self, edge), End(self, cloud)
        self.edge_end.peer, self.cloud_end.peer = self.cloud_end, self.edge_end

    @property
    def is_open(self) -> bool:
        return not (self.edge_end.is_closed and self.cloud_end.is_closed)


class Listener(Protocol):
    """A GlobalManager, as the network sees it."""

    process: Process

    def refusal(self, node: str) -> int:
        """Status with which the edge server would refuse the node now; 0: it admits the node."""

    def accept(self, node: str, end: End) -> None: ...


class Network:
    """All connections between edges and cloud."""

    def __init__(self, world: VirtualTime) -> None:
        self.world = world
        self.listeners: dict[str, Listener] = {}
        self.connections: list[Connection] = []
        self.is_cut: dict[str, bool] = {}  # node -> whether it reaches no GlobalManager
        self.on_connection: Callable[[Connection], None] = lambda _connection: None

    async def dial(self, edge: Process, node: str, opening_s: float) -> End:
        """Raises: TimeoutError, ConnectionError, InvalidStatus"""
        await asyncio.sleep(self.world.delay_s(LATENCY_S))
        if self.is_cut.get(node):
            await asyncio.sleep(opening_s)
            raise TimeoutError
        names = sorted(name for name, each in self.listeners.items() if each.process.is_alive)
        if not names:
            raise ConnectionRefusedError("nobody listens")
        listener = self.listeners[self.world.random.choice(names)]
        refusal = listener.refusal(node)
        if refusal:
            raise InvalidStatus(Response(refusal, "", Headers({"Retry-After": "1"})))
        connection = Connection(node, edge, listener.process)
        self.connections = [each for each in self.connections if each.is_open]
        self.connections.append(connection)
        self.on_connection(connection)
        listener.accept(node, connection.cloud_end)
        return connection.edge_end

    def break_(self, connection: Connection) -> None:
        """Both ends learn that the connection is gone, each at its own time."""
        connection.is_dead = True
        for end in (connection.edge_end, connection.cloud_end):
            self.world.after(self.world.delay_s(LATENCY_S), end.lose)

    def process_died(self, process: Process, *, is_silent: bool) -> None:
        """The peers of a dead process learn of its end, unless its machine is off."""
        for connection in self.connections:
            for end in (connection.edge_end, connection.cloud_end):
                if end.process is process:
                    end._closed.set()
                    if is_silent:
                        connection.is_dead = True
                    else:
                        self.break_(connection)
