"""The size of an elastic TrainingJob in one plan: a table of what its pods do."""

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

import pytest

from edgeai.api.objects import LABEL_MANAGED_BY, LABEL_ROLE, MANAGER
from edgeai.api.resources import PODS, Object, ObjectRef
from globalmanager.kinds.elastic.trainingjob import room, snapshot, workers
from globalmanager.kinds.elastic.trainingjob.snapshot import KIND, STATES, ElasticSnapshot
from globalmanager.kinds.elastic.trainingjob.table import WorkerState, observe
from globalmanager.kinds.shared.job_conditions import Conditions
from tests.globalmanager.kinds.elastic.room import elastic
from tests.globalmanager.kinds.elastic.world import LAUNCHER, ElasticWorld, worker
from tests.support.world import NOW, merged

NODE: Final = {"spec": {"nodeName": "node"}}
UNSCHEDULABLE: Final = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
STATES_OF_PODS: Final[dict[str, Object]] = {
    "R": {**NODE, "status": {"phase": "Running"}},
    "U": {**NODE, "status": {"phase": "Pending"}},  # comes up
    "P": {"status": {"phase": "Pending", "conditions": [UNSCHEDULABLE]}},
    "S": {  # stuck
        **NODE,
        "status": {
            "phase": "Pending",
            "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}],
        },
    },
    "F": {**NODE, "status": {"phase": "Failed", "reason": "OutOfcpu"}},
    "E": {  # ends
        **NODE,
        "metadata": {"deletionTimestamp": "2026-01-02T03:04:35Z"},
        "status": {"phase": "Running"},
    },
    "W": {  # worn: the launcher of an earlier attempt
        **NODE,
        "metadata": {"annotations": {"edgeai.io/attempt": "0"}},
        "status": {"phase": "Running"},
    },
}


class Row(NamedTuple):
    """A job whose workers 0, 1, … do this, and the size that follows."""

    workers: str
    """A letter of STATES_OF_PODS for each worker; "N": no pod."""
    target: Sequence[int]
    """The indices of the workers that the job wants then."""
    launcher: str = "R"
    low: int = 1
    high: int = 9
    queued: int = 1
    had: Collection[int] = ()
    spent: Collection[int] = ()
    held: Collection[int] = ()
    again: Collection[int] = ()
    paused: Collection[int] = ()
    withheld: Collection[int] = ()
    waiting: int = 0


def job_of(row: Row, **status: Any) -> ElasticSnapshot:
    object_ = elastic(low=row.low, high=row.high, queued=row.queued)
    names = [worker(index) for index in range(len(row.workers))]
    object_["status"] = {
        "phase": "Running",
        "restartCount": 1,
        "targetWorkers": names,
        "nextWorkerIndex": len(names),
        **status,
    }
    world = ElasticWorld(object_)
    states = {LAUNCHER: row.launcher, **dict(zip(names, row.workers, strict=True))}
    for name, letter in states.items():
        if letter != "N":
            role = "launcher" if name == LAUNCHER else "worker"
            labels = {LABEL_ROLE: role, LABEL_MANAGED_BY: MANAGER}
            marks = {"edgeai.io/attempt": "1"}
            metadata = {"name": name, "namespace": "default", "uid": name, "labels": labels}
            pod = {"metadata": {**metadata, "annotations": marks}, "spec": {"containers": [{}]}}
            world.children[ObjectRef(PODS, "default", name)] = merged(pod, STATES_OF_PODS[letter])
    seen = world.observed()
    conditions = Conditions(seen, KIND, NOW, states=STATES)
    state = snapshot.state_of(seen)
    restarts = snapshot.count_in(seen, "restartCount")
    return ElasticSnapshot(seen, seen.spec, NOW, state, conditions, restarts, workers.present(seen))


