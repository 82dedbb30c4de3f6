"""A job whose template is as large as the API server accepts: its plans stay short."""

from typing import Any

import msgspec
import pytest

from edgeai.api.resources import PODS
from globalmanager.contract import Create, Plan
from globalmanager.kinds.elastic.trainingjob import KIND as ELASTIC
from globalmanager.kinds.training.tfjob import KIND
from tests.globalmanager.kinds.elastic import world as elastic
from tests.globalmanager.kinds.training.samples import pods, tf_spec
from tests.support.world import World, at, job

REPLICAS = 110
VARIABLES = 30_000


def fat_spec(*, replicas: int = REPLICAS, variables: int = VARIABLES) -> dict[str, Any]:
    spec = tf_spec(Worker=replicas)
    env = [{"name": f"VARIABLE_{n}", "value": "x"} for n in range(variables)]
    spec["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["env"] = env
    return spec


@pytest.fixture(scope="module")
def fat() -> World:
    return World(KIND, job("fat", fat_spec(replicas=12)))


def new_pods(plan: Plan) -> int:
    return sum(isinstance(each, Create) and each.type == PODS for each in plan.actions)


def test_all_pods_of_a_fat_job_come_plan_by_plan(fat: World) -> None:
    counts = []
    while (plan := fat.plan()).actions:
        counts.append(new_pods(plan))
        fat.apply(plan)
    assert sum(counts) == len(pods(fat)) == 12
    assert min(counts) >= 1
    assert max(counts) <= 5


def test_a_fat_job_makes_few_pods_within_half_a_minute() -> None:
    """The API server, which all namespaces share, needs a second for each."""
    world = World(KIND, job("fat", fat_spec(replicas=8)))
    for _ in range(4):
        world.apply(world.plan()).pods_become("Pending")
    assert len(pods(world)) == 3
    assert world.plan().requeue_after_s == pytest.approx(30.0)
    assert new_pods(world.plan(now=at(29.0))) == 0
    assert new_pods(world.plan(now=at(30.0))) == 3


def test_an_elastic_job_makes_few_fat_workers_within_half_a_minute() -> None:
    given = elastic.example()
    worker = given["spec"]["etReplicaSpecs"]["worker"]
    worker |= {"replicas": 8, "minReplicas": 1, "maxReplicas": 10}
    worker["template"]["spec"]["containers"][0]["args"] = ["x" * 1_200_000]
    world = World(ELASTIC, given)
    for _ in range(4):
        world.apply(world.plan()).pods_become("Pending")
    assert len(pods(world)) == 3
    assert world.plan().requeue_after_s == pytest.approx(30.0)
    assert new_pods(world.plan(now=at(30.0))) == 3


def test_a_job_with_all_its_fat_pods_waits_for_nothing() -> None:
    world = World(KIND, job("fat", fat_spec(replicas=3))).settle().pods_become("Running")
    world.settle()
    assert world.plan().requeue_after_s is None


def test_a_small_template_makes_as_many_pods_in_one_plan_as_before() -> None:
    assert new_pods(World(KIND, job("thin", tf_spec(Worker=300))).plan()) == 100


# ---- replicas times the size of the template ----------------------------------------------------

MESSAGE = (
    "spec.tfReplicaSpecs.Worker.template: 110 pods of {size} bytes; the templates of all pods of a "
    "job may have 67108864 bytes, and have {total}: make the template smaller, for example with a "
    "ConfigMap in place of many variables, or use fewer replicas. Pods that exist go on"
)


def stall(world: World) -> dict[str, Any]:
    listed = world.status.get("conditions", [])
    found = [each for each in listed if (each["type"], each["status"]) == ("Stalled", "True")]
    return found[0] if found else {}


def test_a_job_whose_pods_together_are_too_large_makes_nothing_and_says_so() -> None:
    spec = fat_spec()
    world = World(KIND, job("fat", spec)).settle()
    size = len(msgspec.json.encode(spec["tfReplicaSpecs"]["Worker"]["template"]))
    assert world.children == {}
    assert stall(world)["reason"] == "TooLarge"
    assert stall(world)["message"] == MESSAGE.format(size=size, total=110 * size)


def test_the_job_starts_when_its_template_has_become_smaller() -> None:
    world = World(KIND, job("fat", fat_spec())).settle()
    world.change(fat_spec(variables=10)).settle()
    assert len(pods(world)) == REPLICAS
    assert stall(world) == {}


def test_pods_that_exist_go_on_when_an_edit_makes_the_job_too_large() -> None:
    world = World(KIND, job("fat", fat_spec(replicas=3, variables=10))).settle()
    world.change(fat_spec()).settle()
    assert len(pods(world)) == 3
    assert stall(world)["reason"] == "TooLarge"


def test_an_elastic_job_whose_workers_together_are_too_large_makes_none() -> None:
    given = elastic.example()
    worker = given["spec"]["etReplicaSpecs"]["worker"]
    worker |= {"replicas": 70, "maxReplicas": 100}
    worker["template"]["spec"]["containers"][0]["args"] = ["x" * 1_000_000]
    world = World(ELASTIC, given).settle()
    assert pods(world) == []
    assert stall(world)["reason"] == "TooLarge"
    assert "spec.etReplicaSpecs.worker.template: 70 pods of 1000" in stall(world)["message"]
