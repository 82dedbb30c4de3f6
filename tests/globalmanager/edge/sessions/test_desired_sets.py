"""Desired sets: who is told of what, against a model that is computed anew each time."""

import uuid
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from common import wire
from edgeai.ids import NodeName, TaskKey, Uid, WorkerName
from globalmanager.contract import Assignment
from globalmanager.edge.sessions.cloud_session import MAX_HELD_BYTES, Desired
from globalmanager.edge.sessions.desired_sets import MAX_BODY_BYTES, Binding, DesiredSets
from globalmanager.edge.sessions.quota import NodeLimits, namespace_of
from tests.globalmanager.edge.world import NODES, A, B, assignment, key, uid

Change = tuple[NodeName, TaskKey, Desired | None]
Wanted = Mapping[NodeName, Assignment]


def recorded(limits: NodeLimits = NodeLimits()) -> tuple[DesiredSets, list[Change]]:  # noqa: B008
    sets = DesiredSets(limits)
    changes: list[Change] = []
    sets.subscribe(lambda *change: changes.append(change))
    return sets, changes


def test_only_the_pairs_that_changed_are_told() -> None:
    sets, changes = recorded()
    sets.assign(key(), {A: assignment(), B: assignment()})
    assert [change[:2] for change in changes] == [(A, key()), (B, key())]
    changes.clear()
    sets.assign(key(), {A: assignment(), B: assignment(version=2)})
    assert [(node, task and task.version) for node, _, task in changes] == [(B, 2)]
    changes.clear()
    sets.assign(key(), {A: assignment()})
    assert changes == [(B, key(), None)]


def test_forgetting_withdraws_everywhere_and_once() -> None:
    sets, changes = recorded()
    sets.assign(key(), {A: assignment()})
    changes.clear()
    sets.forget(key())
    sets.forget(key())
    assert changes == [(A, key(), None)]
    assert not sets.for_node(A)
    assert sets.binding_of(A, uid()) is None


def test_the_body_is_what_the_edge_decodes() -> None:
    sets, _ = recorded()
    task = assignment(spec={"a": [1, {"b": 2}]})
    sets.assign(key(), {A: task})
    assert wire.unpack(sets.for_node(A)[key()].body, wire.AssignmentBody) == task.body


def test_nodes_that_share_a_body_share_its_encoding() -> None:
    sets, _ = recorded()
    task = assignment()
    sets.assign(key(), {A: task, B: task})
    assert sets.for_node(A)[key()].body is sets.for_node(B)[key()].body


def test_a_report_is_bound_by_node_uid_and_worker() -> None:
    sets, _ = recorded()
    sets.assign(key(), {A: assignment(version=3, workers=("w", "v"))})
    assert sets.binding_of(A, uid()) == Binding(
        key(), 3, 3, frozenset({WorkerName("w"), WorkerName("v")})
    )
    assert sets.binding_of(B, uid()) is None
    assert sets.binding_of(A, uid(1)) is None


def test_a_binding_has_the_generation_that_reports_are_checked_against() -> None:
    sets, _ = recorded()
    for generation, expected in ((None, 3), (2, 2)):
        one = msgspec.structs.replace(assignment(version=3), generation=generation)
        sets.assign(key(), {A: one})
        binding = sets.binding_of(A, uid())
        assert binding
        assert (binding.version, binding.generation) == (3, expected)


def test_a_recreated_object_unbinds_its_past() -> None:
    sets, _ = recorded()
    sets.assign(key(), {A: assignment()})
    again = assignment(incarnation="-new")
    sets.assign(key(), {A: again})
    assert sets.binding_of(A, uid()) is None
    assert sets.binding_of(A, again.uid) is not None


def test_a_task_that_no_frame_can_carry_is_withdrawn_and_harms_no_other() -> None:
    sets, changes = recorded()
    sets.assign(key(), {A: assignment()})
    sets.assign(key(1), {A: assignment(1)})
    changes.clear()
    sets.assign(key(), {A: assignment(version=2, spec={"x": "y" * MAX_BODY_BYTES})})
    assert changes == [(A, key(), None)]
    assert sets.for_node(A).keys() == {key(1)}


def in_namespace(namespace: str, n: int, **fields: Any) -> Assignment:
    task = assignment(n, **fields)
    its_key = TaskKey(task.key.replace("/default/", f"/{namespace}/"))
    return msgspec.structs.replace(task, key=its_key, uid=Uid(f"{namespace}-{task.uid}"))


TASKS = (("default", 0), ("default", 1), ("default", 2), ("other", 0), ("other", 1), ("third", 0))


def steps_of(task: tuple[str, int]) -> st.SearchStrategy[tuple[TaskKey, Wanted]]:
    namespace, n = task
    tasks = st.builds(
        in_namespace,
        st.just(namespace),
        st.just(n),
        version=st.integers(1, 3),
        workers=st.sampled_from([(), ("w",), ("w", "v")]),
        incarnation=st.sampled_from(["", "-new"]),
    )
    its_key = in_namespace(namespace, n).key
    return st.tuples(st.just(its_key), st.dictionaries(st.sampled_from(NODES), tasks))


STEPS = st.lists(st.sampled_from(TASKS).flatmap(steps_of), max_size=16)


BODY_BYTES = len(wire.pack(assignment(workers=("w", "v")).body)) + len(key())
LIMITS = [
    NodeLimits(),
    NodeLimits(tasks=1),
    NodeLimits(tasks=2),
    NodeLimits(bytes=BODY_BYTES),
    NodeLimits(bytes=2 * BODY_BYTES),
    *(NodeLimits(node_tasks=number) for number in range(3, 6)),
    *(NodeLimits(node_bytes=number * BODY_BYTES) for number in range(1, 6)),
    NodeLimits(tasks=2, node_tasks=3, node_bytes=2 * BODY_BYTES),
]


