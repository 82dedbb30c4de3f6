"""Who may write the status of a scaler cannot take a TrainingJob out of its limits."""

import pytest

from tests.globalmanager.kinds.elastic.scalers.test_hostile import forge, in_time
from tests.globalmanager.kinds.elastic.world import ElasticWorld, example, training, worker
from tests.support.world import at

LONG_AGO = "2026-01-02T03:00:00Z"


def workers(*indices: int) -> list[str]:
    return [worker(index) for index in indices]


def four(least: int = 3) -> ElasticWorld:
    return training(example(worker={"replicas": 4, "minReplicas": least, "maxReplicas": 5}))


@pytest.mark.parametrize("phase", ["Scaling", "ScriptExecuted"])
@pytest.mark.parametrize(
    ("names", "text"),
    [
        (workers(1, 2), "status.toDeletePods"),
        (workers(0, 1, 2, 3), "status.toDeletePods"),
    ],
)
def test_a_forged_choice_of_a_scale_in_deletes_nothing(
    names: list[str], text: str, phase: str
) -> None:
    world = four().scale_in(count=1)
    forge(world, phase=phase, startTime=LONG_AGO, toDeletePods=names)
    in_time(world)
    assert world.workers() == [0, 1, 2, 3]
    assert world.state("in")["phase"] == "ScaleFailed"
    assert text in world.state("in")["message"]
    assert "nothing was deleted" in world.state("in")["message"]


def test_other_names_than_those_of_the_spec_are_not_deleted() -> None:
    world = four().scale_in(worker(1)).settle()
    forge(world, toDeletePods=[worker(2)])
    in_time(world)
    assert world.workers() == [0, 1, 2, 3]
    assert world.state("in")["phase"] == "ScaleFailed"


def test_names_that_are_no_workers_of_the_job_are_passed_over() -> None:
    world = four().scale_in(count=1).settle()
    forge(world, toDeletePods=["other-worker-1", "elastic-training-worker-01", 5, None])
    in_time(world).settle(at(20)).end(exit_code=0)
    in_time(world)
    assert world.workers() == [0, 1, 2], "the ScaleIn has chosen anew"


def test_a_scale_in_that_has_begun_keeps_limits_that_are_raised_meanwhile() -> None:
    world = four().scale_in(count=1).settle()
    world.change(example(worker={"replicas": 4, "minReplicas": 4})["spec"])
    in_time(world)
    assert world.workers() == [0, 1, 2, 3]
    assert world.state("in")["phase"] == "ScaleFailed"
    assert "below minReplicas, 4" in world.state("in")["message"]


@pytest.mark.parametrize("phase", ["Scaling", "ScriptExecuted"])
@pytest.mark.parametrize(
    "names",
    [workers(0, 1, 2), workers(3), workers(4, 5, 6), workers(9000), workers(0, 4), workers(9999)],
    ids=str,
)
@pytest.mark.parametrize("start", [LONG_AGO, "2026-01-02T03:04:05Z"])
def test_a_forged_choice_of_a_scale_out_neither_deletes_nor_exceeds(
    names: list[str], phase: str, start: str
) -> None:
    world = four().scale_out(1)
    forge(world, phase=phase, startTime=start, addPods=names)
    world.settle()
    for _ in range(3):
        world.pods_become("Running").settle()
    in_time(world)
    assert world.workers() in ([0, 1, 2, 3], [0, 1, 2, 3, 4])
    assert world.status["nextWorkerIndex"] <= 5


def test_a_scale_out_that_gives_up_never_takes_workers_that_the_launcher_has() -> None:
    world = four().pods_become("Running").scale_out(3, timeout=5)
    forge(world, phase="Scaling", startTime=LONG_AGO, addPods=workers(1, 2, 3))
    world.pods_become("Pending", *workers(1, 2, 3))
    in_time(world)
    assert world.workers() == [0, 1, 2, 3]
    assert world.state("out")["phase"] == "ScaleFailed"


def test_a_scale_out_that_has_begun_keeps_limits_that_are_lowered_before_its_pods_exist() -> None:
    world = four().scale_out(1)
    while world.state("out").get("phase") != "Scaling":
        world.apply(world.plan())
    world.change(example(worker={"replicas": 4, "maxReplicas": 4})["spec"]).settle()
    assert world.workers() == [0, 1, 2, 3]
    assert "more than maxReplicas, 4" in world.state("out")["message"]


def test_a_replacement_at_the_moment_of_the_choice_takes_no_index_of_the_scale_out() -> None:
    world = training().scale_out(1)
    while "addPods" not in world.state("out"):
        world.apply(world.plan())
    world.pods_become("Failed", worker(0), reason="Evicted")
    for second in range(0, 60, 10):
        world.settle(at(second)).pods_become("Running")
    assert len(world.workers()) == 3
    assert world.state("out")["phase"] == "ScaleSucceeded"


def test_a_job_that_is_crowded_out_by_its_forged_status_keeps_one_worker() -> None:
    world = training(example(worker={"minReplicas": None})).scale_in(count=1)
    forge(world, phase="Scaling", toDeletePods=workers(0, 1))
    in_time(world)
    assert world.workers() == [0, 1]
