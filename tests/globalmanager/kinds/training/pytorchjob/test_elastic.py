"""Elastic PyTorchJobs: workers above minReplicas wait for room, and lost room is no failure."""

from typing import Any, Final

import msgspec
import pytest

from edgeai.api.resources import PODS, ObjectRef
from globalmanager.contract import Delete
from globalmanager.kinds.training import gangs
from globalmanager.kinds.training.pytorchjob import KIND
from tests.globalmanager.kinds.training.samples import (
    conditions,
    ended,
    numbers,
    pods,
    pytorch_spec,
)
from tests.support.world import NOW, World, at, job

FULL: Final = "0/3 nodes are available: 3 Insufficient cpu."
NO_ROOM: Final[dict[str, Any]] = {
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": FULL,
        }
    ]
}
EVICTED: Final[dict[str, Any]] = {"reason": "Evicted", "message": "The node was low on memory."}
PREEMPTED: Final[dict[str, Any]] = {
    **ended(143),
    "conditions": [
        {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    ],
}
WRONG: Final = {"minReplicas": 5, "maxReplicas": 4}
WORKERS: Final = [f"mnist-worker-{index}" for index in range(4)]


def world(
    *,
    policy: str = "",
    annotation: str | None = "true",
    elastic: dict[str, Any] | None = None,
    scheduler: str = "",
    **run: Any,
) -> World:
    """A job with four workers, of which two must run."""
    policy_of_elastic = {"minReplicas": 2, "maxReplicas": 4} if elastic is None else elastic
    spec = pytorch_spec(4, master=False, policy=policy, run=run, elasticPolicy=policy_of_elastic)
    made = job("mnist", spec)
    if annotation is not None:
        made["metadata"]["annotations"] = {"edgeai.io/elastic": annotation}
    result = World(KIND, made)
    if scheduler:
        result.settings = msgspec.structs.replace(result.settings, gang_scheduler_name=scheduler)
    return result


def bind(made: World, *names: str) -> World:
    """These pods have a node."""
    for name in names:
        ref = ObjectRef(PODS, "default", name)
        child = made.children[ref]
        made.children[ref] = {**child, "spec": {**child["spec"], "nodeName": "node"}}
    return made


def half_full(running: int = 2, **given: Any) -> World:
    """A job of which so many workers run, and the others have no room."""
    made = bind(world(**given).settle(), *WORKERS[:running])
    made.pods_become("Running", *WORKERS[:running])
    for name in WORKERS[running:]:
        made.pods_become("Pending", name, **NO_ROOM)
    return made.settle(at(1))


def test_the_workers_above_min_replicas_wait_without_stalling_the_job() -> None:
    made = half_full()
    made.settle(at(86400))
    assert conditions(made) == ["Created", "Running"]
    assert made.status["elastic"] == {
        "ready": 2,
        "waiting": 2,
        "reason": "Unschedulable",
        "message": f"pod mnist-worker-2: Unschedulable: {FULL}",
    }


@pytest.mark.parametrize("given", [{"annotation": None}, {"annotation": "false"}])
def test_without_the_annotation_such_a_job_stalls(given: dict[str, Any]) -> None:
    made = half_full(**given)
    made.settle(at(86400))
    assert conditions(made) == ["Stalled", "Created", "Running"]
    assert "elastic" not in made.status


def test_below_min_replicas_the_job_stalls() -> None:
    made = world().settle()
    bind(made, WORKERS[0]).pods_become("Running", WORKERS[0])
    made.pods_become("Pending", *WORKERS[1:], **NO_ROOM).settle(at(61))
    assert conditions(made) == ["Stalled", "Created", "Running"]


def test_a_settled_job_that_waits_writes_nothing() -> None:
    made = half_full()
    other = {**NO_ROOM["conditions"][0], "message": "0/9 nodes are available."}
    made.pods_become("Pending", *WORKERS[2:], conditions=[other])
    for seconds in (2, 100, 86400):
        plan = made.plan(at(seconds))
        assert (plan.actions, plan.status) == ((), None)


@pytest.mark.parametrize("policy", ["", "ExitCode", "Never", "Always"])
@pytest.mark.parametrize("state", [EVICTED, PREEMPTED], ids=["evicted", "preempted"])
def test_a_worker_that_loses_its_room_comes_back_and_counts_as_no_failure(
    policy: str, state: dict[str, Any]
) -> None:
    made = half_full(3, policy=policy, backoffLimit=1)
    for number in range(3):
        made.pods_become("Failed", WORKERS[1], **state)
        before = made.child("Pod", WORKERS[1])["metadata"]["uid"]
        made.settle(at(100 + number))
        assert made.child("Pod", WORKERS[1])["metadata"]["uid"] != before
    assert pods(made) == WORKERS
    assert conditions(made) == ["Created", "Running"]
    assert "restarts" not in made.status
    assert made.status["elastic"]["waiting"] == 2


def test_a_node_that_takes_no_pod_gets_one_every_ten_seconds() -> None:
    made = half_full()
    made.pods_become("Failed", WORKERS[1], reason="OutOfcpu")
    plan = made.plan(at(4))
    assert (plan.actions, plan.requeue_after_s) == ((), 6.0)
    assert numbers(made)["Worker"] == {"active": 2}


def test_a_worker_whose_program_fails_counts_as_before() -> None:
    made = half_full(policy="ExitCode", backoffLimit=1)
    made.pods_become("Failed", WORKERS[1], **ended(137)).settle(at(100))
    assert conditions(made)[-1] == "Failed"
    assert "elastic" not in made.status


def test_an_evicted_worker_of_a_job_that_is_not_elastic_counts_as_before() -> None:
    made = half_full(annotation=None, backoffLimit=1)
    made.pods_become("Failed", WORKERS[1], **EVICTED).settle(at(100))
    assert conditions(made)[-1] == "Failed"


def test_an_evicted_worker_restarts_no_other_one() -> None:
    made = half_full(restartScope="Job")
    made.pods_become("Failed", WORKERS[1], **EVICTED).settle(at(100))
    assert "jobRestarts" not in made.status
    assert made.child("Pod", WORKERS[0])["status"]["phase"] == "Running"


@pytest.mark.parametrize("scheduler", ["volcano", "scheduler-plugins-scheduler"])
@pytest.mark.parametrize(
    ("given", "least"),
    [
        ({}, 2),
        ({"annotation": None}, 4),
        ({"elastic": {}}, 4),
        ({"elastic": {"minReplicas": 9}}, 4),
        ({"schedulingPolicy": {"minAvailable": 3}}, 3),
    ],
)
def test_a_gang_has_the_pods_that_the_job_needs(
    scheduler: str, given: dict[str, Any], least: int
) -> None:
    made = world(scheduler=scheduler, **given)
    made.apply(made.plan(NOW))
    group = next(child for ref, child in made.children.items() if ref.type in gangs.OWNS)
    assert group["spec"]["minMember"] == least


def test_the_gang_counts_the_master() -> None:
    made = world(scheduler="volcano")
    spec = pytorch_spec(4, elasticPolicy={"minReplicas": 1, "maxReplicas": 4})
    made.change(spec).apply(made.plan(NOW))
    group = next(child for ref, child in made.children.items() if ref.type in gangs.OWNS)
    assert group["spec"]["minMember"] == 2


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"scheduler": "volcano", "schedulingPolicy": {"minAvailable": 4}}, "minAvailable: is 4"),
        ({"scheduler": "volcano", "schedulingPolicy": {"minAvailable": 2}}, None),
        ({"schedulingPolicy": {"minAvailable": 4}}, None),
    ],
)
def test_a_gang_of_more_pods_than_the_job_needs_is_told(
    given: dict[str, Any], named: str | None
) -> None:
    events = [each for each in world(**given).plan(NOW).events if each.reason == "NotElastic"]
    assert [named in each.message for each in events if named] == ([True] if named else [])
    assert len(events) == (named is not None)


