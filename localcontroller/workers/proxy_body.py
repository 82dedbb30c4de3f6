"""Finds the end of a request with an absolute URL, so that its connection carries nothing after it.

`proxy_head` chooses the framing from the head (RFC 9112, 6.3), and the stream of the relay asks it
for each part that was read. The bytes pass on as they came.
"""

import enum
import re
from collections.abc import Callable
from typing import Final

from edgeai.errors import EdgeAIError

MAX_LINE_BYTES: Final = 1024
"""The line before a chunk, with its extensions, and a line of the trailer."""
MAX_TRAILER_BYTES: Final = 16 * 1024

Framing = Callable[[bytes], bytes]
"""Gets the next bytes of the connection. Returns: those of them that belong to the request.

Raises: MalformedBody
"""

_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(;[^\0]*)?\r\n\Z")


class MalformedBody(EdgeAIError):
    """The proxy cannot find the end of the body."""


class Sized:
    """A body of `size` bytes."""

    def __init__(self, size: int) -> None:
        self._left = size

    def __call__(self, data: bytes) -> bytes:
        part = data[: self._left]
        self._left -= len(part)
        return part


class _Part(enum.Enum):
    SIZE = enum.auto()
    DATA = enum.auto()
    AFTER_DATA = enum.auto()
    TRAILER = enum.auto()
    OVER = enum.auto()


class Chunked:
    """A body in chunks (RFC 9112, 7.1)."""

    def __init__(self) -> None:
        self._part = _Part.SIZE
        self._left = 0  # bytes of the chunk that have not come yet
        self._line = b""  # the beginning of a line whose end has not come yet
        self._trailer = 0  # bytes of the trailer

    def __call__(self, data: bytes) -> bytes:
        at = 0
        while at < len(data) and self._part is not _Part.OVER:
            if self._part is _Part.DATA:
                size = min(self._left, len(data) - at)
                self._left -= size
                at += size
                if not self._left:
                    self._part = _Part.AFTER_DATA
            else:
                at = self._read_line(data, at)
        return data[:at]

    def _read_line(self, data: bytes, at: int) -> int:
        """Returns: where the line ends in `data`, or where the data end"""
        found = data.find(b"\n", at)
        end = len(data) if found < 0 else found + 1
        if len(self._line) + end - at > MAX_LINE_BYTES:
            raise MalformedBody(f"a line between chunks is longer than {MAX_LINE_BYTES} bytes")
        self._line += data[at:end]
        if found >= 0:
            line, self._line = self._line, b""
            self._on_line(line)
        return end

    def _on_line(self, line: bytes) -> None:
        if self._part is _Part.SIZE:
            match = _CHUNK.match(line)
            if match is None:
                raise MalformedBody("the size of a chunk is malformed")
            self._left = int(match[1], 16)
            self._part = _Part.DATA if self._left else _Part.TRAILER
        elif self._part is _Part.AFTER_DATA:
            if line != b"\r\n":
                raise MalformedBody("a chunk is longer than its size")
            self._part = _Part.SIZE
        elif line == b"\r\n":
            self._part = _Part.OVER
        else:
            self._trailer += len(line)
            if self._trailer > MAX_TRAILER_BYTES or not line.endswith(b"\r\n"):
                raise MalformedBody("the trailer is malformed")
