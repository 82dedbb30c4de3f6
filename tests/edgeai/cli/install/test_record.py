"""The record of an installation: bounded, and refused when it is not what this version wrote."""

import base64
import random
import zlib
from typing import Final

import msgspec
import pytest

from edgeai.cli.install import record
from edgeai.cli.install.cluster import name_of
from edgeai.cli.install.errors import InstallError
from edgeai.cli.install.installation import following, revision
from edgeai.cli.install.record import Record, Revision, decode, encode
from edgeai.cli.install.values import values_of

RENDERED: Final = revision({}, values_of({}), None)


def test_a_record_is_read_as_it_was_written() -> None:
    kept = Record(RENDERED, RENDERED, True, tuple(map(name_of, RENDERED.objects)))
    assert decode(encode(kept)) == kept
    assert len(encode(kept)) < record.MAX_BYTES / 20


def test_a_record_without_bound_is_not_written() -> None:
    noise = random.Random(1).randbytes(record.MAX_BYTES).hex()
    huge = msgspec.structs.replace(RENDERED, objects=[{"data": noise}])
    with pytest.raises(InstallError, match="more than a Secret keeps"):
        encode(Record(huge, huge))


def packed(plain: bytes) -> str:
    return base64.b64encode(zlib.compress(plain)).decode()


ODD: Final = {
    "no base64": "%%%",
    "not compressed": base64.b64encode(b"{}").decode(),
    "no JSON": packed(b"hello"),
    "another format": packed(b'{"format": 2}'),
    "without a revision": packed(b'{"format": 1}'),
    "a bomb": packed(b" " * (20 * 1024 * 1024)),
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_what_is_no_record_is_refused(text: str) -> None:
    with pytest.raises((ValueError, zlib.error)):
        decode(text)


def test_a_bomb_is_not_unpacked_and_strange_characters_are_no_record() -> None:
    with pytest.raises(ValueError, match="more than 16777216 bytes"):
        decode(ODD["a bomb"])
    with pytest.raises(ValueError, match="base64"):
        decode("%" + encode(Record(RENDERED)))


def changed(number: int, base: Revision = RENDERED) -> Revision:
    return msgspec.structs.replace(base, number=number, values={"replicas": number})


def test_the_revision_to_go_back_to_is_the_last_that_was_ready() -> None:
    first = following(None, changed(1))
    assert first.previous is None
    ready = msgspec.structs.replace(first, is_complete=True)
    second = following(ready, changed(2))
    assert second.previous == changed(1)
    third = following(second, changed(3))  # the second never became ready
    assert (third.current, third.previous) == (changed(3), changed(1))
    again = following(msgspec.structs.replace(third, is_complete=True), changed(3))
    assert again.previous == changed(1)


def test_a_revision_gets_a_number_when_something_differs() -> None:
    kept = Record(RENDERED, is_complete=True)
    assert revision({}, values_of({}), kept) == RENDERED
    given = {"replicas": 3}
    assert revision(given, values_of(given), kept).number == 2
    back = Record(RENDERED, changed(2), True)
    assert revision(given, values_of(given), back).number == 3
