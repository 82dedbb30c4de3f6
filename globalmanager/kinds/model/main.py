"""plan of a Model: says whether workers can reach its URL's scheme and path.

Called by the engine when the Model changed. Pure and total.
"""

from datetime import datetime

from globalmanager.contract import Observed, Plan
from globalmanager.rules import status
from globalmanager.rules.objects import is_being_deleted


def plan(observed: Observed, now: datetime) -> Plan:
    """Status only. A default Plan means: converged."""
    if is_being_deleted(observed.object):
        return Plan()
    finding = status.accepted() if observed.invalid is None else status.rejected(observed.invalid)
    return Plan(
        status=status.described(observed, [finding], now),
        events=status.events(observed, [finding]),
    )