def room_of(row: Row, **status: Any) -> room.Sizing:
    job = job_of(row, **status)
    names = {
        key: [worker(index) for index in getattr(row, key)]
        for key in ("had", "spent", "held", "again")
    }
    table = observe(job, names["had"], names["held"])
    # A failed pod is in the pause before its worker is made again, unless the row says otherwise.
    failed = [worker.name for worker in table.bucket(WorkerState.RETRYABLE, WorkerState.LOST)]
    table = table.changed(failed, WorkerState.WAITING)
    table = table.changed(names["spent"], WorkerState.TERMINAL)
    return room.resize(job, table.changed(names["again"], WorkerState.RETRYABLE), lost_count=0)


def in_state(found: room.Sizing, state: WorkerState) -> set[str]:
    return {worker.name for worker in found.table.bucket(state)}


ROWS: Final = {
    # as many wait as maxQueued says
    "grows": Row("RR", [0, 1, 2], waiting=1),
    "one waits": Row("RRP", [0, 1, 2], waiting=1),
    "comes up": Row("RRU", [0, 1, 2, 3], waiting=1),
    "at the limit": Row("RRR", [0, 1, 2], high=3),
    "pods that pend stay longest": Row("RPNN", [0, 1], waiting=1),
    "also behind others": Row("RNNP", [0, 3], waiting=1),
    "a pod that ends has no room": Row("RRE", [0, 1, 2], waiting=1),
    # workers without a pod that runs, and that do not wait
    "the launcher has it": Row("RNP", [0, 1, 2], had=[1], waiting=1),
    "ended for good": Row("RFP", [0, 1, 2], spent=[1], waiting=1),
    "a scaler takes care of it": Row("RNP", [0, 1, 2], held=[1], waiting=1),
    "those that ended need others": Row("RFP", [0, 1, 2, 3], low=3, spent=[1], waiting=2),
    # nodes that start no pod
    "a stuck one": Row("RSP", [0, 1, 2], waiting=2),
    "another one beside it": Row("RS", [0, 1, 2], waiting=2),
    "at most as many again": Row("RSS", [0, 1, 2], waiting=2),
    "and more with a longer queue": Row("RSSP", [0, 1, 2, 3, 4], queued=2, waiting=4),
    "nobody goes when all pend again": Row("RPP", [0, 1, 2], waiting=2),
    "a refused one": Row("RF", [0, 1, 2], waiting=2),
    "a refused one that is made again now": Row("RF", [0, 1], again=[1], waiting=1),
    # the launcher gets room first
    "no launcher": Row("RRPN", [0, 1, 2, 3], "N", paused=[2, 3], withheld=[1], waiting=2),
    "worn": Row("RP", [0, 1], "W", paused=[1], waiting=1),
    "ending": Row("RP", [0, 1], "E", paused=[1], waiting=1),
    "failed": Row("RP", [0, 1], "F", paused=[1], waiting=1),
    "stuck": Row("RP", [0, 1], "S", paused=[1], waiting=1),
    "comes up itself": Row("RP", [0, 1], "U", waiting=1),
    "no growth": Row("R", [0], "N"),
    "but to minReplicas": Row("R", [0, 1], "N", low=2, waiting=1),
    "those that it needs wait": Row(
        "RPPN", [0, 1, 2, 3], "N", low=2, queued=2, paused=[2, 3], waiting=3
    ),
    "of those the nearest": Row("RNP", [0, 1, 2], "N", low=2, paused=[1], waiting=2),
    "new ones are not listed": Row("RRR", [0, 1, 2], "N", had=[0, 1], withheld=[2]),
    "but those that it needs": Row("RRR", [0, 1, 2], "N", low=2, had=[0], withheld=[2]),
    "ended ones are of no use": Row("RRF", [0, 1, 2], "N", low=2, spent=[2]),
    "nor those that a scaler takes": Row("RRR", [0, 1, 2], "N", low=2, held=[2]),
    # and takes it back
    "takes back a new one": Row(
        "RRRP", [0, 1, 2, 3], "P", had=[0, 2], paused=[1, 3], withheld=[1], waiting=1
    ),
    "the last new one": Row("RRR", [0, 1, 2], "P", had=[0], paused=[2], withheld=[1, 2]),
    "else the last one": Row("RRR", [0, 1], "P", had=[0, 1, 2]),
    "not one that it needs": Row("RR", [0, 1], "P", low=2),
    "not one of a scaler": Row("RRR", [0, 2], "P", had=[0, 1, 2], held=[2]),
    "nor one that ended": Row("RRF", [0, 2], "P", had=[0, 1], spent=[2]),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_the_size_that_follows(row: Row) -> None:
    found = room_of(row)
    assert found.table.target == tuple(map(worker, row.target))
    assert in_state(found, WorkerState.PAUSED) == set(map(worker, row.paused))
    hidden = set(map(worker, row.withheld)) - set(map(worker, row.paused))
    assert in_state(found, WorkerState.HIDDEN) == hidden
    assert found.fields["elastic"]["waiting"] == row.waiting
    is_changed = row.target != [*range(len(row.workers))] or found.events
    assert ("lastScaleTime" in found.fields["elastic"]) == bool(is_changed)


# ---- what the status says -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "row", "reason"),
    [
        (10_000, Row("RR", []), "NoIndexLeft"),
        (10_000, Row("RP", []), "Unschedulable"),  # nobody else is wanted
        (9_999, Row("RR", []), ""),
    ],
)
def test_the_end_of_the_indices_is_told_when_a_worker_is_wanted(
    number: int, row: Row, reason: str
) -> None:
    fields = room_of(row, nextWorkerIndex=number).fields["elastic"]
    assert fields.get("reason", "") == reason


