"""assignments of a Model: none, since workers fetch it themselves."""

from collections.abc import Mapping

from common.ids import NodeName
from globalmanager.contract import Assignment, Observed


def assignments(observed: Observed) -> Mapping[NodeName, Assignment]:
    """Called by the engine; no node ever holds anything."""
    return {}
