"""The clock of a new leader may be behind. Times that lie ahead make nothing wait longer."""

import pytest

from edgeai.times import rfc3339
from tests.globalmanager.kinds.elastic.world import (
    LAUNCHER,
    ElasticWorld,
    example,
    training,
    worker,
)
from tests.globalmanager.kinds.refusals import live
from tests.globalmanager.kinds.training.pytorchjob.test_elastic import WORKERS, half_full
from tests.support.world import World, at, merged

AN_HOUR = 3600


def created_ahead(world: World) -> None:
    for ref, child in list(world.children.items()):
        made = {"metadata": {"creationTimestamp": rfc3339(at(AN_HOUR))}}
        world.children[ref] = merged(child, made)


def job() -> ElasticWorld:
    return training(example(restartPolicy="OnFailure", worker={"replicas": 3, "minReplicas": 1}))


def test_a_launcher_that_failed_starts_again() -> None:
    world = job()
    world.pods_become("Failed", LAUNCHER)
    created_ahead(world)
    live(world, lambda _: None, 0, 150)
    launcher = world.child("Pod", LAUNCHER)
    assert launcher["metadata"]["annotations"]["edgeai.io/attempt"] == "1"


def test_workers_that_fail_again_and_again_are_replaced() -> None:
    world = job()
    for number in range(1, 12):
        names = [ref.name for ref in world.children if ref.name.startswith(worker(0)[:-1])]
        world.pods_become("Failed", *names, reason="Evicted")
        created_ahead(world)
        live(world, lambda _: None, number * 150, number * 150 + 150)
    assert world.status["replacedWorkers"] == 33


@pytest.mark.parametrize("name", [LAUNCHER, worker(0)])
def test_a_pod_that_is_gone_counts_as_lost(name: str) -> None:
    world = job()
    ref = next(ref for ref in world.children if ref.name == name and ref.type.kind == "Pod")
    del world.children[ref]
    live(world, lambda _: None, AN_HOUR, AN_HOUR + 5)  # the leader before
    assert world.condition("Stalled")
    live(world, lambda _: None, 0, 30)
    assert not world.condition("Stalled")
    assert world.status.get("restartCount" if name == LAUNCHER else "replacedWorkers") == 1


def test_a_pytorch_worker_that_failed_starts_again() -> None:
    world = half_full(policy="OnFailure")
    world.pods_become("Failed", WORKERS[1])
    created_ahead(world)
    live(world, lambda _: None, 0, 150)
    assert world.child("Pod", WORKERS[1]).get("status", {}).get("phase") != "Failed"
