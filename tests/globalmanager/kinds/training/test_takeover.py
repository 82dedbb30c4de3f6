"""A running job of the Kubeflow operators goes on with its pods when edgeai serves its group."""

import copy
from typing import Any, Final

import msgspec
import pytest

from edgeai.api.resources import PODS, SERVICES, ref_of
from globalmanager.contract import Kind, WorkerSettings
from globalmanager.kinds.training import gangs, pytorchjob, tfjob
from tests.globalmanager.kinds.training.samples import (
    conditions,
    ended,
    numbers,
    pods,
    pytorch_spec,
    tf_spec,
)
from tests.support import training_operator
from tests.support.world import World, at, job

STARTED: Final = "2026-01-02T01:00:00Z"
OPERATORS: Final = [
    pytest.param(pytorchjob.KIND, pytorch_spec(policy="ExitCode"), False, id="PyTorchJob"),
    pytest.param(tfjob.KIND, tf_spec(policy="ExitCode", Worker=2, PS=1), False, id="TFJob"),
    pytest.param(tfjob.KIND, tf_spec(policy="ExitCode", Worker=2, PS=1), True, id="TF operator"),
]


def taken_over(kind: Kind, spec: dict[str, Any], *, is_old: bool = False) -> World:
    """A running job, of which another controller made all pods and Services."""
    type_ = kind.definition.resources[0]
    object_ = job("mnist", spec) | {"apiVersion": type_.api_version, "kind": type_.kind}
    world = World(kind, object_)
    world.object["status"] = training_operator.status(object_, STARTED)
    for number, child in enumerate(training_operator.children(object_, is_old=is_old)):
        child["metadata"]["uid"] = f"theirs-{number}"
        type_ = PODS if child["kind"] == "Pod" else SERVICES
        world.children[ref_of(type_, child)] = child
    return world.pods_become("Running")


def selects(world: World, name: str) -> bool:
    """Whether the Service of the replica selects the replica's pod."""
    selector = world.child("Service", name)["spec"]["selector"]
    return bool(selector.items() <= world.child("Pod", name)["metadata"]["labels"].items())


@pytest.mark.parametrize(("kind", "spec", "is_old"), OPERATORS)
def test_pods_and_services_stay_as_they_are(kind: Kind, spec: dict[str, Any], is_old: bool) -> None:
    world = taken_over(kind, spec, is_old=is_old)
    before = copy.deepcopy(world.children)
    told = copy.deepcopy(world.status)
    world.settle(at(0))
    assert world.children == before
    assert world.status["conditions"] == told["conditions"]
    assert world.status["startTime"] == STARTED
    assert numbers(world)["Worker"] == {"active": 2}
    assert not world.plan(at(3600)).events


@pytest.mark.parametrize(("kind", "spec", "is_old"), OPERATORS)
def test_a_lost_pod_is_made_anew_and_its_service_selects_it(
    kind: Kind, spec: dict[str, Any], is_old: bool
) -> None:
    world = taken_over(kind, spec, is_old=is_old).settle()
    everything = world.names()
    world.gone("Pod", "mnist-worker-1").settle()
    assert world.names() == everything
    assert all(selects(world, name) for name in pods(world))
    others = [world.child("Pod", name)["metadata"]["uid"] for name in pods(world)[:-1]]
    assert all(uid.startswith("theirs-") for uid in others)


@pytest.mark.parametrize(("kind", "spec", "is_old"), OPERATORS)
def test_a_lost_service_is_made_anew_and_selects_the_pod_of_before(
    kind: Kind, spec: dict[str, Any], is_old: bool
) -> None:
    world = taken_over(kind, spec, is_old=is_old).settle()
    world.gone("Service", "mnist-worker-1").settle()
    assert selects(world, "mnist-worker-1")
    assert world.child("Pod", "mnist-worker-1")["metadata"]["uid"].startswith("theirs-")


def test_a_failed_pod_is_counted_and_replaced() -> None:
    world = taken_over(pytorchjob.KIND, pytorch_spec(policy="ExitCode")).settle()
    world.pods_become("Failed", "mnist-worker-0", **ended(137)).settle(at(60))
    assert world.status["restarts"] == {"mnist-worker-0": 1}
    assert selects(world, "mnist-worker-0")
    assert conditions(world) == ["Created", "Restarting"]


