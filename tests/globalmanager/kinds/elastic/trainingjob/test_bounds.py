"""The bounds of a TrainingJob: indices, numbers in one plan, times, and changes that come twice."""

from typing import Any

import pytest

from edgeai.api.resources import PODS
from globalmanager.contract import Create, Delete, Patch
from globalmanager.kinds.elastic.trainingjob.spec import MAX_INDEX
from globalmanager.kinds.elastic.trainingjob.table import recorded
from tests.globalmanager.kinds.elastic.scalers.test_hostile import forge, in_time
from tests.globalmanager.kinds.elastic.world import (
    LAUNCHER,
    ElasticWorld,
    example,
    training,
    worker,
)
from tests.globalmanager.kinds.training.samples import ended
from tests.support.world import at

LONG_AGO = "2026-01-02T03:00:00Z"
READ = 20.0  # seconds after which the launcher has surely read a list of hosts


def workers(*indices: int) -> list[str]:
    return [worker(index) for index in indices]


def status_of(world: ElasticWorld, **fields: Any) -> ElasticWorld:
    """Somebody writes the status of the job."""
    world.object["status"] |= fields
    return world


def terminating(world: ElasticWorld, *names: str) -> ElasticWorld:
    for ref, child in world.children.items():
        if ref.name in names:
            child["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:35Z"
    return world


# ---- indices ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("next_index", "count", "added"),
    [
        (MAX_INDEX - 1, 2, [MAX_INDEX - 1, MAX_INDEX]),
        (MAX_INDEX, 1, [MAX_INDEX]),
        (MAX_INDEX, 2, []),
        (MAX_INDEX + 1, 1, []),
    ],
)
def test_a_scale_out_uses_the_last_index_and_none_beyond(
    next_index: int, count: int, added: list[int]
) -> None:
    world = status_of(training(), nextWorkerIndex=next_index).scale_out(count).settle()
    assert world.workers() == [0, 1, *added]
    is_refused = "no index up to 9999 is left" in world.state("out")["message"]
    assert is_refused == (not added)


@pytest.mark.parametrize(
    ("target", "written", "next_index"),
    [
        (workers(0, 1), MAX_INDEX + 1, MAX_INDEX + 1),
        (workers(0, 1), MAX_INDEX + 2, 2),
        (workers(0, 5), None, 6),
        (workers(0, 5), 5, 6),
        (workers(0, 5), 6, 6),
        (workers(0, 5), True, 6),
        ([], 7, 7),
        ([], "7", 2),
        (workers(0), None, 2),
    ],
)
def test_the_next_index_is_never_one_that_a_worker_has(
    target: list[str], written: Any, next_index: int
) -> None:
    """Workers 0 and 1 have pods."""
    world = status_of(training(), targetWorkers=target, nextWorkerIndex=written)
    observed = world.observed()
    assert recorded(observed, observed.spec).next_index == next_index


def test_a_job_wants_no_more_workers_than_there_can_be_whatever_its_status_says() -> None:
    world = status_of(training(), targetWorkers=workers(*range(1500)), nextWorkerIndex=1500)
    observed = world.observed()
    assert len(recorded(observed, observed.spec).target) == 1000


# ---- one plan -----------------------------------------------------------------------------------


def test_one_plan_makes_a_hundred_pods_and_the_next_ones_make_the_others() -> None:
    world = ElasticWorld(example(worker={"replicas": 150, "maxReplicas": 150}))
    made = []
    for _ in range(4):
        plan = world.plan()
        pods = [one for one in plan.actions if isinstance(one, Create) and one.type == PODS]
        made.append(len(pods))
        world.apply(plan)
    assert made == [0, 100, 50, 0]


# ---- replacements -------------------------------------------------------------------------------


@pytest.mark.parametrize(("code", "is_replaced"), [(127, False), (128, True)])
def test_the_exit_code_from_which_a_worker_is_replaced(code: int, is_replaced: bool) -> None:
    world = training(example(worker={"replicas": 3}))
    world.pods_become("Failed", worker(1), **ended(code, container="mnist-elastic")).settle()
    assert (worker(3) in world.status["targetWorkers"]) == is_replaced


