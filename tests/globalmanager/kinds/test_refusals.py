"""A refused object of a training job keeps no other object of the job from being looked after."""

from typing import Any

import pytest

from tests.globalmanager.kinds.elastic.world import (
    LAUNCHER,
    ElasticWorld,
    example,
    training,
    worker,
)
from tests.globalmanager.kinds.refusals import Refuse, adoption, carry, creation_of, live
from tests.globalmanager.kinds.training.pytorchjob.test_elastic import WORKERS, half_full
from tests.support.world import at, merged

SOME_WORKERS: Any = {"replicas": 3, "minReplicas": 1}


def job() -> ElasticWorld:
    return training(example(restartPolicy="OnFailure", worker=SOME_WORKERS))


def more_replicas() -> ElasticWorld:
    world = job()
    edit = {"etReplicaSpecs": {"worker": {"replicas": 5}}}
    world.change(merged(world.object["spec"], edit))
    return world


REFUSED: Any = {
    "pods of workers": (job, creation_of("Pod", *(worker(index) for index in range(9)))),
    "a Service": (job, creation_of("Service", worker(3), reason="NameConflict")),
    "the scaler of kubectl scale": (more_replicas, creation_of("ScaleOut")),
    "an adoption": (lambda: job().scale_in(count=1), adoption),
}


@pytest.mark.parametrize("case", REFUSED)
def test_the_launcher_loses_the_dead_worker_and_starts_again(case: str) -> None:
    make, refuse = REFUSED[case]
    world = make()
    world.pods_become("Failed", worker(1), reason="Evicted")
    live(world, refuse, 0, 60)
    assert worker(1) not in world.hosts()
    world.pods_become("Failed", LAUNCHER)
    live(world, refuse, 60, 200)
    assert world.status["restartCount"] == 1
    launcher = world.child("Pod", LAUNCHER)
    assert launcher["metadata"]["annotations"]["edgeai.io/attempt"] == "1"
    assert world.condition("Stalled")["status"] == "True"


def test_what_is_refused_is_made_as_soon_as_nothing_refuses() -> None:
    for make, refuse in REFUSED.values():
        world = make()
        world.pods_become("Failed", worker(1), reason="Evicted")
        live(world, refuse, 0, 30)
        live(world, lambda _: None, 30, 60)
        assert worker(3) in {ref.name for ref in world.children if ref.type.kind == "Pod"}
        assert not world.condition("Stalled")


def test_a_worker_gets_no_pod_without_its_service() -> None:
    world = job()
    world.pods_become("Failed", worker(1), reason="Evicted")
    live(world, creation_of("Service", worker(3)), 0, 30)
    assert worker(3) not in {ref.name for ref in world.children if ref.type.kind == "Pod"}


def test_a_service_that_is_taken_holds_up_no_other_pod_of_a_pytorch_job() -> None:
    world = half_full()
    world.gone("Service", WORKERS[3])
    world.pods_become("Failed", WORKERS[1], reason="Evicted")
    live(world, creation_of("Service", WORKERS[3]), 10, 60)
    assert world.child("Pod", WORKERS[1]).get("status", {}).get("phase") != "Failed"


@pytest.mark.parametrize("refuse", [creation_of("Pod", worker(3)), lambda _: None])
def test_a_launcher_that_is_gone_counts_as_lost_beside_a_refusal(refuse: Refuse) -> None:
    world = job()
    world.pods_become("Failed", worker(1), reason="Evicted")
    live(world, refuse, 0, 30)
    world.gone("Pod", LAUNCHER)
    live(world, refuse, 30, 60)
    assert world.status["restartCount"] == 1


@pytest.mark.parametrize("name", [LAUNCHER, worker(0)])
def test_a_pod_that_a_late_watch_does_not_show_keeps_its_five_seconds(name: str) -> None:
    """Also when the job has been Stalled for something else for long."""
    world = training(example(worker=SOME_WORKERS))
    world.pods_become("Pending", worker(2))
    live(world, lambda _: None, 0, 120)
    assert world.condition("Stalled")
    shown = world.child("Pod", name)
    ref = next(ref for ref in world.children if ref.name == name and ref.type.kind == "Pod")
    del world.children[ref]
    for milliseconds in (0, 100, 3900):
        carry(world, at(130 + milliseconds / 1000), lambda _: None)
    world.children[ref] = shown
    live(world, lambda _: None, 135, 150)
    assert world.status["phase"] == "Running"
    assert world.child("Pod", name)["metadata"]["uid"] == shown["metadata"]["uid"]
    assert worker(0) in world.hosts()