@pytest.mark.parametrize(
    ("known", "message"),
    [
        # (what the status said before, what it says now)
        (("Unschedulable", f"pod {worker(1)}: before"), "before"),
        (("Unschedulable", f"pod {worker(7)}: before"), "Unschedulable: "),
        (("ImagePullBackOff", f"pod {worker(1)}: before"), "Unschedulable: "),
        (("", ""), "Unschedulable: "),
    ],
)
def test_the_message_stays_while_pod_and_reason_do(known: tuple[str, str], message: str) -> None:
    before = {"reason": known[0], "message": known[1]}
    fields = room_of(Row("RP", []), elastic=before).fields["elastic"]
    assert fields["reason"] == "Unschedulable"
    assert fields["message"] == f"pod {worker(1)}: {message}"


def test_a_job_at_rest_keeps_limit_and_time() -> None:
    kept = {"limit": 3, "lastScaleTime": "2026-01-02T03:04:05Z"}
    known = {"ready": 1, "waiting": 1, "reason": "Unschedulable", "message": "…", **kept}
    job = job_of(Row("RP", []), elastic=known)
    assert room.at_rest(job.observed, {}) == {"elastic": {"ready": 0, "waiting": 0, **kept}}


def test_workers_that_are_not_wanted_count_as_nothing() -> None:
    fields = room_of(Row("RRR", []), targetWorkers=[worker(0), worker(1)]).fields["elastic"]
    assert (fields["ready"], fields["waiting"]) == (2, 1)


# ---- pauses -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("since", "next_index", "added", "wait_s"),
    [
        ("2026-01-02T03:04:05Z", 999, 1, None),
        ("2026-01-02T03:04:05Z", 1000, 0, 600.0),
        ("2026-01-02T02:54:06Z", 1000, 0, 1.0),
        ("2026-01-02T02:54:05Z", 1000, 1, None),
        ("2099-01-01T00:00:00Z", 1000, 1, None),
        ("", 1000, 1, None),
    ],
)
def test_many_indices_make_a_job_grow_slowly(
    since: str, next_index: int, added: int, wait_s: float | None
) -> None:
    known = {"lastScaleTime": since}
    found = room_of(Row("RR", []), nextWorkerIndex=next_index, elastic=known)
    assert len(found.table.target) == 2 + added
    assert found.timers.next_s == wait_s