def test_the_annotation_without_an_elastic_policy_has_no_effect_and_says_so() -> None:
    made = world()
    made.change(pytorch_spec(4, master=False))
    plan = made.plan(NOW)
    (told,) = [each for each in plan.events if each.reason == "NotElastic"]
    assert "spec.elasticPolicy" in told.message
    assert (plan.status or {})["elastic"]["reason"] == "NotElastic"


def test_a_suspended_job_has_no_waiting_workers() -> None:
    made = half_full()
    made.change({**made.object["spec"], "runPolicy": {"suspend": True}}).settle(at(2))
    assert pods(made) == []
    assert "elastic" not in made.status


# ---- edits of a job that runs -------------------------------------------------------------------


def annotate(made: World, value: str | None) -> World:
    """The user changes the annotation, which changes no generation."""
    marks = {} if value is None else {"edgeai.io/elastic": value}
    made.object["metadata"]["annotations"] = marks
    return made


def told(made: World, reason: str, seconds: float = 1) -> list[str]:
    """The messages of these events, until nothing changes any more."""
    found = []
    for _ in range(5):
        plan = made.plan(at(seconds))
        found += [each.message for each in plan.events if each.reason == reason]
        made.apply(plan)
    return found


def test_the_annotation_on_a_job_that_runs_without_an_elastic_policy_says_so_once() -> None:
    made = World(KIND, job("mnist", pytorch_spec(2, master=False))).settle()
    made.pods_become("Running").settle()
    (message,) = told(annotate(made, "true"), "NotElastic")
    assert "spec.elasticPolicy" in message
    assert made.status["elastic"] == {"reason": "NotElastic", "message": message}
    assert told(made, "NotElastic") == []
    annotate(made, None).settle(at(1))
    assert "elastic" not in made.status
    assert len(told(annotate(made, "true"), "NotElastic")) == 1


