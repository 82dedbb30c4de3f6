"""ScaleOut and ScaleIn by themselves: what their specs may say, and what they wait for."""

from typing import Any

import pytest

from edgeai.api.elastic import SCALE_INS, SCALE_OUTS, TRAINING_JOBS
from edgeai.api.resources import ObjectRef
from edgeai.api.specs import InvalidSpec
from globalmanager.contract import Severity
from globalmanager.kinds.elastic import scalers
from globalmanager.kinds.elastic.scalein import KIND as SCALE_IN
from globalmanager.kinds.elastic.scaleout import KIND as SCALE_OUT
from globalmanager.kinds.elastic.scalers import Scaler, Script
from tests.support.world import World, from_yaml

# examples/scale_out.yaml and scale_in_pod.yaml of the et-operator
OUT = """
apiVersion: kai.alibabacloud.com/v1alpha1
kind: ScaleOut
metadata: {name: scaleout-workers}
spec:
  selector: {name: elastic-training}
  toAdd: {count: 2}
"""
IN = """
apiVersion: kai.alibabacloud.com/v1alpha1
kind: ScaleIn
metadata: {name: scalein-workers}
spec:
  selector: {name: elastic-training}
  toDelete:
    podNames:
    - elastic-training-worker-1
"""
SELECTOR = {"name": "elastic-training"}


def test_the_examples_of_the_et_operator_are_read() -> None:
    assert scalers.read(SCALE_OUTS, from_yaml(OUT)) == Scaler("elastic-training", 2)
    names = ("elastic-training-worker-1",)
    assert scalers.read(SCALE_INS, from_yaml(IN)) == Scaler("elastic-training", 1, names)


def test_a_script_has_a_timeout_and_variables() -> None:
    script = {"script": " /scale.sh -v ", "timeout": 5, "env": [{"name": "A", "value": "it's"}]}
    spec = {"selector": SELECTOR, "toAdd": {"count": 1}, **script}
    read = scalers.read(SCALE_OUTS, {"metadata": {}, "spec": spec})
    assert read.script == Script("/scale.sh -v", 5, (("A", "it's"),))


@pytest.mark.parametrize(
    ("kind", "fields", "path"),
    [
        ("out", {}, "spec.toAdd"),
        ("out", {"toAdd": {}}, "spec.toAdd.count"),
        ("out", {"toAdd": {"count": 0}}, "spec.toAdd.count"),
        ("out", {"toAdd": {"count": 1001}}, "spec.toAdd.count"),
        ("out", {"toAdd": {"count": 1}, "selector": {}}, "spec.selector.name"),
        ("out", {"toAdd": {"count": 1}, "selector": {"name": "A B"}}, "spec.selector.name"),
        ("out", {"toAdd": {"count": 1}, "timeout": 0}, "spec.timeout"),
        ("out", {"toAdd": {"count": 1}, "env": [{"name": "A;rm"}]}, "spec.env[0].name"),
        ("out", {"toAdd": {"count": 1}, "script": "a\nb"}, "spec.script"),
        ("in", {}, "spec.toDelete"),
        ("in", {"toDelete": {}}, "spec.toDelete"),
        ("in", {"toDelete": {"count": 0}}, "spec.toDelete.count"),
        ("in", {"toDelete": {"podNames": []}}, "spec.toDelete.podNames"),
    ],
)
def test_a_wrong_spec_fails_the_scaler_by_field(
    kind: str, fields: dict[str, Any], path: str
) -> None:
    """In the et-operator a spec without toDelete crashed the operator."""
    type_, served = (SCALE_OUTS, SCALE_OUT) if kind == "out" else (SCALE_INS, SCALE_IN)
    given = from_yaml(OUT if kind == "out" else IN)
    given["spec"] = {"selector": SELECTOR, **fields}
    with pytest.raises(InvalidSpec) as caught:
        scalers.read(type_, given)
    assert caught.value.path == path
    world = World(served, given)
    plan = world.plan()
    assert [(event.severity, path in event.message) for event in plan.events] == [
        (Severity.WARNING, True)
    ]
    world.apply(plan)
    assert world.status["phase"] == "ScaleFailed"
    assert [one["type"] for one in world.status["conditions"]] == ["ScaleFailed"]
    assert world.plan().status is None


def test_a_scaler_says_that_its_job_does_not_exist() -> None:
    world = World(SCALE_OUT, from_yaml(OUT))
    plan = world.plan()
    assert [event.reason for event in plan.events] == ["JobNotFound"]
    world.apply(plan)
    assert "TrainingJob elastic-training" in world.status["message"]
    assert world.plan().status is None


def test_a_scaler_of_a_job_that_exists_says_at_once_that_it_waits_and_then_leaves_its_status() -> (
    None
):
    """The plan of a job with thousands of scalers would tell the last one late."""
    world = World(SCALE_OUT, from_yaml(OUT))
    job = ObjectRef(TRAINING_JOBS, "default", "elastic-training")
    world._others[job] = {"metadata": {"name": job.name, "namespace": "default"}}
    plan = world.plan()
    assert plan.status is not None
    assert (plan.status["phase"], plan.events, plan.actions) == ("Created", (), ())
    assert "waits until TrainingJob elastic-training is Running" in plan.status["message"]
    plan = world.apply(plan).plan()
    assert (plan.status, plan.events, plan.actions) == (None, (), ())


def test_a_scaler_names_the_fault_of_its_job_with_its_first_word() -> None:
    world = World(SCALE_OUT, from_yaml(OUT))
    job = ObjectRef(TRAINING_JOBS, "default", "elastic-training")
    stalled = {"type": "Stalled", "status": "True", "message": "pod a: ErrImagePull: none"}
    state = {"phase": "WorkersCreated", "conditions": [stalled]}
    metadata = {"name": job.name, "namespace": "default"}
    world._others[job] = {"metadata": metadata, "status": state}
    text = world.apply(world.plan()).status["message"]
    assert text.endswith("TrainingJob elastic-training is stalled: pod a: ErrImagePull: none")


@pytest.mark.parametrize("phase", ["Scaling", "ScriptExecuted", "ScaleSucceeded", "ScaleFailed"])
def test_a_scaler_that_has_begun_is_left_to_its_job(phase: str) -> None:
    given = {**from_yaml(OUT), "spec": {}, "status": {"phase": phase}}
    assert World(SCALE_OUT, given).plan().status is None


@pytest.mark.parametrize("spec", [None, [], 7, {"selector": 7}, {"selector": {"name": 7}}])
def test_a_name_that_cannot_be_read_is_none(spec: Any) -> None:
    assert scalers.job_of({"metadata": {}, "spec": spec}) == ""
