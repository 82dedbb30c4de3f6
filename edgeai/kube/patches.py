"""JSON merge patches (RFC 7386), as requests to the Kubernetes API have them.

The engine computes with these patches what it writes into the .status of jobs.
"""

from collections.abc import Mapping
from typing import Any


def diff(present: Mapping[str, Any], target: Mapping[str, Any]) -> dict[str, Any] | None:
    """The smallest merge patch that brings the fields of `target` into `present`.

    A field that `target` does not have stays unchanged. A field with value None in `target` is
    removed. The function compares and sends a list as a whole.

    Returns: None when `present` needs no change
    """
    patch: dict[str, Any] = {}
    for field, want in target.items():
        value = present.get(field)
        if isinstance(want, Mapping) and isinstance(value, Mapping):
            inner = diff(value, want)
            if inner is not None:
                patch[field] = inner
        elif value != want:
            patch[field] = without_nulls(want) if isinstance(want, Mapping) else want
    return patch or None


def merged(present: Mapping[str, Any], patch: Mapping[str, Any]) -> Mapping[str, Any]:
    """`present` with the merge patch applied: a new map that shares what stays unchanged."""
    result = dict(present)
    for field, value in patch.items():
        if value is None:
            result.pop(field, None)
        elif isinstance(value, Mapping):
            old = result.get(field)
            result[field] = merged(old if isinstance(old, Mapping) else {}, value)
        else:
            result[field] = value
    return result


def without_nulls(value: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch without removals of fields, for an object that does not exist yet."""
    return {
        field: without_nulls(inner) if isinstance(inner, Mapping) else inner
        for field, inner in value.items()
        if inner is not None
    }
