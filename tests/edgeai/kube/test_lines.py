"""The splitter yields whole lines, whatever the pieces of the stream."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeai.kube.lines import LineSplitter


@given(
    st.lists(st.binary().filter(lambda line: b"\n" not in line and line.strip() == line)), st.data()
)
def test_any_pieces_give_the_same_lines(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    splitter = LineSplitter()
    got: list[bytes] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += splitter.feed(stream[start:end])
    assert got == [line for line in lines if line]


def test_an_incomplete_line_waits() -> None:
    splitter = LineSplitter()
    assert list(splitter.feed(b"one\ntw")) == [b"one"]
    assert list(splitter.feed(b"o\r\n")) == [b"two"]


@pytest.mark.parametrize(
    "pieces", [[b"12345678\nx\n"], [b"12", b"345", b"678", b"\nx\n"], [b"1234", b"5\nx", b"\n"]]
)
def test_a_line_beyond_the_bound_is_cut_off(pieces: list[bytes]) -> None:
    splitter = LineSplitter(max_line_bytes=4)
    assert [line for piece in pieces for line in splitter.feed(piece)] == [b"1234", b"x"]


def test_the_bound_applies_to_each_line() -> None:
    splitter = LineSplitter(max_line_bytes=4)
    assert list(splitter.feed(b"1234\n1234\n1234")) == [b"1234", b"1234"]
