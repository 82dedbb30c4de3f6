"""The versions of a Model in its status, and how far the versions of its assignments have come."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from edgeai.api.status import mapping, mappings
from edgeai.times import rfc3339
from globalmanager.contract import Observed
from globalmanager.kinds.edge.references import newest_number
from globalmanager.kinds.shared import status

MAX_VERSIONS: Final = 10
_MAX_URL_CHARS: Final = 2048
COMPLETE: Final = "Complete"
ROLLED_BACK: Final = "RolledBack"


def history(observed: Observed, now: datetime) -> dict[str, Any]:
    """The fields `versions` and `returns`; empty while no node loads the model hot."""
    if not observed.readers or observed.spec is None:
        return {}
    current = status.status_of(observed)
    versions = mappings(current.get("versions"))[-MAX_VERSIONS:]
    if not any(one.get("generation") == observed.generation for one in versions[-1:]):
        present = {
            "generation": observed.generation,
            "url": observed.spec.url[:_MAX_URL_CHARS],
            "sha256": observed.spec.sha256,
            "time": rfc3339(now),
            "outcome": "",
        }
        versions = [*versions, present][-MAX_VERSIONS:]
    fields: dict[str, Any] = {"versions": _judged(observed, versions)}
    # What the spec names now follows all content to which rollouts have returned.
    pinned = max((one.number for one in observed.readers.values() if one), default=0)
    if pinned > newest_number(observed.object):
        fields["returns"] = pinned + 1 - observed.generation
    return fields


def _judged(observed: Observed, versions: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    contents = set(observed.readers.values())
    taken_back = {one.instead_of for one in contents if one}
    outcomes: dict[Any, str] = dict.fromkeys(taken_back, ROLLED_BACK)
    # Nodes may still get content of a Model that had the name before, or of another one.
    present = (observed.uid, observed.generation)
    got = {(one.model, one.generation) if one else present for one in contents}
    if len(got) == 1:
        uid, generation = got.pop()
        outcomes |= {generation: COMPLETE} if uid == observed.uid else {}
    return [
        {**mapping(one), "outcome": outcomes.get(one.get("generation"), one.get("outcome"))}
        for one in versions
    ]
