"""The claims of a replica: one Claim for each node that has a session with the replica.

presence publishes the claims as text. roster reads the text of the other replicas. contacts joins
the claims of all replicas. This module only encodes and decodes; it does no I/O.
"""

import base64
import hashlib
import math
import zlib
from collections.abc import Mapping
from datetime import date, timedelta
from typing import Final

import msgspec

from edgeai.ids import NodeName

MAX_ENCODED_BYTES: Final = 1_000_000
"""Limit of the text: an object has 1 MiB. About 60,000 claims fit; 50,000 with certificates."""
_NEARLY_FULL: Final = 0.8  # fraction of the limit; `encode` leaves out claims in steps of a tenth
_MAX_DECODED_BYTES: Final = 16 * 1024 * 1024
_FINGERPRINT_CHARS: Final = 12
_EPOCH: Final = date(1970, 1, 1)
_DAY_S: Final = 86_400
_LEVEL: Final = 1  # the fastest level of zlib; similar names compress well at every level


class Claim(msgspec.Struct, frozen=True, array_like=True):
    """The statement of a replica that it has an open session with a node."""

    order: int
    """One more than the highest order of the node's claims that this replica knew when the session
    opened. The claim with the higher order is the newer claim. Clocks do not matter. Two sessions
    that opened before either replica knew of the other session have equal orders. Both sessions
    stay until one of them ends."""
    since: int
    """The time when the session opened, in seconds since 1970. The time is only for display."""
    ledger: str
    """`fingerprint` of the node's ledger: different ones show two LocalControllers of a name."""
    clashes: int = 0
    """How often this replica saw two LocalControllers use the name. Each increase is an Event."""
    certificate_end: int = 0
    """The day on which the node's client certificate or its CA ends, in days since 1970; 0: the
    session has none. Days make the claims of 10,000 nodes a fifth longer, seconds two fifths."""

    @property
    def certificate_ends_on(self) -> date | None:
        """None also for a day that no calendar has."""
        try:
            return _EPOCH + timedelta(days=self.certificate_end) if self.certificate_end else None
        except OverflowError:
            return None


Claims = Mapping[NodeName, Claim]
NO_CLAIMS: Final[Claims] = {}


class ClaimsError(ValueError):
    """`decode` got a text that `encode` did not make."""


def fingerprint(ledger_id: str) -> str:
    """A short hash of `ledger_id`, which identifies the ledger of one node.

    Short, because a replica publishes thousands, and of a fixed length, whatever the node chooses.
    """
    return hashlib.sha256(ledger_id.encode()).hexdigest()[:_FINGERPRINT_CHARS]


def day_of(unix_s: float) -> int:
    """The day of a time, in days since 1970; 0 for a time that never comes."""
    return int(unix_s // _DAY_S) if math.isfinite(unix_s) else 0


def encode(claims: Claims) -> str:
    """The claims as text for one field of a ConfigMap, without the last nodes if it is too long."""
    ordered = {node: claims[node] for node in sorted(claims)}
    text = _compressed(ordered)
    while len(text) > MAX_ENCODED_BYTES:
        ordered = dict(list(ordered.items())[: len(ordered) * 9 // 10])
        text = _compressed(ordered)
    return text


def is_full(text: str) -> bool:
    """Whether `encode` may have left claims out."""
    return len(text) > _NEARLY_FULL * MAX_ENCODED_BYTES


def decode(text: str) -> Claims:
    """The claims in a text of `encode`. Raises: ClaimsError"""
    inflater = zlib.decompressobj()
    try:
        raw = inflater.decompress(base64.b64decode(text, validate=True), _MAX_DECODED_BYTES)
        if inflater.unconsumed_tail or not inflater.eof:
            raise ClaimsError("too large, or cut off")
        return msgspec.json.decode(raw, type=dict[NodeName, Claim])
    except (ValueError, zlib.error, msgspec.DecodeError) as error:
        raise ClaimsError(str(error)) from error


def _compressed(claims: Claims) -> str:
    return base64.b64encode(zlib.compress(msgspec.json.encode(claims), _LEVEL)).decode()
