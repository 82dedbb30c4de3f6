"""JSON merge patches (RFC 7386), as requests to the Kubernetes API have them.

The engine computes with these patches what it writes into the .status of jobs.
"""

from collections.abc import Mapping
from typing import Any


def diff(present: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any] | None:
    """The smallest merge patch that brings the fields of `wanted` into `present`.

    A field that `wanted` does not have stays unchanged. A field with value None in `wanted` is
    removed. The function compares and sends a list as a whole.

    Returns: None when `present` needs no change
    """
    patch: dict[str, Any] = {}
    for field, want in wanted.items():
        have = present.get(field)
        if isinstance(want, Mapping) and isinstance(have, Mapping):
            inner = diff(have, want)
            if inner is not None:
                patch[field] = inner
        elif have != want:
            patch[field] = without_nulls(want) if isinstance(want, Mapping) else want
    return patch or None


def merged(present: Mapping[str, Any], patch: Mapping[str, Any]) -> Mapping[str, Any]:
    """The result of applying the merge patch to `present`. The result shares its unchanged parts
    with `present`. `present` itself stays unchanged.
    """
    result = dict(present)
    for field, value in patch.items():
        if value is None:
            result.pop(field, None)
        elif isinstance(value, Mapping):
            have = result.get(field)
            result[field] = merged(have if isinstance(have, Mapping) else {}, value)
        else:
            result[field] = value
    return result


def between(present: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any] | None:
    """The smallest merge patch that turns `present` into `wanted`; None when the two are equal.

    Args: wanted: a result of `merged`; the parts that it shares with `present` cost no comparison
    """
    patch: dict[str, Any] = {field: None for field in present if field not in wanted}
    for field, want in wanted.items():
        have = present.get(field)
        if have is want:
            continue
        if isinstance(want, Mapping) and isinstance(have, Mapping):
            inner = between(have, want)
            if inner is not None:
                patch[field] = inner
        elif have != want or field not in present:
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
