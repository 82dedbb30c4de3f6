"""Runs a command in a container over a WebSocket: the subprotocol v4.channel.k8s.io of pods/exec.

The first byte of each message names a channel: 0 standard input, 1 standard output, 2 standard
error, 3 the Status at the end. This subprotocol cannot close standard input.
"""

import asyncio
import contextlib
import re
from collections.abc import Sequence
from typing import Final

import aiohttp
import msgspec

PROTOCOL: Final = "v4.channel.k8s.io"
MAX_OUTPUT_BYTES: Final = 4096
"""The end of the output that `talk` keeps."""
_STDIN, _STDOUT, _STDERR, _STATUS = range(4)
_CHUNK_BYTES: Final = 32 * 1024
# After so much output the reader slows down. A command that floods its output then waits, and the
# event loop stays free.
_FREE_OUTPUT_BYTES: Final = 256 * 1024
_PAUSE_S: Final = 0.02
_LAST_OUTPUT_S: Final = 2.0
_MAX_STATUS_BYTES: Final = 64 * 1024
_EXIT_CODE: Final = re.compile("-?[0-9]{1,10}")


class NotStarted(Exception):
    """The command could not start, or its exit code is not known; the text is the kubelet's."""


class End(msgspec.Struct, frozen=True):
    """How a command ended."""

    exit_code: int
    output: str
    """The last `MAX_OUTPUT_BYTES` of standard output and standard error together."""


class _Cause(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _Details(msgspec.Struct, frozen=True):
    causes: list[_Cause] = []


class _Status(msgspec.Struct, frozen=True):
    status: str = ""
    message: str = ""
    code: int = 0
    details: _Details | None = None


def query(container: str, command: Sequence[str], *, has_stdin: bool) -> list[tuple[str, str]]:
    parameters = [("container", container), *(("command", argument) for argument in command)]
    return [*parameters, ("stdin", str(has_stdin).lower()), ("stdout", "true"), ("stderr", "true")]


async def talk(socket: aiohttp.ClientWebSocketResponse, stdin: bytes) -> End:
    """Send the standard input, and read until the command has ended.

    Raises: NotStarted; ConnectionError when the connection ends before the command
    """
    output = bytearray()
    for start in range(0, len(stdin), _CHUNK_BYTES):
        await socket.send_bytes(bytes([_STDIN]) + stdin[start : start + _CHUNK_BYTES])
    status = await _read(socket, output)
    if not status:
        raise ConnectionError("the connection ended before the command")
    # The last output may come after the Status. The server closes the connection after both.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LAST_OUTPUT_S):
            await _read(socket, output)
    return End(exit_code_of(status), output.decode(errors="replace"))


async def _read(socket: aiohttp.ClientWebSocketResponse, output: bytearray) -> bytes:
    """Add what the command writes to `output`, of which the end is kept.

    Returns: the Status as soon as it comes; b"" when the connection ends before
    """
    size_bytes = 0
    async for message in socket:
        if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
            continue
        channel, data = message.data[0], message.data[1:]
        if channel == _STATUS and data:
            return bytes(data)
        if channel in (_STDOUT, _STDERR):
            output += data
            del output[:-MAX_OUTPUT_BYTES]
            size_bytes += len(data)
            if size_bytes > _FREE_OUTPUT_BYTES:
                await asyncio.sleep(_PAUSE_S)
    return b""


def exit_code_of(data: bytes) -> int:
    """The exit code in the Status of channel 3. Raises: NotStarted; ConnectionError"""
    try:
        status = msgspec.json.decode(data[:_MAX_STATUS_BYTES], type=_Status)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise NotStarted("the Status at the end cannot be read") from None
    if status.status == "Success":
        return 0
    for cause in status.details.causes if status.details else ():
        if cause.reason == "ExitCode" and _EXIT_CODE.fullmatch(cause.message):
            return int(cause.message)
    message = status.message or "the command ended without an exit code"
    raise NotStarted(message)
