"""A TCP line that is slow, cuts what passes into small pieces, stalls one way, or is reset."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, Literal

from edgeai.demo.cutting_proxy import CuttingProxy

Way = Literal["up", "down"]
READ_BYTES: Final = 65536


class BadLine(CuttingProxy):
    """Up is to the target.

    Args:
        bytes_per_s: of each way of each connection; 0: as fast as can be
        piece_bytes: how much is sent at a time
    """

    def __init__(
        self,
        target: Callable[[], tuple[str, int]],
        *,
        bytes_per_s: float = 0.0,
        piece_bytes: int = READ_BYTES,
    ) -> None:
        super().__init__(target)
        self.bytes_per_s = bytes_per_s
        self._piece_bytes = piece_bytes
        self._far: set[asyncio.StreamWriter] = set()
        self._stalled: dict[Way, bytes] = {}  # way -> the mark of what is withheld; b"": everything
        self.withheld_bytes = 0
        self.pieces = 0

    def stall(self, way: Way, *, mark: bytes = b"") -> None:
        """From now on this way is silent, and nobody is told; connections stay.

        Args: mark: only pieces that contain these bytes are withheld
        """
        self._stalled[way] = mark

    def mend(self) -> None:
        """What was withheld is lost with its connections."""
        self.reset()
        self._stalled.clear()
        super().mend()

    def reset(self) -> None:
        """Every connection, with RST."""
        self._call(self._reset())

    async def _reset(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    def _is_withheld(self, way: Way, data: bytes) -> bool:
        mark = self._stalled.get(way)
        return mark is not None and mark in data

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await super()._dial()
        self._far.add(writer)
        return reader, writer

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        way: Way = "up" if writer in self._far else "down"
        with contextlib.suppress(OSError):
            while data := await reader.read(self._piece_bytes):
                if self._is_withheld(way, data):
                    self.withheld_bytes += len(data)
                    continue
                self.pieces += 1
                writer.write(data)
                await writer.drain()
                if self.bytes_per_s:
                    await asyncio.sleep(len(data) / self.bytes_per_s)
        self._far.discard(writer)
        writer.close()
