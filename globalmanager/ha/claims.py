"""What a replica tells the others of the edges that it serves: one Claim for each node.

Pure: a replica's claims as text and back. Used by contacts, which joins the claims of all
replicas, and by presence and roster, which write and read the text.
"""

import base64
import binascii
import hashlib
import zlib
from collections.abc import Mapping
from typing import Final

import msgspec

from common.ids import NodeName

MAX_ENCODED_BYTES: Final = 1_000_000
"""The API server takes 1 MiB for an object: claims of some 60,000 nodes with ordinary names."""
_NEARLY_FULL: Final = 0.8  # `encode` cuts in steps of a tenth
_MAX_DECODED_BYTES: Final = 16 * 1024 * 1024
_FINGERPRINT_CHARS: Final = 12
_LEVEL: Final = 1  # of zlib: similar names compress well at any level, and this is the fastest


class Claim(msgspec.Struct, frozen=True, array_like=True):
    """A replica has an open session of a node."""

    order: int
    """One more than the highest order that was known when the session opened. Of two claims of
    one node the higher is the newer, whatever the replicas' clocks say. Two sessions that opened
    before either replica had heard of the other have equal orders: both stay until one ends."""
    since: int
    """When the session opened, seconds since 1970; for people."""
    ledger: str
    """`fingerprint` of the node's ledger: tells two LocalControllers of one name apart."""
    clashes: int = 0
    """How often this replica saw two LocalControllers use this name; the user is told each."""


Claims = Mapping[NodeName, Claim]
NO_CLAIMS: Final[Claims] = {}


class ClaimsError(ValueError):
    """`encode` did not make this text."""


def fingerprint(ledger_id: str) -> str:
    """Short, because there are thousands; of bounded length, because a node chooses its id."""
    return hashlib.sha256(ledger_id.encode()).hexdigest()[:_FINGERPRINT_CHARS]


def encode(claims: Claims) -> str:
    """Text for one field of an object. Where not all nodes fit, the last by name are left out."""
    ordered = {node: claims[node] for node in sorted(claims)}
    text = _compressed(ordered)
    while len(text) > MAX_ENCODED_BYTES:
        ordered = dict(list(ordered.items())[: len(ordered) * 9 // 10])
        text = _compressed(ordered)
    return text


def is_full(text: str) -> bool:
    """Whether `encode` may have left something out."""
    return len(text) > _NEARLY_FULL * MAX_ENCODED_BYTES


def decode(text: str) -> Claims:
    """Raises: ClaimsError"""
    inflater = zlib.decompressobj()
    try:
        raw = inflater.decompress(base64.b64decode(text, validate=True), _MAX_DECODED_BYTES)
        if inflater.unconsumed_tail or not inflater.eof:
            raise ClaimsError("too large, or cut off")
        return msgspec.json.decode(raw, type=dict[NodeName, Claim])
    except (binascii.Error, zlib.error, msgspec.DecodeError) as error:
        raise ClaimsError(str(error)) from error


def _compressed(claims: Claims) -> str:
    return base64.b64encode(zlib.compress(msgspec.json.encode(claims), _LEVEL)).decode()
