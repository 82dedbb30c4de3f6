"""Spreads the sessions evenly over the replicas.

A Service or a list of addresses brings each node to any replica, and a replica that starts later
has no session. So a replica with more than its share sends some of its nodes to the replica with
the fewest sessions, by URL where that replica has one. Each decides alone, from the claims of all.
"""

import asyncio
import math
from collections.abc import Sequence
from itertools import islice
from operator import attrgetter
from typing import Final, NoReturn, Protocol

from common.clock import SYSTEM_CLOCK, Clock
from common.logs import get_logger
from edgeai.ids import NodeName
from globalmanager.edge.metrics import EdgeMetrics
from globalmanager.edge.sessions.registry import Sessions
from globalmanager.ha.claims import Claim
from globalmanager.ha.contacts import Contacts, ServingReplica

log = get_logger(__name__)

LOOK_S: Final = 5.0
BATCH_LOOK_S: Final = 0.5  # while nodes are under way
SLACK: Final = 0.05  # a replica may have this fraction more than its share …
MIN_SLACK: Final = 4  # … and always this number of sessions
# Nodes that are sent away at once. The number doubles while most of them arrive elsewhere.
FIRST_BATCH: Final = 8
MAX_BATCH: Final = 256
ARRIVED: Final = 1 / 8  # fraction of a batch that must arrive elsewhere
SETTLE_S: Final = 15.0  # a node that has no session after this time is not waited for
# After a batch of which too few arrived elsewhere: the way to the replicas leads back here, for
# example through a load balancer that sends each address to the same replica.
PAUSE_S: Final = 600.0


def share_of(counts: Sequence[int]) -> int:
    """The even share of each replica, rounded up. Args: counts: the sessions of each replica"""
    return math.ceil(sum(counts) / len(counts))


def surplus_of(own: int, others: Sequence[int], *, is_moving: bool = False) -> int:
    """The sessions above this replica's share; a few are none, unless nodes already move."""
    share = share_of((own, *others))
    slack = 0 if is_moving else max(MIN_SLACK, SLACK * share)
    return own - share if own > share + slack else 0


class Replicas(Protocol):
    """The other replicas."""

    def serving(self) -> Sequence[ServingReplica]: ...


class Rebalancer:
    """Args: roster: knows the other live replicas that serve edges"""

    def __init__(
        self,
        sessions: Sessions,
        contacts: Contacts,
        *,
        roster: Replicas,
        metrics: EdgeMetrics,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._sessions = sessions
        self._contacts = contacts
        self._roster = roster
        self._metrics = metrics
        self._clock = clock
        self._names: set[str] = set()  # of the other replicas
        self._is_moving = False  # nodes are moved until this replica has its share
        self._batch = FIRST_BATCH  # size of the next batch
        self._batch_size = 0  # size of the last batch
        self._arrived = 0  # nodes of the last batch that have a session at another replica
        self._underway: dict[NodeName, Claim] = {}  # node -> the claim that it had here
        self._not_before = -math.inf  # the next batch, by the clock
        self._settled_by = -math.inf  # by the clock

    async def run(self) -> NoReturn:
        while True:
            await asyncio.sleep(BATCH_LOOK_S if self._batch_size else LOOK_S)
            self.look()

    def look(self) -> None:
        """Send away one batch of nodes, if this replica has too many and no batch is under way."""
        now, others = self._clock.elapsed(), self._roster.serving()
        if (names := {replica.name for replica in others}) != self._names:
            # What became of nodes that were sent away says nothing about these other replicas.
            self._names, self._batch, self._not_before = names, FIRST_BATCH, -math.inf
            self._forget_batch()
        if self._batch_size:
            self._note_arrivals()
            if self._underway and now < self._settled_by:
                return
            self._judge(now)
        if now < self._not_before or not others:
            return
        counts = [replica.sessions for replica in others]
        own = len(self._contacts.own_claims)
        surplus = surplus_of(own, counts, is_moving=self._is_moving)
        self._is_moving = surplus > 0
        if surplus:
            target = min(others, key=attrgetter("sessions"))
            room = share_of((own, *counts)) - target.sessions
            self._send(min(surplus, room, self._batch), target, now)

    def _note_arrivals(self) -> None:
        own = self._contacts.own_claims
        for node, former in list(self._underway.items()):
            # The order says nothing: the other replica may have heard of this session's end before.
            is_elsewhere = node not in own and self._contacts.elsewhere(node) is not None
            is_back = node in own and own[node] is not former
            if is_elsewhere or is_back:
                del self._underway[node]
                self._arrived += is_elsewhere

    def _judge(self, now: float) -> None:
        """Choose the size of the next batch by what became of the last one."""
        if self._arrived >= ARRIVED * self._batch_size:
            self._batch = min(2 * self._batch, MAX_BATCH)
        else:
            log.warning(
                "nodes come back here, sessions stay uneven", sent=self._batch_size, pause_s=PAUSE_S
            )
            self._batch = FIRST_BATCH
            self._not_before = now + PAUSE_S
        self._forget_batch()

    def _forget_batch(self) -> None:
        self._batch_size = self._arrived = 0
        self._underway.clear()

    def _send(self, count: int, target: ServingReplica, now: float) -> None:
        nodes = list(islice(self._sessions.synced_nodes(), count))
        if not nodes:
            return
        log.info("nodes sent to another replica", nodes=len(nodes), url=target.edge_url)
        claims = self._contacts.own_claims
        for node in nodes:
            self._underway[node] = claims[node]
            self._sessions.move(node, target.edge_url)
        self._metrics.moves.inc(len(nodes))
        self._batch_size = len(nodes)
        self._settled_by = now + SETTLE_S
