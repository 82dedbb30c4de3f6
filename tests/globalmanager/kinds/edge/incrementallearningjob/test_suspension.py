"""IncrementalLearningJob with spec.suspend."""

import pytest

from tests.globalmanager.kinds.edge.incrementallearningjob.learning import (
    condition,
    pods,
    roll_out,
    train,
)
from tests.globalmanager.kinds.edge.samples import incremental_job, incremental_learning_spec
from tests.support.world import World, at, merged


def pod_becomes(world: World, name: str, phase: str) -> World:
    """A pod that keeps its metadata, as one that is being deleted does."""
    for ref, child in world.children.items():
        if ref.name == name:
            world.children[ref] = merged(child, {"status": {"phase": phase}})
    return world


def suspended(world: World, value: bool = True) -> World:
    return world.change(incremental_learning_spec(suspend=value)).settle()


def test_no_round_begins() -> None:
    world = incremental_job(suspend=True).settle()
    assert pods(world) == []
    assert world.status["phase"] == "Suspended"
    assert (condition(world)["reason"], world.condition("Suspended")["status"]) == (
        "Suspended",
        "True",
    )
    suspended(world, False)
    assert pods(world) == ["helmet-train-1-0"]
    assert world.condition("Suspended")["reason"] == "Resumed"


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_a_round_stops_and_goes_on_with_the_same_attempt(phase: str) -> None:
    world = incremental_job().settle().pods_become(phase)
    suspended(roll_out(world))
    assert pods(world) == []
    assert world.child("Deployment", "helmet-inference"), "it goes on to answer"
    suspended(world, False)
    assert pods(world) == ["helmet-train-1-0"]
    assert train(world).status["current"]["stage"] == "Eval"


def test_what_a_worker_has_done_is_not_lost() -> None:
    world = suspended(incremental_job().settle().pods_become("Succeeded"))
    assert pods(world) == ["helmet-train-1-0"]
    assert train(world).status["current"]["stage"] == "Train"
    assert suspended(world, False).status["current"]["stage"] == "Eval"


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_the_end_of_a_pod_that_is_being_deleted_costs_no_attempt(phase: str) -> None:
    world = incremental_job().contact("edge0").settle().pods_become("Running")
    world.terminates = True
    suspended(world)
    pod_becomes(suspended(world, False), "helmet-train-1-0", phase).settle()
    assert pods(world) == ["helmet-train-1-0"]
    current = world.end_deleted().settle(at(100)).status["current"]
    assert (current["attempt"], current["succeeded"]) == (0, "")
    assert pods(world) == ["helmet-train-1-0"]
    assert train(world).status["current"]["stage"] == "Eval"


def test_a_pod_that_succeeds_while_its_job_is_suspended_does_not_run_again() -> None:
    world = suspended(incremental_job().contact("edge0").settle().pods_become("Succeeded"))
    suspended(world.gone("Pod", "helmet-train-1-0"), False)
    assert pods(world) == []
    assert train(world).status["current"]["stage"] == "Eval"


def test_a_job_with_an_invalid_spec_stops_too() -> None:
    world = incremental_job().settle().pods_become("Running")
    spec = {**incremental_learning_spec(suspend=True), "outputDir": "relative"}
    assert pods(world.change(spec).settle()) == []
