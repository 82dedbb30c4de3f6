"""Training jobs whose children somebody else sets again after each correction."""

from typing import Any

import pytest

from globalmanager.contract import Kind
from globalmanager.kinds.training.pytorchjob import KIND as PYTORCH
from globalmanager.kinds.training.tfjob import KIND as TENSORFLOW
from tests.globalmanager.kinds.elastic import world as elastic_jobs
from tests.globalmanager.kinds.training.pytorchjob.test_autoscaler import elastic
from tests.globalmanager.kinds.training.samples import conditions, pytorch_spec, started, tf_spec
from tests.support.world import World, at

PORTS = [{"name": "theirs", "port": 1, "targetPort": 1, "protocol": "TCP"}]
CASES = [
    (PYTORCH, pytorch_spec(), "Service", {"ports": PORTS}),
    (PYTORCH, elastic(), "HorizontalPodAutoscaler", {"maxReplicas": 40}),
    (TENSORFLOW, tf_spec(Worker=2), "Service", {"ports": PORTS}),
]


def edit(world: World, kind: str, **spec: Any) -> str:
    """Somebody changes a child of this type. Returns: its name"""
    ref, child = next((r, c) for r, c in world.children.items() if r.type.kind == kind)
    world.children[ref] = {**child, "spec": {**child["spec"], **spec}}
    world.overridden = {ref: tuple(f"spec.{field}" for field in spec)}
    return ref.name


@pytest.mark.parametrize(("kind", "spec", "child", "change"), CASES)
def test_a_field_that_somebody_sets_again_is_told_before_the_state_of_the_job(
    kind: Kind, spec: dict[str, Any], child: str, change: dict[str, Any]
) -> None:
    """The last condition is the job's state."""
    world = started(kind, spec).pods_become("Running")
    world.apply(world.plan())
    assert conditions(world) == ["Created", "Running"]
    name = edit(world, child, **change)
    plan = world.plan()
    assert plan.status is not None
    first, *states = plan.status["conditions"]
    assert (first["type"], first["reason"]) == ("Overridden", "SetByOthers")
    assert f"{child} {name} (spec.{next(iter(change))})" in first["message"]
    assert [one["type"] for one in states] == ["Created", "Running"]
    world.object = {**world.object, "status": {**world.status, **plan.status}}
    assert world.plan(at(60)).status is None, "the condition stays as it is"


@pytest.mark.parametrize(("kind", "spec", "child", "change"), CASES)
def test_the_condition_goes_with_the_difference(
    kind: Kind, spec: dict[str, Any], child: str, change: dict[str, Any]
) -> None:
    world = started(kind, spec).pods_become("Running").settle()
    edit(world, child, **change)
    plan = world.plan()
    world.object = {**world.object, "status": {**world.status, **(plan.status or {})}}
    world.overridden = {}
    world.settle()
    assert conditions(world) == ["Created", "Running"]


def test_a_training_job_tells_of_its_list_of_hosts() -> None:
    world = elastic_jobs.running()
    ref, file = next((r, c) for r, c in world.children.items() if r.type.kind == "ConfigMap")
    before = conditions(world)
    world.children[ref] = {**file, "data": {**file["data"], "hostfile": "theirs slots=1"}}
    world.overridden = {ref: ("data.hostfile",)}
    plan = world.plan()
    assert plan.status is not None
    first, *states = plan.status["conditions"]
    assert (first["type"], [one["type"] for one in states]) == ("Overridden", before)
    assert f"ConfigMap {ref.name} (data.hostfile)" in first["message"]
