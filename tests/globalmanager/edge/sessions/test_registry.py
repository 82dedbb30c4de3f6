"""What connected nodes hold and hear, one session for each node. Real sockets throughout."""

import contextlib

import pytest
from websockets.exceptions import InvalidStatus

from common import wire
from common.version import VERSION, user_agent
from edgeai.ids import Uid
from globalmanager.edge.sessions.registry import FLAP_COUNT, FLAP_WINDOW_S, Replacements
from tests.globalmanager.edge.world import A, B, EdgeSide, Peer, dial, key, token, uid
from tests.support.waiting import async_eventually


def held(n: int, version: int = 1, incarnation: str = "") -> wire.TaskVersion:
    return wire.TaskVersion(Uid(uid(n) + incarnation), version)


SYNC: dict[str, tuple[dict[int, wire.TaskVersion], list[str]]] = {
    "nothing held": ({}, ["Assign 0", "Assign 1", "Synced"]),
    "older version held": ({0: held(0, 1), 1: held(1, 5)}, ["Assign 0", "Synced"]),
    "all equal": ({0: held(0, 2), 1: held(1, 5)}, ["Synced"]),
    "newer held": ({0: held(0, 3), 1: held(1, 5)}, ["Synced"]),
    "of an object that was re-created": (
        {0: held(0, 9, "-old"), 1: held(1, 5)},
        ["Assign 0", "Synced"],
    ),
    "one too many": ({0: held(0, 2), 1: held(1, 5), 2: held(2)}, ["Synced"]),
}


@pytest.mark.parametrize(("before", "expected"), SYNC.values(), ids=SYNC.keys())
async def test_sync_sends_what_differs_and_no_more(
    world: EdgeSide, before: dict[int, wire.TaskVersion], expected: list[str]
) -> None:
    world.assign(0, A, version=2)
    world.assign(1, A, version=5)
    async with world.peer(held={key(n): what for n, what in before.items()}) as peer:
        await async_eventually("a synced peer", lambda: peer.is_synced)
        assert [describe(frame) for frame in peer.frames] == expected
        assert peer.held.keys() == {key(0), key(1)}


def describe(frame: wire.Assign | wire.Withdraw | wire.Synced) -> str:
    name = type(frame).__name__
    return name if isinstance(frame, wire.Synced) else f"{name} {frame.key[-1]}"


async def test_a_node_gets_its_own_tasks_only(world: EdgeSide) -> None:
    world.assign(0, A)
    world.assign(1, B)
    world.assign(2, A, B)
    async with world.peer(A) as a, world.peer(B) as b:
        await async_eventually("both peers synced", lambda: a.is_synced and b.is_synced)
        assert a.held.keys() == {key(0), key(2)}
        assert b.held.keys() == {key(1), key(2)}


async def test_changes_reach_a_connected_node(world: EdgeSide) -> None:
    world.assign(0, A)
    async with world.peer() as peer:
        await async_eventually("a synced peer", lambda: peer.is_synced)
        world.assign(0, A, version=2, spec={"x": 1})
        world.assign(1, A)
        await async_eventually(
            "peer.held.get(key(0)) == held(0, 2) and key(1) in peer.held",
            lambda: peer.held.get(key(0)) == held(0, 2) and key(1) in peer.held,
        )
        assert wire.unpack(peer.bodies[key(0)], wire.AssignmentBody).spec == {"x": 1}
        world.desired.forget(key(0))
        await async_eventually("peer.held.keys() == {key(1)}", lambda: peer.held.keys() == {key(1)})


async def test_a_task_that_moves_leaves_its_former_node(world: EdgeSide) -> None:
    world.assign(0, A)
    async with world.peer(A) as a, world.peer(B) as b:
        await async_eventually("both peers synced", lambda: a.is_synced and b.is_synced)
        world.assign(0, B)
        await async_eventually(
            "not a.held and key(0) in b.held", lambda: not a.held and key(0) in b.held
        )


async def test_versions_that_come_while_one_is_unacknowledged_are_coalesced(
    world: EdgeSide,
) -> None:
    async with world.peer(acknowledges=False) as peer:
        await async_eventually("a synced peer", lambda: peer.is_synced)
        world.assign(0, A, version=1)
        await async_eventually("key(0) in peer.held", lambda: key(0) in peer.held)
        for version in range(2, 50):
            world.assign(0, A, version=version)
        await peer.acknowledge_all()
        await async_eventually(
            "peer.held[key(0)].version == 49", lambda: peer.held[key(0)].version == 49
        )
        versions = [frame.version for frame in peer.frames if isinstance(frame, wire.Assign)]
        assert versions == [1, 49]