@pytest.mark.parametrize(
    ("policy", "left"),
    [
        ("None", ["mnist-master-0", "mnist-worker-0", "mnist-worker-1"]),
        ("Running", ["mnist-master-0"]),
        ("All", []),
    ],
)
def test_a_clean_pod_policy_holds_for_their_pods(policy: str, left: list[str]) -> None:
    world = taken_over(pytorchjob.KIND, pytorch_spec(run={"cleanPodPolicy": policy})).settle()
    world.pods_become("Succeeded", "mnist-master-0").settle()
    assert conditions(world)[-1] == "Succeeded"
    assert pods(world) == left


def test_the_operator_can_go_on_with_a_job_of_edgeai() -> None:
    """It finds children by its labels, and its pods must be selected by the Services."""
    world = World(pytorchjob.KIND, job("mnist", pytorch_spec())).settle()
    theirs = world.object | {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
    for child in training_operator.children(theirs):
        name, labels = child["metadata"]["name"], child["metadata"]["labels"].items()
        for kind in ("Pod", "Service"):
            assert labels <= world.child(kind, name)["metadata"]["labels"].items()
        assert world.child("Service", name)["spec"]["selector"].items() <= labels


def test_a_pod_group_of_the_operator_is_changed_in_place_and_lets_a_lost_pod_be_made_anew() -> None:
    world = taken_over(pytorchjob.KIND, pytorch_spec())
    world.settings = msgspec.structs.replace(world.settings, gang_scheduler_name=gangs.VOLCANO)
    type_ = gangs.OF_VOLCANO
    pod = world.child("Pod", "mnist-master-0")
    metadata = {**pod["metadata"], "name": "mnist", "labels": {}, "uid": "theirs"}
    group = {"metadata": metadata, "spec": {"minMember": 3}, "status": {"phase": "Running"}}
    world.children[ref_of(type_, group)] = group
    world.settle().gone("Pod", "mnist-worker-1").settle()
    assert pods(world) == ["mnist-master-0", "mnist-worker-0", "mnist-worker-1"]
    assert world.child("PodGroup", "mnist")["metadata"]["uid"] == "theirs"
    assert (type_, "app.kubernetes.io/managed-by!=edgeai") in world.kind.under(
        world.settings
    ).followed


def test_pod_groups_are_followed_only_where_a_gang_scheduler_is_set() -> None:
    for kind in (pytorchjob.KIND, tfjob.KIND):
        followed = {type_ for type_, _ in kind.under(WorkerSettings()).followed}
        assert followed == {PODS, SERVICES}


def test_suspend_deletes_their_pods_and_resume_makes_ours() -> None:
    world = taken_over(pytorchjob.KIND, pytorch_spec()).settle()
    world.change(pytorch_spec(run={"suspend": True})).settle()
    assert world.names() == []
    assert conditions(world) == [
        "Created",
        "Running=False:PyTorchJobSuspended",
        "Suspended",
    ]
    world.change(pytorch_spec(run={"suspend": False})).settle()
    assert all(selects(world, name) for name in pods(world))
    assert len(pods(world)) == 3


def test_fewer_workers_end_their_pod() -> None:
    world = taken_over(pytorchjob.KIND, pytorch_spec(3)).settle()
    world.change(pytorch_spec(1)).settle()
    assert pods(world) == ["mnist-master-0", "mnist-worker-0"]


def test_a_list_of_conditions_that_lost_created_keeps_its_order() -> None:
    """The training operator loses Created when another writer is first."""
    world = taken_over(pytorchjob.KIND, pytorch_spec())
    world.object["status"]["conditions"].pop(0)
    assert conditions(world.settle()) == ["Running"]


def test_a_spec_that_is_wrong_for_edgeai_does_not_fail_a_job_that_runs() -> None:
    """An old operator writes startTime late, and accepts what edgeai refuses."""
    world = taken_over(pytorchjob.KIND, pytorch_spec(nprocPerNode="many"))
    world.object["status"].pop("startTime")
    before = copy.deepcopy(world.children)
    world.settle()
    assert conditions(world) == ["Created", "Running"]
    assert world.children == before
