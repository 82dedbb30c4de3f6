"""Splits the bytes of a watch into lines. Each line is one JSON document.

Called by `client`. The splitter holds at most one incomplete line, of limited length. The splitter
cuts a longer line off and yields its beginning, which names the object. So one huge object does not
end the watch.
"""

from collections.abc import Iterator
from typing import Final

from globalmanager.kube.objects import MAX_OBJECT_BYTES

MAX_LINE_BYTES: Final = MAX_OBJECT_BYTES + 1024  # an object and the event that wraps it


class LineSplitter:
    """Takes bytes and yields lines without line ends. The splitter skips blank lines and cuts long
    lines off.
    """

    def __init__(self, *, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._max_line_bytes = max_line_bytes
        self._parts: list[bytes] = []  # pieces of the incomplete line
        self._pending_bytes = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
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
        kept = piece[: self._max_line_bytes - self._pending_bytes]
        if kept:
            self._pending_bytes += len(kept)
            self._parts.append(kept)
