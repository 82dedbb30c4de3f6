"""A namespace with too many tasks on one node: what its neighbours get, and who is told."""

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from common import wire
from edgeai.api.jointinferenceservice import DEFINITION
from edgeai.api.resources import Object, ObjectRef
from edgeai.ids import TaskKey, Uid
from globalmanager.contract import Event, Kind, Plan, Served
from globalmanager.edge.sessions.left_out import EVENTS_BURST, LeftOutTasks
from globalmanager.edge.sessions.quota import NodeLimits, namespace_of
from tests.globalmanager.edge.world import A, EdgeSide, assignment, key
from tests.support.waiting import async_eventually

TYPE = DEFINITION.types[0]
KIND = Kind(
    definition=DEFINITION,
    read=dict,
    plan=lambda _observed, _now: Plan(),
)
LIMITS = NodeLimits(tasks=8)


async def test_the_neighbour_of_a_greedy_namespace_gets_and_reports_its_task(
    tmp_path: Path,
) -> None:
    async with EdgeSide(tmp_path / "tokens", node_limits=LIMITS).running() as world:
        for n in range(40):
            world.assign(n, A)
        async with world.peer() as peer:
            await async_eventually("a synced peer", lambda: peer.is_synced)
            assert len(peer.held) == LIMITS.tasks
            task = assignment(99)
            its_key = TaskKey(task.key.replace("/default/", "/neighbour/"))
            world.statuses.by_uid[task.uid] = {}
            world.desired.assign(its_key, {A: msgspec.structs.replace(task, key=its_key)})
            await async_eventually("the neighbour's task", lambda: its_key in peer.held)
            await peer.report(99)
            await async_eventually("peer.acked", lambda: peer.acked)
            assert [ack.refusal for ack in peer.acked] == [""]
            held = sorted(peer.held.keys() - {its_key})
            world.desired.forget(held[0])
            assert key(16) not in held
            await async_eventually("the next task", lambda: key(16) in peer.held)


async def test_a_node_that_many_namespaces_fill_keeps_its_session_and_serves_each(
    tmp_path: Path,
) -> None:
    limits = NodeLimits(tasks=8, node_tasks=16)
    async with EdgeSide(tmp_path / "tokens", node_limits=limits).running() as world:
        for n in range(33):
            task = assignment(n)
            its_key = TaskKey(task.key.replace("/default/", f"/tenant-{n % 4}/"))
            world.statuses.by_uid[task.uid] = {}
            world.desired.assign(its_key, {A: msgspec.structs.replace(task, key=its_key)})
        held: dict[TaskKey, wire.TaskVersion] = {}
        for _ in range(2):  # the second session begins with what the node holds
            async with world.peer(held=held) as peer:
                await async_eventually("a synced peer", lambda: peer.is_synced)
                parts = Counter(namespace_of(key) for key in peer.held)
                assert parts == {f"tenant-{n}": 4 for n in range(4)}
                await peer.report(11)
                await async_eventually("peer.acked", lambda: peer.acked)
                assert [ack.refusal for ack in peer.acked] == [""]
                held = peer.held
        assert len(held) == limits.node_tasks
        assert world.desired.left_out == 33 - limits.node_tasks


class EngineOfAnyJob:
    """Finds a job for each key, and keeps the Events."""

    def __init__(self) -> None:
        self.events: list[tuple[Object, Event]] = []

    def find(self, asked: TaskKey) -> Served | None:
        name = asked.rpartition("/")[2]
        object_ = {"metadata": {"name": name, "namespace": "default", "uid": Uid("u")}}
        return Served(KIND, ObjectRef(TYPE, "default", name), object_)

    def record(self, about: Object, event: Event) -> None:
        self.events.append((about, event))


async def test_the_user_of_a_task_that_is_left_out_is_told_by_a_few_events(
    capsys: pytest.CaptureFixture[str],
) -> None:
    engine = EngineOfAnyJob()
    left_out = LeftOutTasks(jobs=engine, recorder=engine, limits=LIMITS)
    for n in range(1000):
        left_out.tell(A, key(n))
    about, event = engine.events[0]
    assert (about["kind"], about["metadata"]["name"]) == ("JointInferenceService", "task-0")
    assert (event.reason, f"node {A}" in event.message) == ("TooManyTasks", True)
    assert EVENTS_BURST <= len(engine.events) < EVENTS_BURST + 10
    assert capsys.readouterr().out.count("too many tasks on one node") == 1
