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


def without_nulls(value: Mapping[str, Any]) -> dict[str, Any]:
    """A patch for where nothing is yet: there is nothing to remove."""
    return {
        field: without_nulls(inner) if isinstance(inner, Mapping) else inner
        for field, inner in value.items()
        if inner is not None
    }
