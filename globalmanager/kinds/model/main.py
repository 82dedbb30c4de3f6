"""plan of a Model: whether workers could get at it.

Called by the engine when the Model changed. Pure and total.
"""

from datetime import datetime

from globalmanager import status
from globalmanager.children import is_being_deleted
from globalmanager.kinds.model import types
from globalmanager.model import Observed, Plan
from globalmanager.specs import InvalidSpec


def plan(observed: Observed, now: datetime) -> Plan:
    """Status only. A default Plan means: converged."""
    if is_being_deleted(observed.object):
        return Plan()
    try:
        types.read(observed.object)
        finding = status.accepted()
    except InvalidSpec as error:
        finding = status.rejected(error)
    return Plan(
        status=status.described(observed, [finding], now),
        events=status.events(observed, [finding]),
    )
