"""Plans a Model: says whether workers can use the scheme and the path of the Model's URL.

Called by the engine when the Model has changed. Pure and total.
"""

from datetime import datetime

from globalmanager.contract import Observed, Plan
from globalmanager.rules import status
from globalmanager.rules.objects import is_being_deleted


def plan(observed: Observed, now: datetime) -> Plan:
    """Write only the status. A default Plan means that the Model has converged."""
    if is_being_deleted(observed.object):
        return Plan()
    finding = status.accepted() if observed.invalid is None else status.rejected(observed.invalid)
    return Plan(
        status=status.described(observed, [finding], now),
        events=status.events(observed, [finding]),
    )
