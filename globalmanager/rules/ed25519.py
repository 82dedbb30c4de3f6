"""The public key of an Ed25519 key pair (RFC 8032), in plain Python.

Called by the kinds whose pods log in to each other by ssh. A key takes about 2 ms, and each job
needs one key once. The time of the calculation depends on the private key, so nothing here may run
where a stranger can measure the time of single calls. Signatures are not made here.
"""

import hashlib
from typing import Final

SEED_BYTES: Final = 32

_P: Final = 2**255 - 19
_D: Final = -121665 * pow(121666, -1, _P) % _P
_BASE_Y: Final = 4 * pow(5, -1, _P) % _P

_Point = tuple[int, int, int, int]  # extended coordinates (X, Y, Z, T): x = X/Z, y = Y/Z, xy = T/Z
_IDENTITY: Final[_Point] = (0, 1, 1, 0)


def public_key(seed: bytes) -> bytes:
    """The public key, 32 bytes. Args: seed: the private key, SEED_BYTES random bytes"""
    digest = hashlib.sha512(seed).digest()
    scalar = int.from_bytes(digest[:32], "little")
    scalar = scalar & ((1 << 254) - 8) | (1 << 254)  # RFC 8032, section 5.1.5
    return _encoded(_multiplied(scalar, _base_point()))


def _base_point() -> _Point:
    x = _root_of_x(_BASE_Y)
    return (x, _BASE_Y, 1, x * _BASE_Y % _P)


def _root_of_x(y: int) -> int:
    """The even x with this y on the curve (RFC 8032, section 5.1.3)."""
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _P)
    x = pow(square, (_P + 3) // 8, _P)
    if (x * x - square) % _P != 0:
        x = x * pow(2, (_P - 1) // 4, _P) % _P
    return x if x % 2 == 0 else _P - x


def _multiplied(scalar: int, point: _Point) -> _Point:
    result = _IDENTITY
    while scalar:
        if scalar & 1:
            result = _added(result, point)
        point = _added(point, point)
        scalar >>= 1
    return result


def _added(one: _Point, other: _Point) -> _Point:
    """RFC 8032, section 5.1.4."""
    a = (one[1] - one[0]) * (other[1] - other[0]) % _P
    b = (one[1] + one[0]) * (other[1] + other[0]) % _P
    c = 2 * one[3] * other[3] * _D % _P
    d = 2 * one[2] * other[2] % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return (e * f % _P, g * h % _P, f * g % _P, e * h % _P)


def _encoded(point: _Point) -> bytes:
    inverse = pow(point[2], -1, _P)
    x, y = point[0] * inverse % _P, point[1] * inverse % _P
    return (y | (x & 1) << 255).to_bytes(32, "little")
