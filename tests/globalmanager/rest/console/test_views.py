"""Pages of objects that nobody expects: every type at every place, and very large ones."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from edgeai.api.elastic import SCALE_INS, SCALE_OUTS
from edgeai.api.resources import Object, ObjectRef
from edgeai.ids import NodeName
from globalmanager.edge.sessions.relay import RelayInfo
from globalmanager.rest.console import board as board_module
from globalmanager.rest.console import details, views
from globalmanager.rest.console.board import MAX_PHASE_CHARS, Board, Sight
from globalmanager.rest.console.theme import theme
from tests.globalmanager.rest.cluster import (
    JI,
    TYPES,
    JobCache,
    Relays,
    Sessions,
    board_of,
    object_of,
    session_info,
)

JOBS = partial(views.listing, "jobs")
SIGHT = Sight("", frozenset(TYPES), nodes=True, is_whole=True, pods=True)
JOB = {"type": f"{JI}.edgeai.io", "namespace": "default", "name": "digits"}
PAGES: list[tuple[views.View, dict[str, str]]] = [
    (views.overview, {}),
    (JOBS, {}),
    (views.job, JOB),
    (views.nodes, {}),
    (views.node, {"name": "node-1"}),
]
KEYS = [
    "phase",
    "conditions",
    "type",
    "status",
    "reason",
    "message",
    "lastTransitionTime",
    "metrics",
    "key",
    "value",
    "workers",
    "node",
    "attempt",
    "taskInfo",
    "observedAt",
    "replicaStatuses",
    "tfReplicaStatuses",
    "active",
    "succeeded",
    "failed",
    "round",
    "rounds",
    "labels",
    "creationTimestamp",
    "uid",
    "resourceVersion",
    "spec",
    "containerStatuses",
    "initContainerStatuses",
    "restartCount",
    "state",
    "terminated",
    "waiting",
    "exitCode",
    "startTime",
    "nodeName",
    "toAdd",
    "toDelete",
    "podNames",
    "count",
    "restarts",
    "elastic",
    "limit",
    "targetWorkers",
    "topology.kubernetes.io/zone",
]
WORDS = st.sampled_from(["Created", "True", "False", "Failed", "Succeeded", "node-1", "nan", "inf"])
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | WORDS
ANYTHING = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner, max_size=5)
    ),
    max_leaves=25,
)
NUMBERS = LEAVES | st.just(10**400)
HISTORIES = st.fixed_dictionaries(
    {"key": LEAVES, "rounds": st.lists(NUMBERS), "values": st.lists(NUMBERS)}
)
MAPS = st.dictionaries(st.sampled_from(KEYS), ANYTHING, max_size=8)


def board_with(object_: dict[str, Any]) -> Board:
    cluster = JobCache()
    cluster.objects = [object_, object_of("other")]
    return board_of(cluster)


def rendered(board: Board, view: views.View, path: dict[str, str]) -> str:
    page = view(board, SIGHT, views.PageAddress(path, {}))
    return theme().block(page.template, "live", **page.values, sight=SIGHT, scope="")


@given(
    status=MAPS | ANYTHING | st.fixed_dictionaries({"history": st.lists(HISTORIES)}),
    metadata=MAPS,
    spec=ANYTHING,
)
def test_no_object_breaks_a_page(status: Any, metadata: dict[str, Any], spec: Any) -> None:
    """The Kubernetes API promises the identity of an object, and nothing else."""
    usual = object_of("digits")
    identity = {"name": "digits", "namespace": "default", "uid": "u"}
    object_ = {**usual, "metadata": {**metadata, **identity}, "spec": spec, "status": status}
    board = board_with(object_)
    for view, path in PAGES:
        text = rendered(board, view, path)
        assert view in (views.nodes, views.node) or "digits" in text or view is views.overview
    assert "default/other" in rendered(board, JOBS, {})
    assert msgspec.json.encode(details.curve_by_round(object_))


@given(status=MAPS | ANYTHING, spec=ANYTHING, labels=MAPS | ANYTHING)
def test_no_pod_scaler_or_node_breaks_a_page(status: Any, spec: Any, labels: Any) -> None:
    job = object_of("digits")
    (type_,) = (each for each in TYPES if str(each) == JOB["type"])
    ref = ObjectRef(type_, JOB["namespace"], JOB["name"])
    other = {"metadata": {"name": "other", "uid": "u"}, "spec": spec, "status": status}
    node = {"metadata": {"name": "node-1", "labels": labels}, "spec": spec, "status": status}
    cluster = JobCache()
    cluster.objects, cluster.pods_of[ref] = [job], [other]
    cluster.scalers_of[ref] = {ObjectRef(type_, "default", kind): other for kind in ("a", "b")}
    cluster.nodes = lambda: (node,)  # type: ignore[method-assign]
    board = board_of(cluster)
    for view, path in PAGES:
        assert rendered(board, view, path)
    for kind in (SCALE_INS, SCALE_OUTS):
        assert details.scale_row(ObjectRef(kind, "default", "x"), other)
    assert details.is_troubled(other) in (True, False)


# Made when they are needed: each process that collects the tests would make and keep them all.
LARGE: dict[str, Callable[[], Object]] = {
    "one long text": lambda: {"a": "y z\n" * 400_000},
    "many texts": lambda: {f"k{number}": "x" * 1000 for number in range(1500)},
    "long keys": lambda: {f"{number}" + "k" * 10_000: 1 for number in range(150)},
    "many numbers": lambda: {"l": list(range(100_000))},
    "many maps": lambda: {f"k{number}": {"a": {}} for number in range(50_000)},
    "many empty texts": lambda: {"l": [""] * 100_000},
}


@pytest.mark.parametrize("what", LARGE)
def test_the_yaml_of_a_large_object_is_cut_before_it_is_encoded(what: str) -> None:
    """The event loop waits for it, and with the loop the sessions of all nodes."""
    text = views._yaml({**object_of("digits"), "spec": LARGE[what]()})
    assert text.endswith("# (cut)\n")
    assert len(text) < 3 * views.MAX_YAML_CHARS
    found = yaml.safe_load(text)
    assert found["metadata"]["name"] == "digits"
    assert count_of(found) <= views.MAX_YAML_CHARS / 20


def test_the_yaml_of_an_object_is_whole() -> None:
    object_ = object_of("digits")
    text = views._yaml(object_)
    metadata = {key: value for key, value in object_["metadata"].items() if key != "managedFields"}
    assert yaml.safe_load(text) == {**object_, "metadata": metadata}


def count_of(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(count_of, value.values()))
    return 1 + sum(map(count_of, value)) if isinstance(value, list) else 1


def test_a_page_shows_a_bounded_part_of_a_large_status() -> None:
    many = range(5000)
    status = {
        "phase": "p" * 100_000,
        "conditions": [{"type": f"c{number}", "status": "True"} for number in many],
        "metrics": [{"key": f"m{number}", "value": "1"} for number in many],
        "workers": {f"w{number}": {"node": "node-1"} for number in many},
        "replicaStatuses": {f"r{number}": {"active": 1} for number in many},
    }
    board = board_with({**object_of("digits"), "status": status})
    for view, path in PAGES:
        assert len(rendered(board, view, path)) < 350_000


def test_each_text_of_a_status_is_bounded() -> None:
    """A page is sent again at each change, to each open browser."""
    long = "<b>" * 11_000  # 32 KiB
    condition = dict.fromkeys(("type", "status", "reason", "message", "lastTransitionTime"), long)
    worker = dict.fromkeys(("node", "attempt", "phase", "observedAt"), long)
    status = {
        "phase": long,
        "round": long,
        "rounds": long,
        "conditions": [condition] * 5,
        "metrics": [{"key": long, "value": long}] * 2,
        "workers": {long: {**worker, "taskInfo": {long: long}}},
        "replicaStatuses": {long: dict.fromkeys(("active", "succeeded", "failed"), long)},
        "restarts": {long: 3},
        "targetWorkers": [long],
        "currentScaler": long,
    }
    object_ = {**object_of("digits"), "status": status}
    page = views.job(board_with(object_), SIGHT, views.PageAddress(JOB, {}))
    text = theme().block("job.html", "live", **{**page.values, "yaml": ""}, sight=SIGHT, scope="")
    assert len(text) < 5 * views.MAX_MESSAGE_CHARS * 4 + 40_000
    assert "<b>" * 3 not in text


@pytest.mark.parametrize(
    ("view", "path", "row"),
    [(views.job, JOB, 'id="worker-'), (views.node, {"name": "node-1"}, 'data-label="Job"')],
)
def test_a_thousand_workers_are_counted_and_some_are_shown(
    view: views.View, path: dict[str, str], row: str
) -> None:
    workers = {f"w-{number}": {"node": "node-1"} for number in range(1000)}
    board = board_with({**object_of("digits"), "status": {"workers": workers}})
    text = rendered(board, view, path)
    assert (text.count(row), "and 800 more" in text) == (200, True)


def test_labels_of_a_node_stay_text() -> None:
    labels = {"topology.kubernetes.io/zone": "<script>alert(1)</script>" * 100}
    odd = {"topology.kubernetes.io/zone": {"a": 1}}
    cluster = JobCache()
    board = board_of(cluster)
    nodes = (
        {"metadata": {"name": "a", "labels": labels}},
        {"metadata": {"name": "b", "labels": odd}},
    )
    cluster.nodes = lambda: nodes  # type: ignore[method-assign]
    for view, path in ((views.nodes, {}), (views.node, {"name": "a"}), (views.overview, {})):
        text = rendered(board, view, path)
        assert ("<script>" in text, len(text) < 6000) == (False, True)


def test_each_part_of_a_large_status_is_bounded() -> None:
    status = {
        "phase": "p" * 1000,
        "metrics": [{"key": f"m{number}", "value": "1"} for number in range(5000)],
    }
    values = views.job(
        board_with({**object_of("digits"), "status": status}), SIGHT, views.PageAddress(JOB, {})
    ).values
    assert len(values["row"].phase) == MAX_PHASE_CHARS
    assert (len(values["metrics"]), len(values["numbers"])) == (views.MAX_ROWS, views.MAX_ROWS)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e999", "many", ""])
def test_what_is_no_number_is_no_point_of_a_curve(value: str) -> None:
    metrics = [{"key": "accuracy", "value": "0.5"}, {"key": "odd", "value": value}]
    board = board_with({**object_of("digits"), "status": {"metrics": metrics}})
    assert views.job(board, SIGHT, views.PageAddress(JOB, {})).values["numbers"] == {
        "accuracy": 0.5
    }


def test_the_curves_of_a_federation_are_there_while_it_has_no_metrics() -> None:
    history = [{"key": "loss", "rounds": [1], "values": ["1"]}]
    texts = [
        rendered(board_with({**object_of("digits"), "status": status}), views.job, JOB)
        for status in ({"history": history}, {})
    ]
    assert ['id="metrics-curves"' in text for text in texts] == [True, False]


def test_the_map_of_many_nodes_is_bounded_and_counts_them_all() -> None:
    cluster = JobCache()
    cluster.node_names = [f"n-{number}" for number in range(3 * views.MAX_CELLS)]
    board = board_of(cluster)
    text = rendered(board, views.nodes, {})
    assert text.count('<a class="cell') == views.MAX_CELLS
    assert f"no site · {3 * views.MAX_CELLS}" in text
    assert f"and {2 * views.MAX_CELLS} more" in text


async def test_rows_that_nobody_has_looked_at_let_others_run_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 5,000 jobs they would take the event loop, and with it the sessions, for 0.2 s."""
    monkeypatch.setattr(board_module, "SLICE_S", 0.0)
    cluster = JobCache()
    cluster.objects = [object_of(f"j{number}", namespace="a") for number in range(50)]
    board, turns = board_of(cluster), 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    await board.prepare(SIGHT._replace(namespace="b"))
    assert (turns, len(board._rows)) == (0, 0)
    await board.prepare(SIGHT)
    task.cancel()
    assert (turns >= 50, len(board._rows)) == (True, 50)
    computed = board._computed
    assert len(board.jobs(SIGHT)) == len(board.jobs(SIGHT._replace(namespace="a"))) == 50
    assert board._computed == computed