@pytest.mark.parametrize("policy", ["", "ExitCode", "Never", "Always"])
@pytest.mark.parametrize("state", [EVICTED, PREEMPTED], ids=["evicted", "preempted"])
@pytest.mark.parametrize("is_policy_removed", [False, True])
def test_a_worker_that_has_lost_its_room_comes_back_when_the_job_ceases_to_be_elastic(
    policy: str, state: dict[str, Any], is_policy_removed: bool
) -> None:
    made = half_full(3, policy=policy, backoffLimit=1)
    before = made.child("Pod", WORKERS[1])["metadata"]["uid"]
    made.pods_become("Failed", WORKERS[1], **state)
    if is_policy_removed:
        run = {"backoffLimit": 1}
        made.change(pytorch_spec(4, master=False, policy=policy, run=run))
    annotate(made, None).settle(at(2))
    assert conditions(made)[-1] == "Running"
    made.settle(at(20))
    assert made.child("Pod", WORKERS[1])["metadata"]["uid"] != before
    assert conditions(made)[-1] == "Running"
    assert "restarts" not in made.status
    assert "elastic" not in made.status
    made.pods_become("Failed", WORKERS[0], **EVICTED).settle(at(100))
    assert conditions(made)[-1] == "Failed"  # by the policy, or by the backoff limit


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        (pytorch_spec(2), pytorch_spec(3), "4 replicas, but 3 pods started with another number"),
        (pytorch_spec(3), pytorch_spec(1), "2 replicas, but 2 pods started with another number"),
        (pytorch_spec(2, master=False), pytorch_spec(3, master=False), "3 replicas, but 2 pods"),
        (pytorch_spec(2), pytorch_spec(2, run={"backoffLimit": 3}), None),
        (
            pytorch_spec(2, master=False, elasticPolicy={"minReplicas": 1, "maxReplicas": 4}),
            pytorch_spec(3, master=False, elasticPolicy={"minReplicas": 1, "maxReplicas": 4}),
            None,
        ),
    ],
)
def test_a_job_that_is_scaled_without_an_elastic_policy_says_that_its_pods_keep_their_world(
    before: dict[str, Any], after: dict[str, Any], named: str | None
) -> None:
    made = World(KIND, job("mnist", before))
    assert told(made, "WorldSizeChanged") == []
    made.pods_become("Running").settle()
    messages = told(made.change(after), "WorldSizeChanged")
    assert len(messages) == (named is not None)
    assert all(str(named) in message and "suspend" in message for message in messages)


def test_a_job_with_wrong_limits_does_not_start() -> None:
    made = world(elastic=WRONG).settle()
    assert conditions(made) == ["Created", "Failed"]
    message = made.condition("Failed")["message"]
    assert "spec.elasticPolicy.minReplicas: is 5, above maxReplicas 4; lower it" in message
    assert made.names() == []


