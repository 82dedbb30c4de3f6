"""A replica with real sessions that sends nodes to other replicas, on a clock of its own."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common import wire
from edgeai.ids import NodeName
from globalmanager.edge.sessions.rebalancer import (
    FIRST_BATCH,
    MIN_SLACK,
    PAUSE_S,
    SETTLE_S,
    Rebalancer,
    share_of,
    surplus_of,
)
from globalmanager.ha.claims import Claim
from globalmanager.ha.contacts import ServingReplica
from tests.globalmanager.edge.world import EdgeSide, Peer
from tests.support.clock import Clock
from tests.support.waiting import async_eventually

NODES: Final = [NodeName(f"node-{n:02}") for n in range(48)]
COUNTS: Final = st.lists(st.integers(0, 10_000), min_size=2, max_size=6)


# ---- how many ----


@given(counts=COUNTS)
def test_moves_of_the_surplus_end_with_even_replicas(counts: list[int]) -> None:
    total = sum(counts)
    is_moving = [False] * len(counts)
    for _ in range(2 * len(counts)):
        for n, own in enumerate(counts):
            others = counts[:n] + counts[n + 1 :]
            surplus = surplus_of(own, others, is_moving=is_moving[n])
            is_moving[n] = surplus > 0
            target = min((c for c in range(len(counts)) if c != n), key=counts.__getitem__)
            moved = min(surplus, share_of(counts) - counts[target]) if surplus else 0
            assert moved >= 0
            assert surplus == 0 or moved > 0
            counts[n] -= moved
            counts[target] += moved
    assert sum(counts) == total
    share = share_of(counts)
    assert max(counts) <= share + max(MIN_SLACK, share * 0.05)


@pytest.mark.parametrize(
    ("own", "others", "surplus"),
    [
        (9, [0], 0),  # the share is 5, and 4 more are few
        (10, [0], 5),
        (30, [0, 0], 20),
        (105, [95], 0),
        (106, [94], 6),
        (0, [100], 0),
        (100, [100, 100], 0),
    ],
)
def test_a_few_more_than_the_share_are_no_surplus(
    own: int, others: list[int], surplus: int
) -> None:
    assert surplus_of(own, others) == surplus


# ---- which, where to, and how fast ----


class RebalancerReplica:
    """The replica under test with one session of each node, and the other replicas' state."""

    def __init__(self, world: EdgeSide, stack: AsyncExitStack) -> None:
        self.world = world
        self.peers: dict[NodeName, Peer] = {}
        self.others: Sequence[ServingReplica] = ()
        self.clock = Clock()
        self._stack = stack
        self._elsewhere: dict[NodeName, Claim] = {}
        self.rebalancer = Rebalancer(
            world.sessions,
            world.contacts,
            roster=self,
            metrics=world.metrics,
            clock=self.clock,
        )

    def serving(self) -> Sequence[ServingReplica]:
        return self.others

    async def connect(self, *nodes: NodeName) -> None:
        for node in nodes:
            self.peers[node] = await self._stack.enter_async_context(self.world.peer(node))
        await async_eventually("synced sessions", lambda: set(nodes) <= set(self.synced()))

    def synced(self) -> list[NodeName]:
        return list(self.world.sessions.synced_nodes())

    def look(self, later_s: float = 1.0) -> None:
        self.clock.now_s += later_s
        self.rebalancer.look()

    async def moved(self) -> list[NodeName]:
        """The nodes whose sessions are over. All of them were told the same."""
        told = [node for node in self.peers if node not in self.synced()]
        await async_eventually(
            "closed connections", lambda: all(self.peers[node].close_code for node in told)
        )
        await async_eventually(
            "the end of their claims",
            lambda: not self.world.contacts.own_claims.keys() & set(told),
        )
        assert {self.peers[node].close_code for node in told} <= {wire.Close.MOVED}
        return told

    def arrive_elsewhere(self, *nodes: NodeName) -> None:
        for node in nodes:
            self._elsewhere[node] = Claim(order=1, since=0, ledger="")
            del self.peers[node]
        self.world.contacts.put_other("other", dict(self._elsewhere))
        self.others = [ServingReplica("other", "ws://other:9000", len(self._elsewhere))]


