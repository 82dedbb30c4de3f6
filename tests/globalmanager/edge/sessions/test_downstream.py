"""Desired sets: who is told of what, against a model that is computed anew each time."""

from collections.abc import Mapping

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from common import wire
from common.ids import NodeName, TaskKey, WorkerName
from globalmanager.contract import Assignment
from globalmanager.edge.sessions.cloud_session import Desired
from globalmanager.edge.sessions.downstream import MAX_BODY_BYTES, Binding, DesiredSets
from tests.globalmanager.edge.world import NODES, A, B, assignment, key, uid

Change = tuple[NodeName, TaskKey, Desired | None]


def recorded() -> tuple[DesiredSets, list[Change]]:
    sets = DesiredSets()
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
    sets.assign(key(), {A: assignment(workers=("w", "v"))})
    assert sets.binding_of(A, uid()) == Binding(
        key(), frozenset({WorkerName("w"), WorkerName("v")})
    )
    assert sets.binding_of(B, uid()) is None
    assert sets.binding_of(A, uid(1)) is None


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


def steps_of(n: int) -> st.SearchStrategy[tuple[int, dict[NodeName, Assignment]]]:
    tasks = st.builds(
        assignment,
        st.just(n),
        version=st.integers(1, 3),
        workers=st.sampled_from([(), ("w",), ("w", "v")]),
        incarnation=st.sampled_from(["", "-new"]),
    )
    return st.tuples(st.just(n), st.dictionaries(st.sampled_from(NODES), tasks))


STEPS = st.lists(st.integers(0, 2).flatmap(steps_of), max_size=12)


@given(STEPS)
def test_followers_of_the_changes_know_the_sets(
    steps: list[tuple[int, Mapping[NodeName, Assignment]]],
) -> None:
    sets, changes = recorded()
    wanted: dict[TaskKey, Mapping[NodeName, Assignment]] = {}
    for n, by_node in steps:
        sets.assign(key(n), by_node)
        wanted[key(n)] = by_node
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
        expected = {k: by_node[node].version for k, by_node in wanted.items() if node in by_node}
        assert {k: task.version for k, task in own.items()} == expected


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
