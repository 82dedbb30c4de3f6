"""What a replica tells the others of the edges that it serves: one Claim for each node.

Pure: the claims of a replica as text and back, and which of two claims of one node is the newer.
Used by the sessions, which make them, and by the roster, which spreads them.
"""

import base64
import binascii
import hashlib
import zlib
from collections.abc import Mapping
from typing import Final

import msgspec

from common.ids import NodeName

# The API server takes 1 MiB; this is a bound for the sum of some 60,000 nodes of ordinary names.
MAX_ENCODED_BYTES: Final = 1_000_000
_MAX_DECODED_BYTES: Final = 16 * 1024 * 1024
_FINGERPRINT_CHARS: Final = 12
_LEVEL: Final = 1  # of zlib: names alike compress well at any, and this one takes milliseconds

NOTHING: Final[Mapping[NodeName, "Claim"]] = {}


class Claim(msgspec.Struct, frozen=True, array_like=True):
    """A replica has an open session of a node."""

    order: int
    """One more than the highest that was known when the session opened: of two claims for one
    node the higher is the newer, whatever the replicas' clocks say. Equal ones opened before
    either replica had heard of the other: they stand side by side until one ends."""
    since: int
    """When it opened, seconds since 1970; for people."""
    instance: str
    """`fingerprint` of the node's ledger: tells two LocalControllers of one name apart."""
    clashes: int = 0
    """How often two LocalControllers were seen to use this name; each is told to the user."""


Claims = Mapping[NodeName, Claim]


class ClaimsError(ValueError):
    """The text is none that `encode` made."""


def fingerprint(instance: str) -> str:
    """Short, because there are thousands; bounded, because a node chooses `instance`."""
    return hashlib.sha256(instance.encode()).hexdigest()[:_FINGERPRINT_CHARS]


def encode(claims: Claims) -> str:
    """Text for one field of an object; of more nodes than fit, those first in the alphabet."""
    ordered = {node: claims[node] for node in sorted(claims)}
    text = _compressed(ordered)
    while len(text) > MAX_ENCODED_BYTES:
        ordered = dict(list(ordered.items())[: len(ordered) * 9 // 10])
        text = _compressed(ordered)
    return text


def is_full(text: str) -> bool:
    """Whether `encode` may have left something out."""
    return len(text) > 0.8 * MAX_ENCODED_BYTES


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
