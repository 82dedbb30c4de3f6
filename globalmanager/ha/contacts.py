"""Which nodes have a session, and at which replica: this replica's claims joined with the others'.

Written by the sessions of this replica and by roster, which hears of the other replicas. Read by
the engine's plans, presence and REST. Whoever needs news subscribes. Pure: no I/O, no task; all
calls come from the event loop's thread.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from common.ids import NodeName
from globalmanager.contract import Contact
from globalmanager.ha.claims import NO_CLAIMS, Claim, Claims

NodeListener = Callable[[NodeName], None]
ClaimListener = Callable[[NodeName, Claim], None]


def _ignore(*_news: object) -> None:
    """The listener of a subscriber that does not want this news."""


class _Subscriber(NamedTuple):
    contact: NodeListener
    newer_claim: ClaimListener
    clash: NodeListener
    own: Callable[[], None]


class Contacts:
    """
    Args:
        utcnow: UTC
    """

    def __init__(self, utcnow: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._utcnow = utcnow
        self._own: dict[NodeName, Claim] = {}
        self._own_clashes: dict[NodeName, int] = {}  # also of nodes without a claim now
        self._others: dict[str, Claims] = {}  # by replica; only replicas that live
        self._told_clashes: dict[tuple[str, NodeName], int] = {}  # by replica and node
        self._contacts: dict[NodeName, Contact] = {}
        self._subscribers: list[_Subscriber] = []

    def subscribe(
        self,
        *,
        contact: NodeListener = _ignore,
        newer_claim: ClaimListener = _ignore,
        clash: NodeListener = _ignore,
        own: Callable[[], None] = _ignore,
    ) -> None:
        """Call these listeners from now on, within the change; they return at once.

        Args:
            contact: a node has now a session where it had none, or the other way round
            newer_claim: another replica's session of a node is newer than the one here
            clash: two LocalControllers use this node's name; here or at another replica
            own: the claims of this replica have changed
        """
        self._subscribers.append(_Subscriber(contact, newer_claim, clash, own))

    # ---- asked by others ----

    def by_node(self) -> Mapping[NodeName, Contact]:
        """Every node that ever had a session, at any replica; a live view, read-only."""
        return MappingProxyType(self._contacts)

    @property
    def own(self) -> Claims:
        """The claims of this replica, one for each open session; a live view, read-only."""
        return MappingProxyType(self._own)

    def elsewhere(self, node: NodeName) -> Claim | None:
        """The newest claim of another replica that lives."""
        found = [claims[node] for claims in self._others.values() if node in claims]
        return max(found, key=lambda claim: claim.order, default=None)

    # ---- the sessions of this replica ----

    def claim(self, node: NodeName, *, ledger: str) -> None:
        """A session of `node` has opened here. The replica of an older session ends that one.

        Args: ledger: `fingerprint` of the node's ledger
        """
        known = (self.elsewhere(node), self._own.get(node))
        self._own[node] = Claim(
            order=1 + max((each.order for each in known if each), default=0),
            since=int(self._utcnow().timestamp()),
            ledger=ledger,
            clashes=self._own_clashes.get(node, 0),
        )
        self._own_changed()
        self._settle([node], since=self._utcnow())

    def release(self, node: NodeName) -> None:
        """The session of `node` here is over."""
        del self._own[node]
        self._own_changed()
        self._settle([node], since=self._utcnow())

    def clash(self, node: NodeName) -> None:
        """Two LocalControllers that use the name of `node` were seen here, once more."""
        clashes = self._own_clashes[node] = self._own_clashes.get(node, 0) + 1
        if node in self._own:
            self._own[node] = msgspec.structs.replace(self._own[node], clashes=clashes)
            self._own_changed()
        self._tell_clash(node)

    # ---- the other replicas ----

    def put_other(self, replica: str, claims: Claims, *, since: datetime | None = None) -> None:
        """All claims of another replica from now on; none while it does not live.

        Args: since: when the nodes got or lost these sessions, if that was not now
        """
        before = self._others.get(replica, NO_CLAIMS)
        self._others[replica] = claims
        nodes = before.keys() | claims.keys()
        changed = sorted(node for node in nodes if before.get(node) != claims.get(node))
        self._tell_newer(claims, changed)
        self._settle(changed, since=since or self._utcnow())
        self._tell_clashes(replica, claims, changed)

    def drop_other(self, replica: str) -> None:
        """Another replica has left for ever."""
        self.put_other(replica, NO_CLAIMS)  # a contact that ends here ends now
        del self._others[replica]
        told = self._told_clashes.items()
        self._told_clashes = {key: count for key, count in told if key[0] != replica}

    # ---- news ----

    def _settle(self, nodes: Iterable[NodeName], *, since: datetime) -> None:
        """Find out which of `nodes` have a session, and tell where that has changed."""
        for node in nodes:
            connected = node in self._own or self.elsewhere(node) is not None
            before = self._contacts.get(node)
            was_connected = before is not None and before.connected
            if connected == was_connected:
                continue  # or a session moved from one replica to another
            self._contacts[node] = Contact(connected, since)
            for subscriber in self._subscribers:
                subscriber.contact(node)

    def _own_changed(self) -> None:
        for subscriber in self._subscribers:
            subscriber.own()

    def _tell_newer(self, claims: Claims, nodes: Iterable[NodeName]) -> None:
        for node in nodes:
            own, other = self._own.get(node), claims.get(node)
            if own is not None and other is not None and other.order > own.order:
                for subscriber in self._subscribers:
                    subscriber.newer_claim(node, other)

    def _tell_clashes(self, replica: str, claims: Claims, nodes: Iterable[NodeName]) -> None:
        """Each clash once, though the replica goes on publishing how many there were."""
        for node in nodes:
            count = claims[node].clashes if node in claims else 0
            if count > self._told_clashes.get((replica, node), 0):
                self._told_clashes[replica, node] = count
                self._tell_clash(node)

    def _tell_clash(self, node: NodeName) -> None:
        for subscriber in self._subscribers:
            subscriber.clash(node)
