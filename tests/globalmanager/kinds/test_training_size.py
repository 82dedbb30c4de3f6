"""A job whose template is as large as the API server accepts: its plans stay short."""

import time
from typing import Any

import pytest

from globalmanager.contract import PODS, Create, Plan
from globalmanager.kinds.tfjob import KIND
from tests.globalmanager.builders import World, job
from tests.globalmanager.kinds.training import pods, tf_spec

REPLICAS = 110
VARIABLES = 30_000
PLAN_S = 0.15  # of the processor, on a machine that is busy with other things


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


def test_a_plan_of_a_fat_job_takes_no_more_time_than_it_may(fat: World) -> None:
    began_s = time.process_time()
    plan = fat.plan()
    took_s = time.process_time() - began_s
    assert 1 <= new_pods(plan) <= 5
    assert took_s < PLAN_S


def test_all_pods_of_a_fat_job_come_plan_by_plan(fat: World) -> None:
    counts = []
    while (plan := fat.plan()).actions:
        counts.append(new_pods(plan))
        fat.apply(plan)
    assert sum(counts) == len(pods(fat)) == 12
    assert max(counts) <= 5


def test_a_small_template_makes_as_many_pods_in_one_plan_as_before() -> None:
    assert new_pods(World(KIND, job("thin", tf_spec(Worker=300))).plan()) == 100
