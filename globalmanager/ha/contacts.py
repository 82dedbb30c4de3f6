"""Knows which nodes have a session: joins this replica's claims with the claims of other replicas.

Subscribers hear of each change. No I/O. All calls come from the event loop's thread.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import date, datetime, timedelta
from operator import attrgetter
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from common.clock import SYSTEM_CLOCK, Clock
from edgeai.ids import NodeName
from globalmanager.contract import Contact
from globalmanager.ha.claims import NO_CLAIMS, Claim, Claims

_STEP_S: Final = 1.0  # a smaller difference of the two clocks is not a changed wall clock


class _Change(NamedTuple):
    """The moment when a node got or lost contact, on both clocks."""

    connected: bool
    since: datetime
    elapsed_s: float


class _ContactsByNode(Mapping[NodeName, Contact]):
    """The contacts as they are at the moment of the question.

    How long a contact lasts is counted on the monotonic clock. When somebody sets the wall clock,
    `since` moves with it. Otherwise a clock that is set back would give a dead node more time.
    """

    def __init__(self, changes: Mapping[NodeName, _Change], clock: Clock) -> None:
        self._changes = changes
        self._clock = clock

    def __getitem__(self, node: NodeName) -> Contact:
        change = self._changes[node]
        since = self._clock.utcnow() - timedelta(seconds=self._clock.elapsed() - change.elapsed_s)
        # The same value for each question, unless somebody has set the wall clock.
        is_step = abs((since - change.since).total_seconds()) > _STEP_S
        return Contact(change.connected, since if is_step else change.since)

    def __iter__(self) -> Iterator[NodeName]:
        return iter(self._changes)

    def __len__(self) -> int:
        return len(self._changes)


class ServingReplica(NamedTuple):
    """A live replica that serves edges."""

    name: str

    edge_url: str
    """The URL at which edges reach this replica alone. "" when there is no such URL."""
    sessions: int


class ContactSubscriber:
    """Gets news of Contacts. A subclass overrides what it needs. Methods return at once."""

    def contact_changed(self, node: NodeName) -> None:
        """The node got its first session, or lost its last session."""

    def newer_claim(self, node: NodeName, claim: Claim) -> None:
        """Another replica has a newer session of the node than this replica."""

    def clash(self, node: NodeName) -> None:
        """Two LocalControllers use the name of the node, at any replica."""

    def own_claims_changed(self) -> None:
        """The claims of this replica have changed."""


class Contacts:
    """The claims of all replicas, and the contact of each node."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._own_claims: dict[NodeName, Claim] = {}
        self._own_clashes: dict[NodeName, int] = {}  # also for nodes that have no claim now
        self._claims_of_others: dict[str, Claims] = {}  # each other live replica -> its claims
        # (other replica, node) -> number of clashes that the subscribers know about
        self._told_clashes: dict[tuple[str, NodeName], int] = {}
        self._changes: dict[NodeName, _Change] = {}  # the last change of each node's contact
        self._connected: set[NodeName] = set()
        self._subscribers: list[ContactSubscriber] = []

    def subscribe(self, subscriber: ContactSubscriber) -> None:
        self._subscribers.append(subscriber)

    # ---- questions ----

    def by_node(self) -> Mapping[NodeName, Contact]:
        """The contact of every node that ever had a session anywhere. Read-only, and live."""
        return _ContactsByNode(self._changes, self._clock)

    def without_session(self, nodes: Collection[NodeName]) -> set[NodeName]:
        """The `nodes` that have no session at any replica. Takes a millisecond for 10,000."""
        return set(nodes) - self._connected

    @property
    def own_claims(self) -> Claims:
        """This replica's claims, one for each open session. Read-only, and live."""
        return MappingProxyType(self._own_claims)

    def elsewhere(self, node: NodeName) -> Claim | None:
        """The newest claim for `node` by another live replica."""
        others = [claims[node] for claims in self._claims_of_others.values() if node in claims]
        return max(others, key=attrgetter("order"), default=None)

    def certificate_ends_on(self, node: NodeName) -> date | None:
        """The day on which the certificate of the node's session, or its CA, ends."""
        claim = self._own_claims.get(node) or self.elsewhere(node)
        return None if claim is None else claim.certificate_ends_on

    # ---- the sessions of this replica ----

    def claim(self, node: NodeName, *, ledger: str, certificate_end: int = 0) -> None:
        """Claim `node`, because a session has opened here. Others then close an older one."""
        others = (self.elsewhere(node), self._own_claims.get(node))
        self._own_claims[node] = Claim(
            order=1 + max((claim.order for claim in others if claim), default=0),
            since=int(self._clock.utcnow().timestamp()),
            ledger=ledger,
            clashes=self._own_clashes.get(node, 0),
            certificate_end=certificate_end,
        )
        self._own_claims_changed()
        self._settle([node])

    def release(self, node: NodeName) -> None:
        """Remove the claim of `node`, because its session here has ended."""
        del self._own_claims[node]
        self._own_claims_changed()
        self._settle([node])

    def clash(self, node: NodeName) -> None:
        """Count that this replica saw two LocalControllers use the name of `node` once more."""
        clashes = self._own_clashes[node] = self._own_clashes.get(node, 0) + 1
        if node in self._own_claims:
            self._own_claims[node] = msgspec.structs.replace(
                self._own_claims[node], clashes=clashes
            )
            self._own_claims_changed()
        self._tell_clash(node)

    # ---- the other replicas ----

    def put_other(self, replica: str, claims: Claims, *, ago_s: float = 0.0) -> None:
        """Replace all claims of another replica. A dead replica has no claims.

        Args: ago_s: seconds since the nodes got or lost their sessions
        """
        before = self._claims_of_others.get(replica, NO_CLAIMS)
        self._claims_of_others[replica] = claims
        nodes = before.keys() | claims.keys()
        differences = sorted(node for node in nodes if before.get(node) != claims.get(node))
        self._tell_newer_claims(claims, differences)
        self._settle(differences, ago_s=ago_s)
        self._tell_clashes(replica, claims, differences)

    def drop_other(self, replica: str) -> None:
        """Forget another replica, because its process has ended for ever."""
        self.put_other(replica, NO_CLAIMS)  # nodes with a session only at `replica` lose contact
        del self._claims_of_others[replica]
        counts = self._told_clashes.items()
        self._told_clashes = {key: count for key, count in counts if key[0] != replica}

    # ---- calls of the subscribers ----

    def _settle(self, nodes: Iterable[NodeName], *, ago_s: float = 0.0) -> None:
        """Compute the contacts of `nodes` again, and tell the subscribers of each change."""
        for node in nodes:
            connected = node in self._own_claims or self.elsewhere(node) is not None
            before = self._changes.get(node)
            was_connected = before is not None and before.connected
            if connected == was_connected:
                # no change of contact; this includes a session that has moved to another replica
                continue
            since = self._clock.utcnow() - timedelta(seconds=ago_s)
            (self._connected.add if connected else self._connected.discard)(node)
            self._changes[node] = _Change(connected, since, self._clock.elapsed() - ago_s)
            for subscriber in self._subscribers:
                subscriber.contact_changed(node)

    def _own_claims_changed(self) -> None:
        for subscriber in self._subscribers:
            subscriber.own_claims_changed()

    def _tell_newer_claims(self, claims: Claims, nodes: Iterable[NodeName]) -> None:
        for node in nodes:
            own, other = self._own_claims.get(node), claims.get(node)
            if own is not None and other is not None and other.order > own.order:
                for subscriber in self._subscribers:
                    subscriber.newer_claim(node, other)

    def _tell_clashes(self, replica: str, claims: Claims, nodes: Iterable[NodeName]) -> None:
        """Tell the subscribers about the clashes that another replica has counted. The replica
        publishes its counts again and again. The subscribers hear of each clash once.
        """
        for node in nodes:
            count = claims[node].clashes if node in claims else 0
            if count > self._told_clashes.get((replica, node), 0):
                self._told_clashes[replica, node] = count
                self._tell_clash(node)

    def _tell_clash(self, node: NodeName) -> None:
        for subscriber in self._subscribers:
            subscriber.clash(node)
