"""Sessions of one replica among others: each is a claim, and the newest claim of a node wins."""

from common import wire
from edgeai.ids import NodeName
from globalmanager.ha.claims import Claim, fingerprint
from tests.globalmanager.edge.world import A, B, EdgeSide
from tests.support.waiting import async_eventually


def claim(order: int, ledger_id: str = "ledger-1") -> dict[NodeName, Claim]:
    """What another replica publishes."""
    return {A: Claim(order=order, since=0, ledger=fingerprint(ledger_id))}


async def test_a_live_session_is_a_claim_and_its_end_is_the_claims(world: EdgeSide) -> None:
    async with world.peer() as peer, world.peer(B) as other:
        await async_eventually("both peers synced", lambda: peer.is_synced and other.is_synced)
        claims = world.contacts.own_claims
        assert {node: each.order for node, each in claims.items()} == {A: 1, B: 1}
        assert claims[A].ledger == fingerprint("ledger-1")
    await async_eventually("not world.contacts.own_claims", lambda: not world.contacts.own_claims)


async def test_a_session_is_newer_than_any_known_here_or_elsewhere(world: EdgeSide) -> None:
    world.contacts.put_other("other", claim(5))
    async with world.peer() as first:
        await async_eventually("the first peer synced", lambda: first.is_synced)
        assert world.contacts.own_claims[A].order == 6
        async with world.peer() as second:
            await async_eventually("the second peer synced", lambda: second.is_synced)
            assert world.contacts.own_claims[A].order == 7


async def test_a_session_that_is_newer_elsewhere_ends_the_one_here(world: EdgeSide) -> None:
    async with world.peer() as peer:
        await async_eventually("a synced peer", lambda: peer.is_synced)
        world.contacts.put_other("other", claim(2))
        await async_eventually("the connection closed", lambda: peer.close_code)
        assert peer.close_code == wire.Close.REPLACED
        assert world.duplicates == [], "an edge that went elsewhere is no other edge"
    world.contacts.put_other("other", claim(3))  # nothing to end any more


async def test_two_local_controllers_that_take_turns_on_two_replicas_are_told_apart(
    world: EdgeSide,
) -> None:
    """The one here is replaced by another ledger elsewhere, and comes back."""
    async with world.peer() as peer:
        await async_eventually("a synced peer", lambda: peer.is_synced)
        world.contacts.put_other("other", claim(2, "another-ledger"))
        await async_eventually("the connection closed", lambda: peer.close_code)
    assert world.duplicates == []
    async with world.peer() as peer:
        await async_eventually("a synced peer", lambda: peer.is_synced)
        assert world.duplicates == [A]
        assert world.contacts.own_claims[A].clashes == 1
