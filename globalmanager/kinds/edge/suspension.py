"""spec.suspend: the field that stops the work of a job until it is false again."""

from edgeai.api.status import Finding, Truth, mapping
from globalmanager.contract import Observed
from globalmanager.kinds.shared import status
from globalmanager.kinds.shared.status import RESUMED, SUSPENDED


def is_suspended(observed: Observed) -> bool:
    """Whether spec.suspend is true, also in a spec that is not accepted otherwise."""
    return mapping(observed.object.get("spec")).get("suspend") is True


def findings(observed: Observed) -> tuple[Finding, ...]:
    if is_suspended(observed):
        truth, reason = Truth.TRUE, SUSPENDED
    elif status.condition(observed, SUSPENDED):
        truth, reason = Truth.FALSE, RESUMED
    else:
        return ()
    message = f"{observed.type.kind} {observed.ref.name} is {reason.lower()}."
    return (Finding(SUSPENDED, truth, reason, message),)