def largest_part(wanted: list[int], limit: int, room: int) -> int:
    """By trying each."""
    return max(part for part in range(limit + 1) if sum(min(part, each) for each in wanted) <= room)


def admitted(sizes: Mapping[TaskKey, int], limits: NodeLimits) -> set[TaskKey]:
    """The first tasks by name of each namespace that fit into its part of the node."""
    by_namespace: dict[str, list[TaskKey]] = {}
    for each in sorted(sizes):
        by_namespace.setdefault(namespace_of(each), []).append(each)
    counts = [len(keys) for keys in by_namespace.values()]
    in_bytes = [sum(sizes[k] for k in keys) for keys in by_namespace.values()]
    tasks = largest_part(counts, min(limits.tasks, 9), limits.node_tasks)
    size_bytes = largest_part(in_bytes, min(limits.bytes, 4 * BODY_BYTES), limits.node_bytes)
    kept: list[TaskKey] = []
    for keys in by_namespace.values():
        used_bytes = 0
        for each in keys[:tasks]:
            used_bytes += sizes[each]
            if used_bytes > size_bytes:
                break
            kept.append(each)
    return set(kept)


@settings(max_examples=60)
@given(STEPS, st.sampled_from(LIMITS))
def test_followers_of_the_changes_know_the_sets(
    steps: list[tuple[TaskKey, Wanted]], limits: NodeLimits
) -> None:
    sets, changes = recorded(limits)
    wanted: dict[TaskKey, Wanted] = {}
    for its_key, by_node in steps:
        sets.assign(its_key, by_node)
        wanted[its_key] = by_node
    followed: dict[tuple[NodeName, TaskKey], Desired] = {}
    for node, task_key, task in changes:
        assert followed.get((node, task_key)) != task, "told of no change"
        if task is None:
            del followed[node, task_key]
        else:
            followed[node, task_key] = task
    for node in NODES:
        own = {k: task for (where, k), task in followed.items() if where == node}
        assert own == sets.for_node(node)
        bound = {k: by_node[node] for k, by_node in wanted.items() if node in by_node}
        sizes = {k: len(k) + len(wire.pack(task.body)) for k, task in bound.items()}
        kept = admitted(sizes, limits)
        assert {k: task.version for k, task in own.items()} == {k: bound[k].version for k in kept}
        for k, wanted_task in bound.items():
            assert (sets.binding_of(node, wanted_task.uid) is not None) == (k in kept)
    everything = sum(len(by_node) for by_node in wanted.values())
    assert sets.left_out == everything - sum(len(sets.for_node(node)) for node in NODES)


def test_a_namespace_with_too_many_tasks_takes_nothing_from_another() -> None:
    told: list[TaskKey] = []
    sets = DesiredSets(NodeLimits(tasks=10))
    sets.subscribe_left_out(lambda _node, key: told.append(key))
    greedy = [in_namespace("greedy", n) for n in range(20)]
    neighbour = [in_namespace("neighbour", n) for n in range(10)]
    for task in (*greedy, *neighbour):
        sets.assign(task.key, {A: task})
        sets.assign(task.key, {A: task})
    held = sets.for_node(A).keys()
    assert {task.key for task in neighbour} < held
    assert (len(held), sets.left_out, len(told)) == (20, 10, 10)
    for task in greedy[:10]:
        sets.forget(task.key)
    assert {task.key for task in greedy[10:]} < sets.for_node(A).keys()
    assert sets.left_out == 0


def test_the_namespaces_of_a_full_node_get_equal_parts_and_a_small_one_keeps_all() -> None:
    told: list[TaskKey] = []
    sets = DesiredSets(NodeLimits(tasks=10, node_tasks=20))
    sets.subscribe_left_out(lambda _node, key: told.append(key))
    small = [in_namespace("small", n) for n in range(4)]
    large = [in_namespace(name, n) for name in ("a", "b", "z") for n in range(10)]
    for task in (*small, *large):
        sets.assign(task.key, {A: task, B: task})
    for node in (A, B):
        parts = Counter(namespace_of(key) for key in sets.for_node(node))
        assert parts == {"small": 4, "a": 5, "b": 5, "z": 5}
    assert (sets.left_out, len(told)) == (30, 30)
    for task in large[:10]:
        sets.forget(task.key)
    parts = Counter(namespace_of(key) for key in sets.for_node(A))
    assert parts == {"small": 4, "b": 8, "z": 8}


def test_what_a_node_may_hold_fits_into_a_hello_also_while_it_is_replaced() -> None:
    assert 2 * NodeLimits().node_tasks <= wire.MAX_HELD
    longest = len("trainingjobs.kai.alibabacloud.com//") + 63 + 253 + len(str(uuid.UUID(int=0)))
    assert 2 * NodeLimits().node_tasks * longest <= MAX_HELD_BYTES


def test_a_worker_that_moves_is_bound_to_its_present_node_without_a_new_version() -> None:
    sets, changes = recorded()
    made = assignment()
    (worker,) = made.body.workers
    there = msgspec.structs.replace(made, reporting=frozenset({worker}))
    gone = msgspec.structs.replace(made, reporting=frozenset())
    for here, other in ((A, B), (B, A)):
        sets.assign(key(), {here: there, other: gone})
        bindings = [sets.binding_of(node, made.uid) for node in (here, other)]
        assert [binding and binding.workers for binding in bindings] == [
            frozenset({worker}),
            frozenset(),
        ]
    assert [change[:2] for change in changes] == [(A, key()), (B, key())]