def test_a_worker_waits_no_longer_than_a_minute_for_its_replacement() -> None:
    world = status_of(training(), replacedWorkers=20)
    world.pods_become("Failed", worker(1), reason="Evicted").settle(at(59))
    assert world.plan(at(59)).requeue_after_s == 1
    assert worker(2) not in world.status["targetWorkers"]
    assert worker(2) in world.settle(at(60)).status["targetWorkers"]


# ---- changes that are on their way --------------------------------------------------------------


def test_a_launcher_that_ends_is_not_annotated() -> None:
    world = training(example(worker={"replicas": 3}, restartPolicy="OnFailure"))
    terminating(world, LAUNCHER).pods_become("Failed", worker(1), reason="Evicted")
    for _ in range(4):
        plan = world.plan()
        assert not [one for one in plan.actions if isinstance(one, Patch)]
        world.apply(plan)
    assert world.hosts() == workers(0, 2)


def test_a_launcher_of_an_earlier_attempt_that_ends_is_not_deleted_again() -> None:
    world = training(example(restartPolicy="OnFailure")).pods_become("Failed", LAUNCHER)
    world.apply(world.plan(at(9)))
    assert world.status["phase"] == "Restarting"
    (delete,) = world.plan(at(9)).actions
    assert isinstance(delete, Delete)
    terminating(world, LAUNCHER)
    assert world.plan(at(9)).actions == ()


def test_children_of_an_ended_job_are_deleted_once() -> None:
    world = training().pods_become("Succeeded", LAUNCHER)
    world.apply(world.plan())
    assert world.status["phase"] == "Succeeded"
    assert len(world.plan().actions) == len(world.children) - 1
    terminating(world, *(ref.name for ref in world.children))
    assert world.plan().actions == ()


# ---- scalers ------------------------------------------------------------------------------------


def test_a_busy_worker_whose_check_has_ended_waits_no_longer() -> None:
    """The check itself waits for the timeout, on the clock of the launcher."""
    world = training().scale_in(worker(1), timeout=30).settle(at(READ))
    assert world.end(exit_code=124).settle(at(READ)).workers() == [0]


@pytest.mark.parametrize("names", [workers(3), workers(1, 2, 3)])
def test_a_choice_of_more_or_fewer_workers_than_asked_for_fails_the_scale_in(
    names: list[str],
) -> None:
    world = training(example(worker={"replicas": 5})).scale_in(count=2).settle()
    forge(world, toDeletePods=names)
    in_time(world)
    assert world.state("in")["phase"] == "ScaleFailed"
    assert world.workers() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("is_there", [False, True])
def test_a_scale_out_that_lost_one_of_its_workers_takes_the_others_back(is_there: bool) -> None:
    world = training().scale_out(2).settle()
    status_of(world, targetWorkers=workers(0, 1, 2))
    if not is_there:
        world.gone("Pod", worker(3))
    in_time(world)
    assert world.workers() == [0, 1]
    assert world.state("out")["phase"] == "ScaleFailed"


def test_a_scale_out_that_names_a_worker_of_the_launcher_ends() -> None:
    world = status_of(training(), nextWorkerIndex=3).scale_out(1)
    forge(world, phase="Scaling", startTime=LONG_AGO, addPods=workers(0, 2))
    in_time(world)
    assert world.state("out")["phase"] == "ScaleFailed"
    assert world.workers() == [0, 1]


def test_a_scale_out_that_names_workers_which_have_just_come_leaves_the_least_number() -> None:
    world = training(example(worker={"replicas": 3, "minReplicas": 2}))
    world.pods_become("Failed", worker(1), worker(2), reason="Evicted").settle()
    assert world.status["targetWorkers"] == workers(0, 3, 4)
    world.scale_out(1)
    forge(world, phase="Scaling", startTime=LONG_AGO, addPods=workers(3, 4))
    in_time(world)
    assert world.status["targetWorkers"] == workers(0, 3, 4)
    assert world.state("out")["phase"] == "ScaleFailed"
