"""The HorizontalPodAutoscaler of an elastic PyTorchJob."""

from typing import Any

import pytest

from edgeai.api.resources import AUTOSCALERS
from globalmanager.kinds.training.pytorchjob import KIND
from tests.globalmanager.kinds.training.samples import pods, pytorch_spec, started
from tests.support.world import World, job

METRICS = [
    {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
    }
]


def elastic(workers: int = 2, **policy: Any) -> dict[str, Any]:
    policy = {"minReplicas": 1, "maxReplicas": 4, "metrics": METRICS} | policy
    return pytorch_spec(workers, master=False, elasticPolicy=policy)


def test_the_autoscaler_scales_the_job_of_its_name() -> None:
    autoscaler = started(KIND, elastic()).child("HorizontalPodAutoscaler", "mnist")
    assert autoscaler["spec"] == {
        "scaleTargetRef": {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "name": "mnist",
        },
        "minReplicas": 1,
        "maxReplicas": 4,
        "metrics": METRICS,
    }


BOUNDS = [
    ({}, (1, 4)),
    ({"minReplicas": None}, (4, 4)),
    ({"maxReplicas": None}, (1, 1)),
    ({"minReplicas": None, "maxReplicas": None}, (2, 2)),
]


@pytest.mark.parametrize(("policy", "bounds"), BOUNDS)
def test_the_bounds_fill_each_other(policy: dict[str, Any], bounds: tuple[int, int]) -> None:
    spec = started(KIND, elastic(**policy)).child("HorizontalPodAutoscaler", "mnist")["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == bounds


@pytest.mark.parametrize("spec", [elastic(metrics=[]), pytorch_spec()])
def test_without_metrics_there_is_none(spec: dict[str, Any]) -> None:
    assert not any("Autoscaler" in name for name in started(KIND, spec).names())


def test_an_edit_changes_it_and_nothing_changes_it_otherwise() -> None:
    world = started(KIND, elastic())
    assert world.plan().actions == ()
    world.change(elastic(maxReplicas=8)).settle()
    assert world.child("HorizontalPodAutoscaler", "mnist")["spec"]["maxReplicas"] == 8
    world.change(elastic(metrics=[])).settle()
    assert not any("Autoscaler" in name for name in world.names())


def test_it_goes_when_the_job_is_suspended_or_has_ended() -> None:
    world = started(KIND, elastic())
    world.change(elastic() | {"runPolicy": {"suspend": True}}).settle()
    assert world.names() == []
    world.change(elastic()).settle().pods_become("Succeeded").settle()
    assert pods(world) == ["mnist-worker-0", "mnist-worker-1"]
    assert not any("Autoscaler" in name for name in world.names())


def test_a_server_without_such_autoscalers_runs_the_job_and_an_event_tells_it_once() -> None:
    world = World(KIND, job("mnist", elastic()))
    world.absent = frozenset({AUTOSCALERS})
    plan = world.plan()
    told = [event for event in plan.events if event.reason == "AutoscalerNotServed"]
    assert "autoscaling/v2" in told[0].message
    world.apply(plan).settle()
    assert pods(world) == ["mnist-worker-0", "mnist-worker-1"]
    assert not any(event.reason == "AutoscalerNotServed" for event in world.plan().events)
