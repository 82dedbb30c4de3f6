"""Joins one TCP connection to one stream of a Carrier.

The LocalController makes a StreamSocket for each connection of a worker to its proxy, and the
GlobalManager one for each connection to a Service. It is read only while its stream has credit.
"""

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from common.relay.frames import Refusal
from edgeai.errors import EdgeAIError

if TYPE_CHECKING:
    from common.relay.carrier import Carrier


_NO_LINGER: Final = struct.pack("ii", 1, 0)  # close() sends a reset


class StreamSocket(asyncio.BufferedProtocol):
    """The TCP connection of one stream. The owner calls `attach` when the stream is connected.

    Args:
        buffer: takes the bytes of one read; all connections of one event loop may share it
        on_lost: called once when the connection has ended
        framing: gets the bytes that were read, and returns those to be carried. The others are
            dropped. Where it raises an EdgeAIError, the stream ends. None: all bytes are carried
    """

    def __init__(
        self,
        buffer: memoryview,
        on_lost: Callable[[], None] = lambda: None,
        *,
        framing: Callable[[bytes], bytes] | None = None,
    ) -> None:
        self._buffer = buffer
        self._on_lost = on_lost
        self._framing = framing
        self._transport: asyncio.Transport | None = None
        self._carrier: Carrier | None = None
        self._stream = 0
        self._unsent = b""  # bytes that were read before the stream had credit for them
        self._undrained = 0  # bytes of the peer that the connection has not taken yet
        self._is_paused = False
        self._is_ended = False  # this side has sent its last byte
        self._written_bytes = 0  # bytes of the peer that the connection got
        self._passed_on = 0  # of these, the bytes that had left this process at the last look
        self._passed_on_at = self._active_at = 0.0

    # ---- called by the Carrier and its owner ----------------------------------------------------

    def attach(self, carrier: "Carrier", stream: int, *, first: bytes = b"") -> None:
        """Begin to carry bytes. Args: first: bytes that were read before"""
        self._carrier, self._stream, self._unsent = carrier, stream, first
        self._passed_on_at = self._active_at = carrier.now()
        self.flush()

    def write(self, data: bytes) -> None:
        """Pass bytes of the peer on. Credit bounds how many of them can wait."""
        if self._transport is None or self._carrier is None:
            return
        self._transport.write(data)
        self._active_at = self._carrier.now()
        self._written_bytes += len(data)
        if self._transport.get_write_buffer_size() == 0:
            self._carrier.consumed(self._stream, len(data))
        else:
            self._undrained += len(data)

    def write_eof(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            with contextlib.suppress(OSError, RuntimeError):  # the connection has just ended
                self._transport.write_eof()
            self._close_if_over()

    def abort(self) -> None:
        """End the connection by a reset: after a normal end a part would look like the whole."""
        self._carrier = None
        if self._transport is None or self._transport.is_closing():
            return
        with contextlib.suppress(OSError):
            descriptor = os.dup(self._transport.get_extra_info("socket").fileno())
            with socket.socket(fileno=descriptor) as duplicate:
                duplicate.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self._transport.abort()

    def flush(self) -> None:
        """Send what was read already, and read on while the stream has credit."""
        if self._carrier is None or self._transport is None:
            return
        size = self._carrier.credit(self._stream)
        part, self._unsent = self._unsent[:size], self._unsent[size:]
        if part:
            self._carrier.send(self._stream, part)
        if self._unsent:
            return
        if self._is_ended:
            self._carrier.end(self._stream)
            self._close_if_over()
        elif self._is_paused and self._carrier.credit(self._stream):
            self._is_paused = False
            self._transport.resume_reading()

    def silence_s(self, now: float) -> float:
        """Seconds since the stream carried its last byte."""
        return now - self._active_at

    def stall_s(self, now: float) -> float:
        """Seconds since this process could last pass on bytes that wait; 0 while none wait."""
        buffered = 0 if self._transport is None else self._transport.get_write_buffer_size()
        if buffered == 0 or self._written_bytes - buffered > self._passed_on:
            self._passed_on, self._passed_on_at = self._written_bytes - buffered, now
        return now - self._passed_on_at

    # ---- called by the event loop ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.take_over(cast(asyncio.Transport, transport))
        self._pause()

    def take_over(self, transport: asyncio.Transport) -> None:
        """Use a connection whose reading is paused, and which had another protocol before."""
        self._transport = transport
        self._is_paused = True
        transport.set_write_buffer_limits(high=0)  # resume_writing: all bytes are out

    def get_buffer(self, sizehint: int) -> memoryview:
        size = 1  # the event loop wants at least one byte, also for a connection that just ends
        if self._carrier is not None:
            size = max(1, self._carrier.readable(self._stream))
        return self._buffer[:size]

    def buffer_updated(self, nbytes: int) -> None:
        if self._carrier is None:
            return
        data = bytes(self._buffer[:nbytes])
        if self._framing is not None:
            try:
                data = self._framing(data)
            except EdgeAIError as error:
                self._carrier.refuse(self._stream, Refusal.BROKEN, str(error))
                return
            if not data:
                return
        self._active_at = self._carrier.now()
        self._carrier.send(self._stream, data)
        if self._carrier.is_crowded:
            self._pause()
            self._carrier.resume_later(self)
        elif not self._carrier.credit(self._stream):
            self._pause()

    def eof_received(self) -> bool:
        self._is_ended = True
        self.flush()
        return True  # the other direction goes on

    def resume_writing(self) -> None:
        size, self._undrained = self._undrained, 0
        if self._carrier is not None and size:
            self._carrier.consumed(self._stream, size)

    def connection_lost(self, exc: Exception | None) -> None:
        carrier, self._carrier, self._transport = self._carrier, None, None
        if carrier is not None:
            carrier.lost(self._stream)
        self._on_lost()

    def _pause(self) -> None:
        self._is_paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def _close_if_over(self) -> None:
        """Close the connection when both directions have ended."""
        is_over = self._carrier is not None and not self._carrier.knows(self._stream)
        if is_over and self._transport is not None:
            self._transport.close()