@pytest.fixture
async def replica(tmp_path: Path) -> AsyncIterator[RebalancerReplica]:
    async with (
        EdgeSide(tmp_path / "tokens", nodes=NODES).running() as world,
        AsyncExitStack() as stack,
    ):
        replica = RebalancerReplica(world, stack)
        await replica.connect(*NODES)
        yield replica


async def test_nothing_moves_without_another_replica(replica: RebalancerReplica) -> None:
    replica.look()
    assert replica.synced() == NODES


async def test_the_oldest_sessions_go_to_the_replica_with_the_fewest(
    replica: RebalancerReplica,
) -> None:
    replica.others = [
        ServingReplica("busy", "ws://busy:9000", 12),
        ServingReplica("idle", "ws://idle:9000", 2),
    ]
    replica.look()
    assert await replica.moved() == NODES[:FIRST_BATCH]
    reasons = {peer.websocket.close_reason for peer in list(replica.peers.values())[:FIRST_BATCH]}
    assert reasons == {"ws://idle:9000"}
    assert replica.world.sample("edgeai_edge_sessions_moved_total") == FIRST_BATCH


async def test_the_next_batch_waits_for_the_last_one_and_is_larger(
    replica: RebalancerReplica,
) -> None:
    replica.others = [ServingReplica("other", "ws://other:9000", 0)]
    replica.look()
    first = await replica.moved()
    replica.look()
    assert await replica.moved() == first, "some are still under way"
    replica.arrive_elsewhere(*first)
    replica.look()
    rest = await replica.moved()
    assert len(first) + len(rest) == len(NODES) / 2, "both replicas have the same number"
    replica.arrive_elsewhere(*rest)
    replica.look()
    assert await replica.moved() == []


async def test_where_the_nodes_come_back_the_replica_pauses(replica: RebalancerReplica) -> None:
    replica.others = [ServingReplica("other", "", 0)]
    replica.look()
    first = await replica.moved()
    await replica.connect(*first)
    replica.look()
    replica.look(PAUSE_S - 2)
    assert await replica.moved() == []
    replica.look(2)
    assert await replica.moved() != []


async def test_a_pause_ends_when_replicas_come_or_go(replica: RebalancerReplica) -> None:
    """For example because the replica died to which the nodes were sent."""
    replica.others = [ServingReplica("dead", "ws://dead:9000", 0)]
    replica.look()
    await replica.connect(*await replica.moved())
    replica.look()
    replica.look()
    assert await replica.moved() == []
    replica.others = [ServingReplica("new", "ws://new:9000", 0)]
    replica.look()
    assert len(await replica.moved()) == FIRST_BATCH


async def test_nodes_that_are_lost_do_not_hold_up_the_others(replica: RebalancerReplica) -> None:
    replica.others = [ServingReplica("other", "ws://other:9000", 0)]
    replica.look()
    first = await replica.moved()
    replica.arrive_elsewhere(*first[1:])
    replica.look(SETTLE_S - 1)
    assert await replica.moved() == first[:1]
    replica.look(1)
    assert len(await replica.moved()) > 1


async def test_a_session_that_is_not_in_sync_stays(tmp_path: Path) -> None:
    async with (
        EdgeSide(tmp_path / "tokens", nodes=NODES).running() as world,
        AsyncExitStack() as stack,
    ):
        replica = RebalancerReplica(world, stack)
        world.assign(0, NODES[0])
        silent = await stack.enter_async_context(world.peer(NODES[0], acknowledges=False))
        await async_eventually("the desired set", lambda: silent.is_synced)
        await replica.connect(*NODES[1:])
        replica.others = [ServingReplica("other", "ws://other:9000", 0)]
        replica.look()
        assert await replica.moved() == NODES[1 : 1 + FIRST_BATCH]
        assert silent.close_code is None
