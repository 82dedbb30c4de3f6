"""What replicas tell each other fits into one object, and survives what a stranger may write."""

import base64
import math
import zlib
from collections.abc import Callable
from datetime import UTC, date, datetime

import msgspec
import pytest

from edgeai.ids import NodeName
from globalmanager.ha import claims
from globalmanager.ha.claims import Claim, ClaimsError


def claim(order: int = 1, **changed: object) -> Claim:
    fields = {"since": 1_700_000_000, "ledger": claims.fingerprint(str(order)), **changed}
    return Claim(order=order, **fields)  # type: ignore[arg-type]


def many(count: int, name: str = "edge-{:05}.plant-7.example.com") -> dict[NodeName, Claim]:
    return {NodeName(name.format(number)): claim(number) for number in range(count)}


@pytest.mark.parametrize("count", [0, 1, 500])
def test_claims_come_back_as_they_were(count: int) -> None:
    assert claims.decode(claims.encode(many(count))) == many(count)


def test_equal_claims_are_equal_text_whatever_their_order() -> None:
    some = many(20)
    assert claims.encode(some) == claims.encode(dict(reversed(some.items())))


def test_ten_thousand_nodes_fit_into_a_third_of_an_object() -> None:
    assert len(claims.encode(many(10_000))) < claims.MAX_ENCODED_BYTES / 3


def test_more_than_fits_is_cut_off_rather_than_refused_by_the_api() -> None:
    text = claims.encode(many(60_000, name="{:05}-" + "a-rather-long-name." * 12))
    assert len(text) <= claims.MAX_ENCODED_BYTES
    assert len(claims.decode(text)) > 10_000


def test_a_node_cannot_make_its_claim_long() -> None:
    assert len(claims.fingerprint("x" * 1024)) == len(claims.fingerprint("")) == 12


def test_the_day_of_a_certificates_end_comes_back() -> None:
    found = claim(certificate_end=claims.day_of(datetime(2026, 12, 5, 23, tzinfo=UTC).timestamp()))
    assert found.certificate_ends_on == date(2026, 12, 5)
    assert claims.decode(claims.encode({NodeName("a"): found})) == {NodeName("a"): found}
    assert claim(certificate_end=claims.day_of(math.inf)).certificate_ends_on is None
    assert claim(certificate_end=10**9).certificate_ends_on is None, "of a stranger"


def test_claims_of_an_older_and_of_a_newer_release_are_read() -> None:
    older = {"a": [1, 1_700_000_000, "l", 0]}
    newer = {"a": [1, 1_700_000_000, "l", 0, 20_000, "more"]}
    for told, day in ((older, 0), (newer, 20_000)):
        text = base64.b64encode(zlib.compress(msgspec.json.encode(told))).decode()
        assert claims.decode(text)[NodeName("a")].certificate_end == day


def test_the_ends_of_certificates_make_claims_a_quarter_longer_at_most() -> None:
    """Certificates of ten thousand nodes that were made in the course of a year."""
    plain = many(10_000)
    ending = {
        node: msgspec.structs.replace(each, certificate_end=20_000 + number % 365)
        for number, (node, each) in enumerate(plain.items())
    }
    assert len(claims.encode(ending)) < 1.25 * len(claims.encode(plain))


BAD: dict[str, Callable[[], str]] = {
    "no base64": lambda: "%%%",
    "no zlib": lambda: base64.b64encode(b"hello").decode(),
    "cut off": lambda: claims.encode(many(50))[:40],
    "no map": lambda: base64.b64encode(zlib.compress(b"[1]")).decode(),
    "a bomb": lambda: base64.b64encode(zlib.compress(b"[" * 64 * 1024 * 1024)).decode(),
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_what_is_no_claims_is_an_error(text: Callable[[], str]) -> None:
    with pytest.raises(ClaimsError):
        claims.decode(text())
