"""Scalers, lists and statuses that somebody forges or edits never break a TrainingJob."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from edgeai.api.elastic import SCALE_OUTS, TRAINING_JOBS
from edgeai.api.resources import CONFIG_MAPS, PODS, Object, ObjectRef
from globalmanager.kinds.elastic.scaleout import KIND as SCALE_OUT
from globalmanager.kinds.shared.objects import owner_reference
from tests.globalmanager.kinds.elastic.world import JOB, ElasticWorld, training, worker
from tests.support.world import NOW, World, at, merged

FAR = "2999-01-01T00:00:00Z"


def in_time(world: ElasticWorld) -> ElasticWorld:
    """Follow all waits of the job, while no pod changes any more."""
    now = 0.0
    for _ in range(30):
        world.settle(at(now))
        wait_s = world.plan(at(now)).requeue_after_s
        if wait_s is None:
            break
        now += wait_s
    assert now < 1000.0, "waits of minutes"
    return world


def forge(world: ElasticWorld, **status: Any) -> None:
    """Somebody writes the status of the only scaler."""
    (ref,) = world.scalers
    world.scalers[ref] = merged(world.scalers[ref], {"status": status})


@pytest.mark.parametrize("phase", ["Scaling", "ScriptExecuted"])
@pytest.mark.parametrize(
    "apply",
    [
        pytest.param(lambda world: world.scale_out(0), id="out"),
        pytest.param(lambda world: world.scale_in(count=0), id="in"),
    ],
)
def test_a_wrong_scaler_that_says_that_it_has_begun_fails(
    apply: Callable[[ElasticWorld], ElasticWorld], phase: str
) -> None:
    world = apply(training())
    forge(world, phase=phase)
    world.settle()
    (ref,) = world.scalers
    assert world.state(ref.name)["phase"] == "ScaleFailed"
    assert world.workers() == [0, 1]


@pytest.mark.parametrize("start", [FAR, "yesterday", None])
def test_a_scaler_ends_whatever_its_start_time_says(start: str | None) -> None:
    world = training().scale_out(1, script="/s.sh").settle().pods_become("Running").settle()
    forge(world, startTime=start)
    in_time(world)
    assert world.state("out")["phase"] == "ScaleFailed"
    assert world.workers() == [0, 1]


def test_a_scale_in_of_the_last_worker_that_runs_ends() -> None:
    # The list cannot lose its last host, and no other worker can take its place.
    world = training()
    world.pods_become("Failed", worker(1)).settle(at(60))
    in_time(world.scale_in(worker(0)))
    assert world.state("in")["phase"] == "ScaleFailed"
    assert "nothing was deleted" in world.state("in")["message"]
    assert world.child("Pod", worker(0))["status"]["phase"] == "Running"


def of_the_own_kind(world: ElasticWorld, name: str) -> World:
    """The only scaler, as its own kind sees it, and the TrainingJob `name`."""
    (scaler,) = world.scalers.values()
    own = World(SCALE_OUT, scaler)
    job = merged(world.object, {"metadata": {"name": name, "uid": f"uid-of-{name}"}})
    own._others[ObjectRef(TRAINING_JOBS, "default", name)] = job
    return own


def test_a_scaler_with_another_controller_says_that_it_is_not_executed() -> None:
    world = training().scale_out(1)
    (ref,) = world.scalers
    owner = {"apiVersion": "x/v1", "kind": "Workflow", "name": "w", "uid": "u", "controller": True}
    world.scalers[ref] = merged(world.scalers[ref], {"metadata": {"ownerReferences": [owner]}})
    own = of_the_own_kind(world, JOB)
    (event,) = own.plan().events
    assert event.reason == "NotAdopted"
    assert world.settle().workers() == [0, 1]
    assert "Workflow w" in own.settle().status["message"]


def test_a_scaler_that_names_another_job_while_it_is_executed_fails() -> None:
    world = training().scale_out(1).settle()
    (ref,) = world.scalers
    edit = {"spec": {"selector": {"name": "other"}}}
    world.scalers[ref] = merged(world.scalers[ref], edit)
    own = of_the_own_kind(world, "other").settle()
    assert own.status["phase"] == "ScaleFailed"
    assert f"TrainingJob {JOB}" in own.status["message"]


def test_a_hostfile_that_somebody_filled_with_other_names_does_not_fill_the_status() -> None:
    world = training()
    ref = ObjectRef(CONFIG_MAPS, "default", f"{JOB}-config")
    lines = "".join(f"host-{number}:1\n" for number in range(50_000))
    world.children[ref] = merged(
        world.children[ref], {"data": {"hostfile": f"{lines}{worker(0)}:1\n"}}
    )
    world.settle()
    assert world.status["currentWorkers"] == [worker(0), worker(1)]
    assert world.hosts() == [worker(0), worker(1)]


@pytest.mark.parametrize("adopted", [False, True])
def test_a_plan_does_a_bounded_part_for_thousands_of_scalers(adopted: bool) -> None:
    world = training()
    (one,) = training().scale_out(1).scalers.values()
    owners = {"ownerReferences": [owner_reference(world.observed())]} if adopted else {}
    told = {"status": {"phase": "Created"}}

    def scaler(name: str) -> Object:
        return {**one, **told, "metadata": {**one["metadata"], "name": name, "uid": name, **owners}}

    names = [f"s{number}" for number in range(3000)]
    many = {ObjectRef(SCALE_OUTS, "default", name): scaler(name) for name in names}
    plan = world.kind.plan(msgspec.structs.replace(world.observed(), scalers=many), NOW)
    assert 0 < len(plan.actions) <= 100


def test_pods_that_pretend_to_be_workers_go() -> None:
    world = training()
    pretender = {"metadata": {"name": worker(7), "uid": "p"}, "status": {"phase": "Running"}}
    world.children[ObjectRef(PODS, "default", worker(7))] = pretender
    world.settle()
    assert world.workers() == [0, 1]
    assert world.hosts() == [worker(0), worker(1)]


def test_a_worker_that_goes_and_whose_pod_is_gone_is_not_made_again() -> None:
    world = training().scale_in(worker(1)).settle()
    assert world.hosts() == [worker(0)]
    world.gone("Pod", worker(1)).settle()
    assert world.workers() == [0]
    world.end(exit_code=0).settle()
    assert world.state("in")["phase"] == "ScaleSucceeded"
    assert world.status["targetWorkers"] == [worker(0)]
