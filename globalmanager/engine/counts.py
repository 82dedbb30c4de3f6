"""Says of a changed job whether only the counts of its workers have changed.

A thousand edges that report a new count each second would lead to a thousand plans a second, and
each of these plans would decide nothing: `fold` has already written the sums.
"""

from collections.abc import Mapping
from typing import Any, Final

from edgeai.api.resources import Object
from edgeai.api.status import mapping
from globalmanager.contract import Kind
from globalmanager.engine.assign import concerns_assignments
from globalmanager.engine.status import status_of

# Fields of a worker's entry of .status.workers that no plan of such a kind reads.
_COUNTS: Final = frozenset({"taskInfo", "revision", "details", "observedAt"})


def only_counts_differ(kind: Kind, old: Object | None, new: Object | None) -> bool:
    """Whether a change of a job was nothing but a report with new counts of known workers."""
    if not kind.sums or old is None or new is None:
        return False
    if concerns_assignments(kind.definition.resources[0], old, new):
        return False
    before, after = status_of(old), status_of(new)
    count_fields = kind.sums | {"workers"}
    is_rest_same = _without(before, count_fields) == _without(after, count_fields)
    return is_rest_same and _workers(before) == _workers(after)


def _workers(status: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    entries = mapping(status.get("workers"))
    return {name: _without(mapping(entry), _COUNTS) for name, entry in entries.items()}


def _without(fields: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}
