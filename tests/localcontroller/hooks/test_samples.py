"""The sample counters: samples of each format, any size of chunks, bounded memory."""

import codecs
import csv
import io
import tracemalloc
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from localcontroller.hooks.samples import CHUNK_BYTES, COUNTERS, Utf16Content, sample_counter

CASES = {
    "txt: nothing": ("txt", b"", 0),
    "txt: one line": ("txt", b"a\n", 1),
    "txt: a last line without newline": ("txt", b"a\nb", 2),
    "txt: CRLF": ("txt", b"a\r\nb\r\n", 2),
    "txt: empty lines are lines": ("txt", b"a\n\n\nb\n", 4),
    "txt: a byte order mark is no line": ("txt", b"\xef\xbb\xbf", 0),
    "txt: a byte order mark before a line": ("txt", b"\xef\xbb\xbfa\n", 1),
    "txt: what only begins like a mark": ("txt", b"\xef\xbbx\n", 1),
    "csv: nothing": ("csv", b"", 0),
    "csv: a header alone": ("csv", b"x,y\n", 0),
    "csv: a header without newline": ("csv", b"x,y", 0),
    "csv: rows": ("csv", b"x,y\n1,2\n3,4", 2),
    "csv: CRLF": ("csv", b"x,y\r\n1,2\r\n", 1),
    "csv: blank lines are no records": ("csv", b"x,y\n\n1,2\r\n\r\n  \n3,4\n\n", 2),
    "csv: CR": ("csv", b'x,y\r1,2\r"a\rb",3\r\r4,5', 3),
    "csv: CR before a quote": ("csv", b'x\r"a\nb"\rc', 2),
    "csv: a quoted newline": ("csv", b'x,y\n1,"two\nlines"\n3,4\n', 2),
    "csv: a quoted newline in the header": ("csv", b'"x\ny",z\n1,2\n', 1),
    "csv: quoted quotes": ("csv", b'x\n"say ""a\nb"" twice"\n2\n', 2),
    "csv: an empty quoted field": ("csv", b'x\n""\n""\n', 2),
    "csv: a quoted comma and newline": ("csv", b'x,y\n"a,\n",2\n', 1),
    "csv: a quote within a field is text": ("csv", b'x,y\n5" pipe,1\n6" pipe,2\n', 2),
    "csv: a quote that never ends": ("csv", b'x\n"a\nb\nc\n', 1),
    "csv: a byte order mark before a quote": ("csv", b'\xef\xbb\xbf"x\ny"\n1\n', 1),
    "jsonl: nothing": ("jsonl", b"", 0),
    "jsonl: lines": ("jsonl", b'{"a":1}\n{"a":2}\n', 2),
    "jsonl: no newline at the end": ("jsonl", b'{"a":1}\n{"a":2}', 2),
    "jsonl: blank lines are none": ("jsonl", b'\n{"a":1}\n \t\r\n\n{"a":2}\r\n\r\n', 2),
    "jsonl: white space before text": ("jsonl", b' \t{"a":1}\n', 1),
}


UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def count(format_: str, chunks: Iterable[bytes]) -> int:
    counter = sample_counter(format_)
    for chunk in chunks:
        counter.feed(chunk)
    return counter.samples


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
@pytest.mark.parametrize("case", CASES)
def test_samples_of_each_format(case: str, size: int) -> None:
    """Each case gives the same count for all sizes of chunks."""
    format_, data, expected = CASES[case]
    assert count(format_, cut(data, size)) == expected


@pytest.mark.parametrize("size", [1, 2, 1000])
@pytest.mark.parametrize("mark", UTF_16, ids=["little", "big"])
@pytest.mark.parametrize("format_", COUNTERS)
def test_utf_16_is_refused(format_: str, mark: bytes, size: int) -> None:
    """Without the refusal the count would be wrong, and nobody would notice."""
    with pytest.raises(Utf16Content, match="convert it to UTF-8"):
        count(format_, cut(mark + "x\n1\n".encode("utf-16-le"), size))


@given(st.lists(st.lists(st.text('a"\n\r, ', max_size=4), min_size=2, max_size=3), min_size=1))
def test_records_that_the_csv_module_writes_are_counted(rows: list[list[str]]) -> None:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows(rows)
    data = text.getvalue().encode()
    for size in (1, 3, len(data)):
        assert count("csv", cut(data, size)) == len(rows) - 1


@given(st.text('a"\n\r, ', max_size=20))
def test_records_are_those_that_the_csv_module_reads(text: str) -> None:
    lines: list[str] = []

    def read() -> Iterator[str]:
        for line in io.StringIO(text, newline=""):
            lines.append(line)
            yield line

    records = []
    for _ in csv.reader(read()):
        records.append("".join(lines))
        lines.clear()
    with_text = [record for record in records if record.strip()]
    assert count("csv", [text.encode()]) == max(0, len(with_text) - 1)


@given(st.binary(max_size=200), st.integers(1, 7))
def test_the_count_does_not_depend_on_the_chunks(data: bytes, size: int) -> None:
    assume(not data.startswith(UTF_16))
    for format_ in COUNTERS:
        assert count(format_, cut(data, size)) == count(format_, [data])


@pytest.mark.parametrize("format_", COUNTERS)
def test_a_line_of_100_mb_takes_no_memory(format_: str) -> None:
    chunk = b"x" * CHUNK_BYTES
    chunks = 100_000_000 // CHUNK_BYTES
    tracemalloc.start()
    try:
        samples = count(format_, (chunk for _ in range(chunks)))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert samples == (0 if format_ == "csv" else 1)
    assert peak_bytes < 8 * CHUNK_BYTES
