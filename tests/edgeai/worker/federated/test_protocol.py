"""One piece as it travels: what was cut, damaged or blown up is found."""

import zlib

import pytest

from edgeai.worker.federated.protocol import (
    CRC_BYTES,
    Compression,
    Damaged,
    Encoding,
    packed,
    unpacked,
)

DATA = bytes(range(16))
ZLIB = Encoding(compression="zlib")


@pytest.mark.parametrize("compression", ["none", "zlib"])
def test_what_was_packed_comes_back(compression: Compression) -> None:
    encoding = Encoding(compression=compression)
    assert unpacked(packed(DATA, encoding), numbers=4, encoding=encoding) == DATA


DAMAGES: dict[str, tuple[bytes, str]] = {
    "cut in the data": (packed(DATA, ZLIB)[:-8], "it was cut"),
    "cut after the last number": (packed(DATA, ZLIB)[:-2], "cannot be decompressed: it was cut"),
    "no such format": (packed(DATA, Encoding()), "cannot be decompressed"),
    "another content": (b"\0" * CRC_BYTES + zlib.compress(DATA), "damaged on the way"),
    "far more than was promised, which nobody may have to hold": (
        packed(bytes(1 << 24), ZLIB),
        "a piece of 17 bytes, expected 16",
    ),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_what_was_damaged_is_told(case: str) -> None:
    body, says = DAMAGES[case]
    with pytest.raises(Damaged, match=says):
        unpacked(body, numbers=4, encoding=ZLIB)
