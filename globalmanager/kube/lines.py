"""Splits the bytes of a watch into its lines, one JSON document each.

Called by `client`. Holds at most one incomplete line, and that bounded: the stream's own reader
fails at a few MiB with an error that does not say why.
"""

from collections.abc import Iterator
from typing import Final

MAX_LINE_BYTES: Final = 8 * 1024 * 1024  # an object has at most 1.5 MiB in etcd; JSON may be longer


class LineTooLong(ValueError):
    pass


class LineSplitter:
    """Bytes in, whole lines out, without their ends; blank lines are left out."""

    def __init__(self, *, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._max_line_bytes = max_line_bytes
        self._parts: list[bytes] = []  # pieces of the line that is not complete yet
        self._pending_bytes = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Raises: LineTooLong; the splitter is of no more use then."""
        *whole, rest = data.split(b"\n")
        for piece in whole:
            self._keep(piece)
            line = b"".join(self._parts).strip()
            self._parts, self._pending_bytes = [], 0
            if line:
                yield line
        if rest:
            self._keep(rest)

    def _keep(self, piece: bytes) -> None:
        self._pending_bytes += len(piece)
        if self._pending_bytes > self._max_line_bytes:
            raise LineTooLong(f"a line of more than {self._max_line_bytes} bytes")
        self._parts.append(piece)