@pytest.mark.parametrize("annotation", ["true", None])
def test_a_job_that_runs_goes_on_with_limits_that_an_edit_makes_wrong(
    annotation: str | None,
) -> None:
    made = half_full(4, annotation=annotation)
    spec = made.object["spec"]
    (message,) = told(made.change({**spec, "elasticPolicy": WRONG}), "PyTorchJobStalled")
    assert "spec.elasticPolicy.minReplicas is 5, above maxReplicas 4: lower it" in message
    assert "goes on" in message
    assert told(made, "PyTorchJobStalled") == []
    made.pods_become("Failed", WORKERS[1], **EVICTED).settle(at(20))
    assert pods(made) == WORKERS
    env = made.child("Pod", WORKERS[1])["spec"]["containers"][0]["env"]
    assert {"name": "PET_NNODES", "value": "4:4"} in env  # torchrun takes no 5:4
    assert made.condition("Stalled")["reason"] == "InvalidSpec"
    made.pods_become("Succeeded", WORKERS[0]).settle(at(30))
    assert conditions(made)[-1] == "Succeeded"


def test_a_job_whose_limits_are_corrected_has_not_stalled() -> None:
    made = half_full(4)
    spec = made.object["spec"]
    made.change({**spec, "elasticPolicy": WRONG}).settle(at(2))
    made.change(spec).settle(at(3))
    assert conditions(made) == ["Created", "Running"]


# ---- beside a master ----------------------------------------------------------------------------

MASTER: Final = "mnist-master-0"


def with_master(policy: str = "") -> World:
    """A job whose master and two of four workers run, and whose other workers have no room."""
    spec = pytorch_spec(4, policy=policy, elasticPolicy={"minReplicas": 1, "maxReplicas": 4})
    made = job("mnist", spec)
    made["metadata"]["annotations"] = {"edgeai.io/elastic": "true"}
    running = (MASTER, *WORKERS[:2])
    result = bind(World(KIND, made).settle(), *running).pods_become("Running", *running)
    return result.pods_become("Pending", *WORKERS[2:], **NO_ROOM).settle(at(1))


def test_a_worker_that_is_done_does_not_wait() -> None:
    made = with_master().pods_become("Succeeded", WORKERS[1]).settle(at(2))
    assert conditions(made) == ["Created", "Running"]
    assert made.status["elastic"]["ready"] == 1
    assert made.status["elastic"]["waiting"] == 2
    made.gone("Pod", WORKERS[1]).settle(at(3))
    assert made.status["elastic"]["waiting"] == 2


def test_the_master_is_no_worker_that_waits() -> None:
    made = with_master().pods_become("Pending", MASTER, **NO_ROOM).settle(at(2))
    assert (made.status["elastic"]["ready"], made.status["elastic"]["waiting"]) == (2, 2)


def test_the_loss_of_the_master_counts_as_before() -> None:
    made = with_master("Never").pods_become("Failed", MASTER, **EVICTED).settle(at(100))
    assert conditions(made)[-1] == "Failed"


def test_a_worker_without_room_is_deleted_once_also_when_the_whole_job_restarts() -> None:
    made = half_full(policy="ExitCode", restartScope="Job")
    made.pods_become("Failed", WORKERS[0], **ended(137))
    made.pods_become("Failed", WORKERS[1], **EVICTED)
    made.apply(made.plan(at(100)))
    assert made.status["jobRestarts"] == 1
    gone = [action.ref.name for action in made.plan(at(200)).actions if isinstance(action, Delete)]
    assert sorted(gone) == sorted({*gone})
    assert WORKERS[1] in gone
    made.settle(at(200))
    assert pods(made) == WORKERS


def test_an_evicted_worker_of_an_earlier_attempt_waits_its_ten_seconds() -> None:
    made = half_full(policy="ExitCode", restartScope="Job")
    made.pods_become("Failed", WORKERS[0], **ended(137))
    made.pods_become("Failed", WORKERS[1], **EVICTED)
    made.apply(made.plan(at(2)))
    gone = [action.ref.name for action in made.plan(at(4)).actions if isinstance(action, Delete)]
    assert WORKERS[0] in gone
    assert WORKERS[1] not in gone
