"""Quantities of the Kubernetes API: "500m" is 1/2, "1Ki" is 1024. Pure and total."""

import re
from fractions import Fraction
from typing import Any, Final

# Digits and exponent are bounded: a power of ten to nine digits would take all memory.
_QUANTITY: Final = re.compile(
    r"(?P<number>[0-9]{1,18}(\.[0-9]{0,9})?|\.[0-9]{1,9})"
    r"(?P<unit>[numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?"
)
_POWERS: Final = {"n": -3, "u": -2, "m": -1, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
# Elsewhere a text that looks like a quantity is a text: the variables 1 and 1.0 differ.
_FIELDS: Final = re.compile(
    r"\.(limits|requests)\.|\.sizeLimit$|\.divisor$|\.averageValue$|\.target\.value$"
)


def amount_of(quantity: Any) -> Fraction | None:
    """The number that a quantity means; None when nobody can read it."""
    match = _QUANTITY.fullmatch(str(quantity).strip())
    if match is None:
        return None
    # Exact, because two notations of one quantity could differ in the last digit of a float. Such a
    # difference would look like an edit by somebody else.
    number, unit = Fraction(match["number"]), match["unit"] or ""
    if unit.endswith("i"):
        return number * Fraction(1024) ** " KMGTPE".index(unit[0])
    if unit[1:]:
        return number * Fraction(10) ** int(unit[1:])
    return number * Fraction(1000) ** _POWERS.get(unit, 0)


def are_equal(path: str, one: Any, other: Any) -> bool:
    """Whether the field at `path` is a quantity and both values mean the same number. The API
    server writes each quantity in one notation: 1024Mi as 1Gi.
    """
    if not _FIELDS.search(path):
        return False
    amount = amount_of(one)
    return amount is not None and amount == amount_of(other)
