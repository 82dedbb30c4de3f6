"""JSON merge patches (RFC 7386) of plain dicts. status uses the patches to write .status of
jobs.
"""

from collections.abc import Mapping
from typing import Any


def diff(observed: Mapping[str, Any], desired: Mapping[str, Any]) -> dict[str, Any] | None:
    """The smallest merge patch that brings the fields of `desired` into `observed`.

    A field that `desired` does not have stays unchanged. A field with value None in `desired` is
    removed. The function compares and sends a list as a whole.

    Returns: None when `observed` needs no change
    """
    patch: dict[str, Any] = {}
    for field, want in desired.items():
        have = observed.get(field)
        if isinstance(want, Mapping) and isinstance(have, Mapping):
            inner = diff(have, want)
            if inner is not None:
                patch[field] = inner
        elif have != want:
            patch[field] = without_nulls(want) if isinstance(want, Mapping) else want
    return patch or None


def merged(observed: Mapping[str, Any], patch: Mapping[str, Any]) -> Mapping[str, Any]:
    """The result of applying the merge patch to `observed`. The result shares its unchanged parts
    with `observed`. `observed` itself stays unchanged.
    """
    result = dict(observed)
    for field, value in patch.items():
        if value is None:
            result.pop(field, None)
        elif isinstance(value, Mapping):
            have = result.get(field)
            result[field] = merged(have if isinstance(have, Mapping) else {}, value)
        else:
            result[field] = value
    return result


def between(observed: Mapping[str, Any], desired: Mapping[str, Any]) -> dict[str, Any] | None:
    """The smallest merge patch that turns `observed` into `desired`; None when the two are equal.

    Args: desired: a result of `merged`; the parts that it shares with `observed` cost no comparison
    """
    patch: dict[str, Any] = {field: None for field in observed if field not in desired}
    for field, want in desired.items():
        have = observed.get(field)
        if have is want:
            continue
        if isinstance(want, Mapping) and isinstance(have, Mapping):
            inner = between(have, want)
            if inner is not None:
                patch[field] = inner
        elif have != want or field not in observed:
            patch[field] = want
    return patch or None


def overlap(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two merge patches change the same field."""
    for field in one.keys() & other.keys():
        a, b = one[field], other[field]
        both = isinstance(a, Mapping) and isinstance(b, Mapping)
        if not both or overlap(a, b):
            return True
    return False


def without_nulls(value: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch without removals of fields, for an object that does not exist yet."""
    return {
        field: without_nulls(inner) if isinstance(inner, Mapping) else inner
        for field, inner in value.items()
        if inner is not None
    }
