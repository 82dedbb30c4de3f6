"""Condition EdgeConnected: whether the LocalControllers that a job depends on are in contact.

The condition informs users. No plan acts on the condition.
"""

from collections.abc import Collection
from datetime import datetime
from typing import Final

from edgeai.api.status import Finding, Truth, parse_time
from edgeai.ids import NodeName
from edgeai.text import listing
from globalmanager.contract import Contact, Observed
from globalmanager.kinds.shared import status

EDGE_CONNECTED: Final = "EdgeConnected"
# A job may have workers on many nodes. The remedy is at the end of the message, which is cut.
_MAX_NAMED: Final = 10


def edge_connected(
    observed: Observed, nodes: Collection[NodeName], now: datetime
) -> tuple[Finding | None, float | None]:
    """The condition, and the seconds until the next check; (None, None) without nodes.

    A node is lost when it has had no session for `contact_grace_s`. Just after its start the
    GlobalManager knows nothing of a node. Such a node has the same time, counted from the moment
    when the condition became Unknown. A lost node stays lost until it has a session again.
    """
    # No condition at all: a job without edge workers depends on no LocalController.
    if not nodes:
        return None, None
    left_s = {
        node: _grace_left_s(observed, contact, now)
        for node in sorted(nodes)
        if (contact := observed.contacts.get(node)) is None or not contact.connected
    }
    # One lost node is enough for False, also while other nodes are within their grace time.
    silent = [node for node, seconds in left_s.items() if seconds <= 0]
    if silent:
        # No timer: only a session ends this state, and a new session causes a plan.
        return _lost(silent), None
    if left_s:
        return _pending(observed, list(left_s)), min(left_s.values())
    return Finding(EDGE_CONNECTED, Truth.TRUE, "Connected", f"in contact: {named(nodes)}"), None


def _grace_left_s(observed: Observed, contact: Contact | None, now: datetime) -> float:
    # A restart of the GlobalManager closes every session, and would make all edges look lost.
    since = contact.since if contact is not None else _waiting_since(observed, now)
    if since is None:
        return 0.0
    return observed.settings.contact_grace_s - (now - since).total_seconds()


def _waiting_since(observed: Observed, now: datetime) -> datetime | None:
    """The time since which the job waits for contact; None when the grace time is over."""
    condition = status.condition(observed, EDGE_CONNECTED)
    if condition.get("status") == Truth.FALSE:
        return None
    if condition.get("status") != Truth.UNKNOWN:
        return now
    # From the status: a GlobalManager that restarts again and again would never call a node lost.
    return parse_time(condition.get("lastTransitionTime")) or now


def _lost(nodes: list[NodeName]) -> Finding:
    message = (
        f"no session with the LocalController of {named(nodes)}; its workers go on and their "
        "reports wait there: check the node, its network and its LocalController"
    )
    return Finding(EDGE_CONNECTED, Truth.FALSE, "NoContact", message)


def _pending(observed: Observed, nodes: list[NodeName]) -> Finding:
    """The condition during the grace time. The condition keeps its value, but it is Unknown for a
    node that never had a session with this GlobalManager.
    """
    condition = status.condition(observed, EDGE_CONNECTED)
    # The grace time hides a short loss, but a node that nobody has heard of has no contact.
    is_unheard = any(node not in observed.contacts for node in nodes)
    if is_unheard or condition.get("status") not in (Truth.TRUE, Truth.FALSE):
        message = f"waiting for the LocalController of {named(nodes)} to connect"
        return Finding(EDGE_CONNECTED, Truth.UNKNOWN, "AwaitingContact", message)
    reason, message = str(condition.get("reason", "")), str(condition.get("message", ""))
    return Finding(EDGE_CONNECTED, Truth(condition["status"]), reason, message)


def named(names: Collection[str]) -> str:
    """A few of the names, and the number of the others."""
    return listing(sorted(names), _MAX_NAMED)
