"""Timers, deadlines, what is done, what is replaced, what is left at the end, and the end."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeai.api.resources import PODS, SERVICES, Object, ObjectRef
from edgeai.api.status import WAITING, Finding, Truth, left_s
from edgeai.api.training import CleanPods
from edgeai.ids import NodeName
from edgeai.times import rfc3339
from globalmanager.contract import Delete, Observed
from globalmanager.kinds.edge.federatedlearningjob import KIND
from globalmanager.kinds.shared import lifecycle, status
from globalmanager.kinds.shared.lifecycle import Timers
from tests.support.world import NOW, World, at, job

LONG_AGO = "2020-01-01T00:00:00Z"


def pod(name: str, phase: str = "Running", *, age_s: float = 0.0, going: bool = False) -> Object:
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    metadata["creationTimestamp"] = rfc3339(at(-age_s))
    if going:
        metadata["deletionTimestamp"] = rfc3339(NOW)
    return {"metadata": metadata, "status": {"phase": phase}}


def observed(*pods: Object, **known: Any) -> Observed:
    """A job with these pods of its own, and this status."""
    world = World(KIND, job(status=known))
    for each in pods:
        world.children[ObjectRef(PODS, "default", each["metadata"]["name"])] = each
    return world.observed()


def names(deletions: tuple[Delete, ...]) -> list[str]:
    for deletion in deletions:
        assert deletion.uid == f"uid-{deletion.ref.name}"
        assert (deletion.ref.type, deletion.ref.namespace) == (PODS, "default")
    return [deletion.ref.name for deletion in deletions]


# ---- timers -------------------------------------------------------------------------------------

WAIT = st.none() | st.floats()


@pytest.mark.parametrize(
    ("waits_s", "next_s"),
    [
        pytest.param((), None, id="none"),
        pytest.param((3.0, 2.0, 5.0), 2.0, id="the shortest"),
        pytest.param((0.0, -4.0, 7.0), 7.0, id="those that are over need none"),
        pytest.param((None, math.inf), None, id="those that never end need none"),
    ],
)
def test_the_next_timer_is_the_shortest_wait(
    waits_s: tuple[float | None, ...], next_s: float | None
) -> None:
    assert Timers().add(*waits_s).next_s == next_s


@given(st.lists(WAIT), st.lists(WAIT))
def test_timers_add_up_in_any_order_and_never_wake_at_once_or_never(
    one: list[float | None], other: list[float | None]
) -> None:
    next_s = Timers().add(*one).add(*other).next_s
    assert next_s == Timers().add(*other, *one).next_s
    assert next_s is None or 0 < next_s < math.inf


# ---- time ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("since", "limit_s", "seconds"),
    [
        pytest.param(rfc3339(at(-10)), 60.0, 50.0, id="some is left"),
        pytest.param(rfc3339(at(-60)), 60.0, 0.0, id="due"),
        pytest.param(rfc3339(at(-70)), 60.0, -10.0, id="over"),
        pytest.param(rfc3339(at(5)), 60.0, 65.0, id="another's clock is ahead"),
        pytest.param("2026-01-02T05:04:05+02:00", 60.0, 60.0, id="another time zone"),
        pytest.param(rfc3339(at(-10)), 0.0, -10.0, id="no time is given"),
        pytest.param(rfc3339(at(-10)), None, math.inf, id="no limit"),
        pytest.param(None, None, math.inf, id="neither"),
        pytest.param(None, 60.0, 7.0, id="no time yet"),
        pytest.param("soon", 60.0, 7.0, id="no time at all"),
        pytest.param({"a": 1}, 60.0, 7.0, id="garbage"),
    ],
)
def test_what_is_left(since: Any, limit_s: float | None, seconds: float) -> None:
    assert left_s(since, limit_s, NOW, unknown=7.0) == seconds


def test_of_what_has_not_begun_everything_is_left() -> None:
    assert left_s(None, 60.0, NOW) == math.inf


@pytest.mark.parametrize(
    ("known", "is_due", "value"),
    [
        pytest.param(None, False, None, id="not yet"),
        pytest.param(None, True, rfc3339(NOW), id="now"),
        pytest.param(LONG_AGO, True, LONG_AGO, id="the first time stays"),
        pytest.param(LONG_AGO, False, LONG_AGO, id="also when no longer due"),
        pytest.param("soon", True, rfc3339(NOW), id="garbage is replaced"),
        pytest.param("soon", False, None, id="garbage is removed"),
    ],
)
def test_the_first_time_is_kept(known: Any, is_due: bool, value: Any) -> None:
    seen = observed(startTime=known)
    assert lifecycle.first_time(seen, "startTime", NOW, is_due=is_due) == value


# ---- pods ---------------------------------------------------------------------------------------


def test_own_pods_are_those_that_the_job_made_itself() -> None:
    world = World(KIND, job()).pod("train", name="of-a-deployment")
    mine = pod("a")
    world.children[ObjectRef(PODS, "default", "a")] = mine
    world.children[ObjectRef(SERVICES, "default", "a")] = pod("a-service")
    assert lifecycle.own_pods(world.observed()) == [mine]


@pytest.mark.parametrize(
    ("known", "among", "expected"),
    [
        pytest.param(None, None, ["done"], id="succeeded now"),
        pytest.param(["gone"], None, ["done", "gone"], id="remembered without its pod"),
        pytest.param(["done"], None, ["done"], id="once"),
        pytest.param(["gone"], ["gone", "busy"], ["gone"], id="of those that the spec has"),
        pytest.param(["gone", 7, None, {}], None, ["done", "gone"], id="names only"),
        pytest.param({"gone": 1}, None, ["done"], id="garbage"),
    ],
)
def test_who_is_done_once_is_done_for_good(
    known: Any, among: list[str] | None, expected: list[str]
) -> None:
    seen = observed(pod("done", "Succeeded"), pod("busy"), pod("bad", "Failed"), finished=known)
    assert lifecycle.finished(seen, among=among) == expected


def test_not_more_names_are_believed_than_a_job_can_have() -> None:
    known = [f"worker-{index}" for index in range(lifecycle.MAX_FINISHED + 5)]
    assert len(lifecycle.finished(observed(finished=known))) == lifecycle.MAX_FINISHED


@pytest.mark.parametrize(
    ("pods", "deleted", "next_s"),
    [
        pytest.param([], [], None, id="no pod"),
        pytest.param([pod("a"), pod("b", "Succeeded", age_s=99)], [], None, id="none failed"),
        pytest.param([pod("a", "Failed", age_s=30)], ["a"], None, id="due"),
        pytest.param([pod("a", "Failed", age_s=10)], [], 20.0, id="not old enough"),
        pytest.param(
            [
                pod("a", "Failed", age_s=10),
                pod("b", "Failed", age_s=25),
                pod("c", "Failed", age_s=31),
            ],
            ["c"],
            5.0,
            id="each in its time",
        ),
        pytest.param([pod("a", "Failed", age_s=40, going=True)], [], None, id="on its way out"),
    ],
)
def test_failed_pods_are_replaced_when_they_are_old_enough(
    pods: list[Object], deleted: list[str], next_s: float | None
) -> None:
    deletions, timers = lifecycle.replacement(pods, NOW, after_s=30.0)
    assert (names(deletions), timers.next_s) == (deleted, next_s)


def test_a_failed_pod_of_unknown_age_is_replaced() -> None:
    ageless = pod("a", "Failed")
    del ageless["metadata"]["creationTimestamp"]
    deletions, timers = lifecycle.replacement([ageless], NOW, after_s=30.0)
    assert (names(deletions), timers.next_s) == (["a"], None)


@pytest.mark.parametrize(
    ("policy", "deleted"),
    [
        (CleanPods.ALL, ["pending", "running", "failed", "done"]),
        (CleanPods.RUNNING, ["pending", "running"]),
        (CleanPods.NONE, ["pending"]),  # it would wait for a master that has ended
    ],
)
def test_at_the_end_is_left_what_the_policy_leaves(policy: CleanPods, deleted: list[str]) -> None:
    pods = [
        pod("pending", "Pending"),
        pod("running"),
        pod("failed", "Failed"),
        pod("done", "Succeeded"),
        pod("going", going=True),
        pod("gone", "Succeeded", going=True),
    ]
    assert names(lifecycle.clean_up(pods, policy)) == deleted


def test_without_a_policy_only_what_runs_is_deleted() -> None:
    assert names(lifecycle.clean_up([pod("a"), pod("b", "Succeeded")])) == ["a"]


# ---- the end ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("conditions", "ended"),
    [
        pytest.param([], False, id="none"),
        pytest.param([{"type": "Failed", "status": "True"}], True, id="one"),
        pytest.param([{"type": "Failed", "status": "False"}], False, id="false"),
        pytest.param([{"type": "Training", "status": "True"}], False, id="no end"),
        pytest.param("garbage", False, id="garbage"),
    ],
)
def test_a_job_has_ended_when_a_final_condition_says_so(conditions: Any, ended: bool) -> None:
    seen = observed(conditions=conditions)
    assert lifecycle.has_ended(seen, ["Complete", "Failed"]) is ended


@pytest.mark.parametrize(
    ("completed", "ttl_s", "is_due", "next_s"),
    [
        pytest.param(rfc3339(at(-60)), 60.0, True, None, id="due"),
        pytest.param(rfc3339(at(-59)), 60.0, False, 1.0, id="not yet"),
        pytest.param(rfc3339(NOW), 0.0, True, None, id="at once"),
        pytest.param(LONG_AGO, None, False, None, id="never"),
        pytest.param(None, 0.0, False, None, id="not complete"),
        pytest.param("soon", 0.0, False, None, id="garbage"),
    ],
)
def test_a_job_outlives_its_end_by_its_time_to_live(
    completed: Any, ttl_s: float | None, is_due: bool, next_s: float | None
) -> None:
    seen = observed(completionTime=completed)
    deletions, timers = lifecycle.deletion_after(seen, ttl_s, NOW)
    assert deletions == ((Delete(seen.ref, seen.uid),) if is_due else ())
    assert timers.next_s == next_s


def concluded(seen: Observed, *findings: Finding, **more: Any) -> Any:
    fields = {"phase": "Training", "fields": {"active": 2}, **more}
    return lifecycle.conclude(seen, NOW, findings=findings, **fields)


NOT_YET = Finding("Training", Truth.FALSE, WAITING, "not yet")


def test_the_plan_says_what_every_job_says() -> None:
    plan = concluded(observed(), status.accepted(), NOT_YET, timers=Timers((9.0, 4.0)))
    assert plan.status == {
        "observedGeneration": 1,
        "phase": "Training",
        "conditions": status.conditions(observed(), [status.accepted(), NOT_YET], NOW),
        "startTime": rfc3339(NOW),
        "edgeNodes": None,
        "active": 2,
    }
    assert plan.requeue_after_s == 4.0


def test_what_is_said_already_is_not_said_again() -> None:
    said = concluded(observed(), status.accepted()).status
    assert concluded(observed(**said), status.accepted()).status is None


def test_a_job_that_is_not_accepted_has_not_begun() -> None:
    refused = Finding(status.ACCEPTED, Truth.FALSE, "InvalidSpec", "spec: is wrong")
    plan = concluded(observed(), refused)
    assert plan.status["startTime"] is None
    assert [event.reason for event in plan.events] == ["InvalidSpec"]


def test_nodes_bring_a_condition_before_the_end_and_a_timer() -> None:
    end = Finding("Complete", Truth.TRUE, "Complete", "done")
    nodes = [NodeName("edge1"), NodeName("edge0")]
    plan = concluded(observed(), status.accepted(), end=end, nodes=nodes)
    types = [entry["type"] for entry in plan.status["conditions"]]
    assert types == ["Accepted", "EdgeConnected", "Complete"]
    assert plan.status["edgeNodes"] == "edge0,edge1"
    assert plan.requeue_after_s == 40.0
