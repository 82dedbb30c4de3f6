"""A TCP proxy that cuts the network on command. The proxy runs in a thread of its own.

Demos and tests put the proxy between an edge node and the cloud.

After `cut("silently")` connections hang, as after a pulled cable: no byte and no error passes.
`cut("loudly")` resets all connections and refuses new connections. `mend()` ends the cut.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Literal, Self

from common.tasks import TaskGroup

Manner = Literal["silently", "loudly"]


class CuttingProxy:
    """Listens on 127.0.0.1:<port> and forwards each connection to `target()`, a host and a port."""

    def __init__(self, target: Callable[[], tuple[str, int]]) -> None:
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._passing = asyncio.Event()
        self._is_refusing = False
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0
        self.connections = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self, manner: Manner) -> None:
        self._call(self._cut(manner))

    def mend(self) -> None:
        self._call(self._mend())

    def _call(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    async def _start(self) -> None:
        self._passing.set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        pumps = asyncio.all_tasks() - {asyncio.current_task()}
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        await asyncio.sleep(0)  # the loop closes aborted sockets in its next iteration

    async def _cut(self, manner: Manner) -> None:
        self._passing.clear()
        if manner == "loudly":
            self._is_refusing = True
            for writer in list(self._writers):
                writer.transport.abort()

    async def _mend(self) -> None:
        self._is_refusing = False
        self._passing.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_refusing:
            writer.transport.abort()
            return
        self.connections += 1
        await self._passing.wait()
        try:
            far_reader, far_writer = await self._dial()
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, far_writer}
        # Python 3.11 prints a traceback when the task of a connection ends as cancelled.
        with contextlib.suppress(asyncio.CancelledError):
            async with TaskGroup() as tasks:
                tasks.create_task(self._pump(reader, far_writer), name="to the target")
                tasks.create_task(self._pump(far_reader, writer), name="from the target")
        self._writers -= {writer, far_writer}

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection to the target. Raises: OSError"""
        return await asyncio.open_connection(*self._target())

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self._passing.wait()
                writer.write(data)
                await writer.drain()
        writer.close()
