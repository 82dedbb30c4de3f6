"""How many samples a stream of bytes has, by its format. Pure; memory does not grow with it.

Fed by the sources of a Dataset, chunk by chunk, on whichever thread they use. What a sample is
follows the readers of the worker libraries:

    txt     a line, empty ones too
    csv     a record (RFC 4180) after the header; lines without any text are none
    jsonl   a line with text
"""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Protocol

from common.errors import EdgeAIError

CHUNK_BYTES: Final = 256 * 1024  # a good size to feed

_BOM: Final = b"\xef\xbb\xbf"
_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")  # with which no UTF-8 begins
_LINE_WITH_TEXT: Final = re.compile(rb"[^\s][^\n]*")
# But for those of fields that end, with no comma or newline before, as most do: nothing of such a
# field can be mistaken, and the expression is ten times as fast as looking at each.
_OPENING_QUOTE: Final = re.compile(rb'[,\r\n]"(?![^",\r\n]*"[,\r\n])')


class NotUtf8(EdgeAIError):
    """Bytes in which a newline is not the one that is looked for."""

    def __init__(self) -> None:
        super().__init__("the content is UTF-16, which cannot be counted; convert it to UTF-8")


class Counter(Protocol):
    """`samples` of all that was fed; a last line needs no newline. `feed` raises: NotUtf8"""

    @property
    def samples(self) -> int: ...

    def feed(self, chunk: bytes) -> None: ...


class Lines:
    """Lines as bufio.ScanLines and str.readlines see them: ended by LF, or by the end."""

    def __init__(self) -> None:
        self.samples = 0
        self._is_within = False  # the newest line has not ended

    def feed(self, chunk: bytes) -> None:
        if chunk:
            self.samples += chunk.count(b"\n") + (chunk[-1:] != b"\n") - self._is_within
            self._is_within = chunk[-1:] != b"\n"


class LinesWithText:
    """Lines that have more than white space."""

    def __init__(self) -> None:
        self.samples = 0
        self._has_text = False  # the newest line, which has been counted then

    def feed(self, chunk: bytes) -> None:
        start = 0
        if self._has_text:
            start = chunk.find(b"\n") + 1
            if not start:
                return
        self.samples += sum(1 for _ in _LINE_WITH_TEXT.finditer(chunk, start))
        newest = max(chunk.rfind(b"\n") + 1, start)
        self._has_text = self._is_text(chunk, newest) or (not newest and self._has_text)

    @staticmethod
    def _is_text(chunk: bytes, start: int) -> bool:
        return _LINE_WITH_TEXT.search(chunk, start) is not None


class CsvRecords:
    """Records after the first one. Only a quote that begins a field quotes, as in module csv."""

    def __init__(self) -> None:
        self._records = LinesWithText()
        self._is_quoted = False
        self._may_open = True  # a quote as the next byte begins, or goes on with, a quoted field

    @property
    def samples(self) -> int:
        return max(self._records.samples - 1, 0)

    def feed(self, chunk: bytes) -> None:
        position = 0
        while position < len(chunk):
            step = self._within_quotes if self._is_quoted else self._outside
            position = step(chunk, position)

    def _within_quotes(self, chunk: bytes, start: int) -> int:
        end = chunk.find(b'"', start)
        if end < 0:
            return len(chunk)
        # Should another quote follow, the two stand for one and the field goes on.
        self._is_quoted, self._may_open = False, True
        return end + 1

    def _outside(self, chunk: bytes, start: int) -> int:
        end = start + 1 if self._may_open and chunk[start : start + 1] == b'"' else 0
        if not end and (quote := _OPENING_QUOTE.search(chunk, start)):
            end = quote.end()
        self._is_quoted = end > 0
        plain = chunk[start : end or len(chunk)]
        self._records.feed(plain)  # with the quote, which is text: an empty field is a record
        self._may_open = plain[-1:] in (b",", b"\r", b"\n")
        return start + len(plain)


class WithoutMark:
    """Leaves out the byte order mark that some editors put before UTF-8; refuses another one."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._start: bytes | None = b""  # None: the start is over

    @property
    def samples(self) -> int:
        return self._counter.samples

    def feed(self, chunk: bytes) -> None:
        if self._start is None:
            self._counter.feed(chunk)
            return
        start = self._start + chunk
        if any(mark.startswith(start) and mark != start for mark in (_BOM, *_UTF_16)):
            self._start = start
            return
        if start.startswith(_UTF_16):
            raise NotUtf8
        self._start = None
        self._counter.feed(start.removeprefix(_BOM))


COUNTERS: Final[Mapping[str, Callable[[], Counter]]] = MappingProxyType(
    {"txt": Lines, "csv": CsvRecords, "jsonl": LinesWithText}
)


def counter_of(format_: str) -> Counter:
    """Args: format_: a key of COUNTERS"""
    return WithoutMark(COUNTERS[format_]())
