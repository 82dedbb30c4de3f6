"""plan of a Dataset: whether it can be counted, and whether its node is in contact.

Called by the engine when the Dataset, its Node or the contact to it changed. Pure and total.
"""

from datetime import datetime

from globalmanager import contacts, references, status
from globalmanager.children import is_being_deleted
from globalmanager.kinds.dataset import types
from globalmanager.kinds.dataset.downstream import assignments
from globalmanager.model import Observed, Plan
from globalmanager.specs import InvalidSpec
from globalmanager.status import Finding


def plan(observed: Observed, now: datetime) -> Plan:
    """Status only. A default Plan means: converged."""
    if is_being_deleted(observed.object):
        return Plan()
    connected, requeue_after_s = contacts.edge_connected(observed, assignments(observed), now)
    findings = [*_findings(observed), *([connected] if connected else [])]
    return Plan(
        status=status.described(observed, findings, now),
        events=status.events(observed, findings),
        requeue_after_s=requeue_after_s,
    )


def _findings(observed: Observed) -> tuple[Finding, Finding]:
    try:
        spec = types.read(observed.object)
    except InvalidSpec as error:
        return status.rejected(error), references.UNRESOLVED
    missing = references.missing_node(observed, spec.node_name, "spec.nodeName")
    return status.accepted(), references.resolved([missing] if missing else [])
