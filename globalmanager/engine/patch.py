"""JSON merge patch (RFC 7386) on plain dicts: what must be sent so that a status is as desired."""

from collections.abc import Mapping
from typing import Any


def diff(observed: Mapping[str, Any], desired: Mapping[str, Any]) -> dict[str, Any] | None:
    """The least merge patch after which `observed` has all that `desired` says; None: it has.

    Fields that `desired` does not name are left alone; a None in it removes the field; lists are
    compared, and sent, whole.
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
    """What `patch` makes of `observed`, which shares with the result all that the patch leaves."""
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


def between(observed: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any] | None:
    """The least merge patch that turns `observed` into `wanted`, made by `merged`; None: they are
    equal. What the two share costs nothing."""
    patch: dict[str, Any] = {field: None for field in observed if field not in wanted}
    for field, want in wanted.items():
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
    """Whether two patches say something of the same field."""
    for field in one.keys() & other.keys():
        a, b = one[field], other[field]
        both = isinstance(a, Mapping) and isinstance(b, Mapping)
        if not both or overlap(a, b):
            return True
    return False


def without_nulls(value: Mapping[str, Any]) -> dict[str, Any]:
    """A patch for where nothing is yet: there is nothing to remove."""
    return {
        field: without_nulls(inner) if isinstance(inner, Mapping) else inner
        for field, inner in value.items()
        if inner is not None
    }
