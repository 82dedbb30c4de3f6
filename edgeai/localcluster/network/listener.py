"""Listens on one address and port, and forwards each connection to one of several backends."""

import asyncio
import contextlib
import itertools
import socket
from collections.abc import Iterable

from common.tasks import TaskGroup
from edgeai.localcluster.network.isolation import NodeNetwork

BUFFER_BYTES = 64 << 10
CONNECT_TIMEOUT_S = 5.0
FLUSH_TIMEOUT_S = 30.0

Address = tuple[str, int]


class Listener:
    def __init__(self, address: str) -> None:
        self.address = address
        self._backends: tuple[Address, ...] = ()
        self._turn = itertools.count()
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(
        cls,
        address: str,
        port: int,
        networks: Iterable[NodeNetwork] = (),
        *,
        is_bridge: bool = False,
    ) -> "Listener":
        """Listen on an address and a port: here, and in the networks of isolated nodes.

        Args:
            is_bridge: listen in the networks only, and forward to the same address and port of
                this machine
        Raises: OSError
        """
        listener = cls(address)
        try:
            if is_bridge:
                listener.set_backends(((address, port),))
            else:
                await listener._add(socket.create_server((address, port)))
            for network in networks:
                await listener._add(network.listen(address, port))
        except BaseException:  # an error, or the cancellation of the caller
            await listener.close()
            raise
        return listener

    async def _add(self, listening: socket.socket) -> None:
        server = await asyncio.start_server(
            self._accept, sock=listening, limit=BUFFER_BYTES, start_serving=False
        )
        self._servers.append(server)
        await server.start_serving()

    def set_backends(self, backends: tuple[Address, ...]) -> None:
        """Set the pods that get new connections. Open connections keep their pod."""
        self._backends = backends

    async def close(self) -> None:
        await asyncio.sleep(0)  # asyncio drops a connection that it has just accepted, unclosed
        for server in self._servers:
            server.close()
        for connection in self._connections:
            connection.cancel()
        if self._connections:
            await asyncio.wait(self._connections)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task  # asyncio runs this callback in one
        self._connections.add(task)
        try:
            await self._forward(reader, writer)
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream = await self._connect()
        if upstream is None:
            return
        up_reader, up_writer = upstream
        try:
            async with TaskGroup() as tasks:
                tasks.create_task(_pump(reader, up_writer), name="to pod")
                tasks.create_task(_pump(up_reader, writer), name="from pod")
            await asyncio.gather(_flushed(writer), _flushed(up_writer))
        except* OSError:
            pass  # one side reset its connection; `finally` and _accept reset the other side
        finally:
            up_writer.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """A connection to the next ready pod that accepts connections; None if no pod does."""
        backends = self._backends
        first = next(self._turn)
        for index in range(len(backends)):
            host, port = backends[(first + index) % len(backends)]
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    return await asyncio.open_connection(host, port, limit=BUFFER_BYTES)
        return None


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy the bytes of one direction until end of file. Then half-close the receiver's side."""
    writer.transport.set_write_buffer_limits(high=BUFFER_BYTES)
    while data := await reader.read(BUFFER_BYTES):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def _flushed(writer: asyncio.StreamWriter) -> None:
    """Close a connection. Wait at most FLUSH_TIMEOUT_S seconds until its buffer is sent."""
    writer.close()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(FLUSH_TIMEOUT_S):
            await writer.wait_closed()
