"""Counts the samples in the content of a Dataset, by its format. Pure, in constant memory.

The sources of Datasets feed the content to a counter, chunk by chunk, on any thread. A sample is
the same as for the readers of the worker libraries:

    txt     a line; an empty line, too
    csv     a record (RFC 4180) after the header; a line without text is no record; CR alone ends
            a record, too, as for Python's csv
    jsonl   a line with text
"""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Protocol

from edgeai.errors import EdgeAIError

CHUNK_BYTES: Final = 256 * 1024  # size of the chunks that sources read

_BOM: Final = b"\xef\xbb\xbf"
_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")  # UTF-8 text never begins so
_LINE_WITH_TEXT: Final = re.compile(rb"[^\s][^\n]*")
# A quote that opens a field. The pattern skips a quoted field without a comma or newline, which
# cannot look like several fields. Most quoted fields are such, and this is ten times as fast.
_OPENING_QUOTE: Final = re.compile(rb'[,\r\n]"(?![^",\r\n]*"[,\r\n])')


class Utf16Content(EdgeAIError):
    """The content is UTF-16, where newlines are other bytes than in UTF-8."""

    def __init__(self) -> None:
        super().__init__("the content is UTF-16, which cannot be counted; convert it to UTF-8")


class SampleCounter(Protocol):
    """Counts the samples of all chunks. The last line needs no newline."""

    @property
    def samples(self) -> int: ...

    def feed(self, chunk: bytes) -> None:
        """Raises: Utf16Content"""


class LineCounter:
    """Counts lines, as bufio.ScanLines and str.readlines do: LF or the end of the text ends one."""

    def __init__(self) -> None:
        self.samples = 0
        self._is_in_line = False  # the last line has no newline yet

    def feed(self, chunk: bytes) -> None:
        if chunk:
            self.samples += chunk.count(b"\n") + (chunk[-1:] != b"\n") - self._is_in_line
            self._is_in_line = chunk[-1:] != b"\n"


class TextLineCounter:
    """Counts the lines that have text, not only white space."""

    def __init__(self) -> None:
        self.samples = 0
        self._has_text = False  # the last line has text and is already counted

    def feed(self, chunk: bytes) -> None:
        start = 0
        if self._has_text:
            start = chunk.find(b"\n") + 1
            if not start:
                return
        self.samples += sum(1 for _ in _LINE_WITH_TEXT.finditer(chunk, start))
        last_line = max(chunk.rfind(b"\n") + 1, start)
        is_text = _LINE_WITH_TEXT.search(chunk, last_line) is not None
        self._has_text = is_text or (not last_line and self._has_text)


class CsvRecordCounter:
    """Counts the CSV records after the header.

    As in module csv, a quote opens a quoted field only as the first character of the field.
    """

    def __init__(self) -> None:
        self._records = TextLineCounter()
        self._is_quoted = False
        self._may_open = True  # if the next byte is a quote, a quoted field begins or goes on

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
        # Two quotes in a row are one quote character, and the field goes on.
        self._is_quoted, self._may_open = False, True
        return end + 1

    def _outside(self, chunk: bytes, start: int) -> int:
        end = start + 1 if self._may_open and chunk[start : start + 1] == b'"' else 0
        if not end and (quote := _OPENING_QUOTE.search(chunk, start)):
            end = quote.end()
        self._is_quoted = end > 0
        plain = chunk[start : end or len(chunk)]
        # `plain` includes the opening quote: a record of one empty quoted field counts, too.
        # CRLF becomes two ends, and between them is no text.
        self._records.feed(plain.replace(b"\r", b"\n"))
        self._may_open = plain[-1:] in (b",", b"\r", b"\n")
        return start + len(plain)


class SkipBom:
    """Skips the byte order mark (BOM) that some editors write before UTF-8; refuses UTF-16."""

    def __init__(self, counter: SampleCounter) -> None:
        self._counter = counter
        self._start: bytes | None = b""  # first bytes, maybe part of a BOM; None: checked

    @property
    def samples(self) -> int:
        return self._counter.samples

    def feed(self, chunk: bytes) -> None:
        if self._start is None:
            self._counter.feed(chunk)
            return
        start = self._start + chunk
        if any(bom.startswith(start) and bom != start for bom in (_BOM, *_UTF_16)):
            self._start = start
            return
        if start.startswith(_UTF_16):
            raise Utf16Content
        self._start = None
        self._counter.feed(start.removeprefix(_BOM))


COUNTERS: Final[Mapping[str, Callable[[], SampleCounter]]] = MappingProxyType(
    {"txt": LineCounter, "csv": CsvRecordCounter, "jsonl": TextLineCounter}
)


def sample_counter(format_: str) -> SampleCounter:
    """Args: format_: a key of COUNTERS"""
    return SkipBom(COUNTERS[format_]())