def test_rows_of_jobs_that_are_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_module, "MAX_COMPUTED", 40)
    cluster = JobCache()
    board = board_of(cluster)
    for number in range(5):
        names = [f"j{number}-{each}" for each in range(20)]
        cluster.objects = [object_of(name, namespace="a") for name in names]
        assert len(board.jobs(SIGHT._replace(namespace="a"))) == len(names)
    assert len(board._rows) <= 60


def test_a_changed_job_has_another_row() -> None:
    object_ = object_of("digits")
    board = board_with(object_)
    changed = {**object_, "metadata": {**object_["metadata"], "resourceVersion": "8"}}
    board.jobs(SIGHT)
    board._cache.objects[0] = {**changed, "status": {"phase": "Failed"}}  # type: ignore[attr-defined]
    assert [row.phase for row in board.jobs(SIGHT)] == ["Failed", "Running"]


def test_what_comes_from_all_namespaces_is_for_who_sees_all() -> None:
    sessions, relays = Sessions(), Relays()
    sessions.live = [session_info(held=7)]
    relays.open["node-1"] = RelayInfo(1, 2, 3)
    board = board_of(JobCache(), sessions, relays=relays)

    def told(sight: Sight) -> tuple[object, ...]:
        row = board.node(sight, NodeName("node-1"))
        assert row is not None
        return row.tasks_desired, row.tasks_held, row.last_report_at, row.relay

    assert None not in told(SIGHT)
    assert set(told(SIGHT._replace(is_whole=False))) == {None}


def test_a_node_alone_is_the_node_among_all() -> None:
    board = board_with(object_of("digits"))
    for sight in (SIGHT, SIGHT._replace(is_whole=False), SIGHT._replace(nodes=False)):
        rows = {row.name: row for row in board.nodes(sight)}
        for name in ("node-1", "node-2", "node-3"):
            assert board.node(sight, NodeName(name)) == rows.get(name)