async def test_the_newer_session_of_a_node_wins(world: EdgeSide) -> None:
    async with world.peer() as older:
        await async_eventually("the older peer synced", lambda: older.is_synced)
        async with world.peer() as newer:
            await async_eventually(
                "the newer peer synced, the older closed",
                lambda: newer.is_synced and older.close_code,
            )
            assert older.close_code == wire.Close.REPLACED
            world.assign(0, A)
            await async_eventually("key(0) in newer.held", lambda: key(0) in newer.held)
            assert not older.held
            assert world.contact_changes == [A], "one took over from the other: no loss of contact"
        await async_eventually(
            "no contact any more",
            lambda: not world.contacts.by_node()[A].connected,
        )


async def test_revoking_a_connection_that_was_replaced_leaves_the_newer_session(
    world: EdgeSide,
) -> None:
    async with world.peer() as older:
        await async_eventually("the older peer synced", lambda: older.is_synced)
        (connection,) = world.server._connections
        async with world.peer() as newer:
            await async_eventually(
                "the newer peer synced, the older closed",
                lambda: newer.is_synced and older.close_code,
            )
            world.sessions.revoke(A, connection)
            world.assign(0, A)
            await async_eventually(
                "key(0) in newer.held or newer.close_code",
                lambda: key(0) in newer.held or newer.close_code,
            )
            assert newer.close_code is None


async def test_a_connection_without_hello_does_not_replace_a_session(world: EdgeSide) -> None:
    async with world.peer() as peer:
        await async_eventually("a synced peer", lambda: peer.is_synced)
        async with world.socket():
            world.assign(0, A)
            await async_eventually("key(0) in peer.held", lambda: key(0) in peer.held)
        assert peer.close_code is None


async def synced(peer: Peer) -> None:
    await async_eventually("a synced peer", lambda: peer.is_synced)


async def test_a_flapping_pair_is_held_off_and_reported(world: EdgeSide) -> None:
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(FLAP_COUNT + 1):
            peer = await stack.enter_async_context(world.peer())
            await synced(peer)
        assert world.duplicates == [A]
        with pytest.raises(InvalidStatus) as refused:
            async with dial(world.url, token(A)):
                pass
        assert refused.value.response.status_code == 503
        assert refused.value.response.headers["Retry-After"] == "30"
        assert peer.close_code is None, "the last one stays"
        async with world.peer(B) as other:
            await async_eventually("the other peer synced", lambda: other.is_synced)
    await async_eventually(
        "no contact any more",
        lambda: not world.contacts.by_node()[A].connected,
    )
    async with world.peer() as alone:
        await async_eventually("a synced peer", lambda: alone.is_synced)


