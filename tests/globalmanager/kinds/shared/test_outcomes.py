"""What is counted of a training job: each transition once."""

from typing import Any

import pytest

from globalmanager.kinds.shared.job_conditions import outcomes
from globalmanager.kinds.training.pytorchjob import KIND
from tests.globalmanager.kinds.training.samples import ended, pytorch_spec
from tests.support.world import World, at, job, merged


def counted(world: World, seconds: float = 0) -> dict[str, int]:
    """What one plan writes, counted."""
    plan = world.plan(at(seconds))
    before = world.status
    after = merged(before, plan.status or {})
    world.apply(plan)
    return outcomes(before, after)


def test_each_transition_of_a_job_is_counted_once() -> None:
    world = World(KIND, job("mnist", pytorch_spec(policy="ExitCode")))
    assert counted(world) == {"created": 1}
    world.settle().pods_become("Running")
    assert counted(world) == {"running": 1}
    assert counted(world.settle()) == {}
    world.pods_become("Failed", "mnist-worker-0", **ended(137))
    assert counted(world, 1) == {"restarted": 1}
    world.settle(at(120)).pods_become("Running").settle(at(121))
    world.pods_become("Succeeded", "mnist-master-0")
    assert counted(world, 122) == {"successful": 1}
    assert counted(world.settle(at(123)), 123) == {}


def test_a_restart_of_the_whole_job_is_one_restart() -> None:
    world = World(KIND, job("mnist", pytorch_spec(policy="ExitCode", run={"restartScope": "Job"})))
    world.settle().pods_become("Running").settle()
    world.pods_become("Failed", "mnist-worker-0", "mnist-worker-1", **ended(137))
    assert counted(world, 1)["restarted"] == 1


def test_a_wrong_spec_is_a_failure() -> None:
    world = World(KIND, job("mnist", pytorch_spec(0)))
    assert counted(world) == {"created": 1, "failed": 1}


@pytest.mark.parametrize("junk", [None, 5, "x", [], [None, 7], {"a": []}, True])
def test_junk_in_a_status_counts_nothing(junk: Any) -> None:
    status = {"conditions": junk, "restarts": junk, "jobRestarts": str(junk)}
    assert outcomes(status, status) == {}
    assert outcomes({}, status) == {}


def test_a_status_that_lost_its_restarts_counts_nothing() -> None:
    assert outcomes({"restarts": {"a": 4}, "jobRestarts": 2}, {}) == {}
