"""plan of a Model: whether workers could get at it.

Called by the engine when the Model changed. Pure and total.
"""

from datetime import datetime

from globalmanager.contract import Observed, Plan
from globalmanager.kinds.model import types
from globalmanager.rules import status
from globalmanager.rules.objects import is_being_deleted
from globalmanager.rules.specs import InvalidSpec


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