@pytest.mark.parametrize(
    ("instances", "reported"),
    [("ab", 0), ("aba", 1), ("abc", 0), ("aaa", 0)],
    ids=["ledger lost", "two take turns", "lost twice", "one comes back"],
)
async def test_two_local_controllers_are_reported_once_they_take_turns(
    world: EdgeSide, instances: str, reported: int
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        for instance in instances:
            peer = await stack.enter_async_context(world.peer(instance=instance))
            await synced(peer)
        assert world.duplicates == [A] * reported


def test_a_node_flaps_from_the_third_replacement_until_the_first_is_old() -> None:
    replacements = Replacements()
    assert [replacements.note(A, now) for now in (0.0, 10.0, 20.0)] == [False, False, True]
    assert replacements.is_flapping(A, FLAP_WINDOW_S - 1)
    assert not replacements.is_flapping(A, FLAP_WINDOW_S)
    assert not replacements.is_flapping(B, 20.0)


def test_rare_replacements_are_no_flapping() -> None:
    replacements = Replacements()
    assert not any(replacements.note(A, n * FLAP_WINDOW_S) for n in range(10))


async def test_contacts_remember_a_node_that_left(world: EdgeSide) -> None:
    assert not world.contacts.by_node()
    async with world.peer() as peer:
        await async_eventually("a synced peer", lambda: peer.is_synced)
        connected = world.contacts.by_node()[A]
        assert connected.connected
        assert world.contact_changes == [A]
    await async_eventually(
        "world.contact_changes == [A, A]", lambda: world.contact_changes == [A, A]
    )
    left = world.contacts.by_node()[A]
    assert not left.connected
    assert left.since > connected.since


async def test_snapshot_tells_what_a_session_holds(world: EdgeSide) -> None:
    world.assign(0, A)
    world.assign(1, A)
    async with world.peer(acknowledges=False) as peer:
        await async_eventually("a synced peer", lambda: peer.is_synced)
        (info,) = world.sessions.snapshot()
        assert (info.desired, info.held, info.synced) == (2, 0, False)
        await peer.acknowledge_all()
        await async_eventually(
            "next(iter(world.sessions.snapshot())).synced",
            lambda: next(iter(world.sessions.snapshot())).synced,
        )
        (info,) = world.sessions.snapshot()
        assert (info.node, info.ledger_id, info.protocol_version) == (A, "ledger-1", 1)
        assert (info.desired, info.held) == (2, 2)
        assert peer.welcomed == wire.Welcome(epoch=7, session=info.session, version=1)
    await async_eventually(
        "not list(world.sessions.snapshot())", lambda: not list(world.sessions.snapshot())
    )
    assert world.sessions.desired_count(A) == 2


@pytest.mark.parametrize(
    ("agent", "release"),
    [
        (user_agent(), VERSION),
        ("edgeai-localcontroller/0.2.0-rc.1+x", "0.2.0-rc.1+x"),
        ("edgeai-localcontroller/<script>", ""),
        ("edgeai-localcontroller/" + "9" * 33, ""),
        ("Python/3.11 websockets/15", ""),
        (None, ""),
    ],
)
async def test_a_session_tells_the_release_of_its_local_controller(
    world: EdgeSide, agent: str | None, release: str
) -> None:
    async with world.peer(agent=agent) as peer:
        await async_eventually("a synced peer", lambda: peer.is_synced)
        (info,) = world.sessions.snapshot()
        assert (info.release, info.opened_at is not None) == (release, True)


async def test_why_a_node_has_no_session_is_told_until_it_has_one(world: EdgeSide) -> None:
    async with dial(world.url, token(A)) as websocket:
        await websocket.send(wire.encode(wire.Hello([99], "ledger-1", {}))[0])
        await async_eventually(
            "'no common protocol version' in world.sessions.problem(A)",
            lambda: "no common protocol version" in world.sessions.problem(A),
        )
    assert world.sessions.problem(B) == ""
    async with world.peer() as peer:
        await async_eventually("a synced peer", lambda: peer.is_synced)
        assert world.sessions.problem(A) == ""
    await async_eventually("world.sessions.problem(A)", lambda: world.sessions.problem(A))


async def test_the_session_that_was_replaced_is_no_problem(world: EdgeSide) -> None:
    async with world.peer() as older, world.peer() as newer:
        await async_eventually(
            "older.close_code == wire.Close.REPLACED and newer.is_synced",
            lambda: older.close_code == wire.Close.REPLACED and newer.is_synced,
        )
        assert world.sessions.problem(A) == ""


async def test_time_from_assignment_to_acknowledgement_is_measured(world: EdgeSide) -> None:
    async with world.peer() as peer:
        await async_eventually("a synced peer", lambda: peer.is_synced)
        world.assign(0, A)
        await async_eventually(
            "world.sample('edgeai_edge_assign_to_ack_seconds_count') == 1",
            lambda: world.sample("edgeai_edge_assign_to_ack_seconds_count") == 1,
        )
        world.desired.forget(key(0))
        await async_eventually(
            "world.sample('edgeai_edge_assign_to_ack_seconds_count') == 2",
            lambda: world.sample("edgeai_edge_assign_to_ack_seconds_count") == 2,
        )


async def test_a_refused_assignment_is_counted_and_not_repeated(world: EdgeSide) -> None:
    async with world.peer(acknowledges=False) as peer:
        await async_eventually("a synced peer", lambda: peer.is_synced)
        world.assign(0, A)
        await async_eventually("len(peer.frames) == 2", lambda: len(peer.frames) == 2)
        peer.session.acknowledge(peer.frames[-1].seq, refusal="no room")
        await peer.flush()
        await async_eventually(
            "world.sample('edgeai_edge_assignments_refused_total') == 1",
            lambda: world.sample("edgeai_edge_assignments_refused_total") == 1,
        )
        assert next(iter(world.sessions.snapshot())).held == 0
        assert len(peer.frames) == 2
