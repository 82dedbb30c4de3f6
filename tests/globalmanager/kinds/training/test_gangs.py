"""PodGroups of training jobs, for Volcano and for scheduler-plugins."""

from typing import Any

import msgspec
import pytest

from edgeai.api.resources import ObjectRef
from globalmanager.contract import Kind, UpdateRule
from globalmanager.kinds.training import gangs
from globalmanager.kinds.training.pytorchjob import KIND
from tests.globalmanager.kinds.training.samples import conditions, pods, pytorch_spec, template
from tests.support.world import NOW, SETTINGS, World, at, job

REPLICAS = ["mnist-master-0", "mnist-worker-0", "mnist-worker-1"]
PLUGINS = "scheduler-plugins-scheduler"


def world(scheduler: str, spec: dict[str, Any] | None = None, kind: Kind = KIND) -> World:
    made = World(kind, job("mnist", spec or pytorch_spec()))
    made.settings = msgspec.structs.replace(SETTINGS, gang_scheduler_name=scheduler)
    return made


def admitted(made: World, phase: str = "Inqueue") -> World:
    """Volcano has changed the phase of the PodGroup."""
    ref = ObjectRef(gangs.OF_VOLCANO, "default", "mnist")
    made.children[ref] = {**made.children[ref], "status": {"phase": phase}}
    return made


POLICY = {
    "minAvailable": 2,
    "queue": "research",
    "priorityClass": "high",
    "minResources": {"cpu": "4"},
    "scheduleTimeoutSeconds": 30,
}
GROUPS = [
    ("volcano", None, {"minMember": 3, "queue": "default"}),
    (
        "volcano",
        POLICY,
        {
            "minMember": 2,
            "minResources": {"cpu": "4"},
            "queue": "research",
            "priorityClassName": "high",
        },
    ),
    (PLUGINS, None, {"minMember": 3}),
    (
        PLUGINS,
        POLICY,
        {"minMember": 2, "minResources": {"cpu": "4"}, "scheduleTimeoutSeconds": 30},
    ),
]


@pytest.mark.parametrize(("scheduler", "policy", "expected"), GROUPS)
def test_a_job_has_a_pod_group_of_its_name(
    scheduler: str, policy: dict[str, Any] | None, expected: dict[str, Any]
) -> None:
    run = {"schedulingPolicy": policy} if policy else {}
    group = world(scheduler, pytorch_spec(run=run)).settle().child("PodGroup", "mnist")
    assert group["spec"] == expected
    assert group["apiVersion"] == (
        "scheduling.volcano.sh/v1beta1"
        if scheduler == "volcano"
        else "scheduling.x-k8s.io/v1alpha1"
    )


def test_without_min_resources_a_pod_group_has_what_its_pods_request() -> None:
    spec = pytorch_spec(2, run={"schedulingPolicy": {"minAvailable": 2}})
    for replicas in spec["pytorchReplicaSpecs"].values():
        (container,) = replicas["template"]["spec"]["containers"]
        container["resources"] = {"limits": {"nvidia.com/gpu": 4, "cpu": "500m"}}
    group = world(PLUGINS, spec).settle().child("PodGroup", "mnist")
    assert group["spec"]["minResources"] == {"cpu": "1", "nvidia.com/gpu": "8"}


@pytest.mark.parametrize("phase", ["", "Pending"])
def test_there_are_no_pods_before_volcano_has_admitted_the_pod_group(phase: str) -> None:
    made = world("volcano").settle()
    assert pods(admitted(made, phase).settle()) == []
    assert pods(admitted(made).settle()) == REPLICAS


def test_volcano_reads_the_group_and_the_task_from_annotations() -> None:
    made = admitted(world("volcano").settle()).settle()
    pod = made.child("Pod", "mnist-worker-1")
    assert pod["spec"]["schedulerName"] == "volcano"
    assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "mnist"
    assert pod["metadata"]["annotations"]["volcano.sh/task-spec"] == "worker"


def test_scheduler_plugins_read_the_group_from_a_label() -> None:
    pod = world(PLUGINS).settle().child("Pod", "mnist-worker-1")
    assert pod["spec"]["schedulerName"] == PLUGINS
    assert pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "mnist"


def test_another_scheduler_of_the_template_stays_and_a_warning_tells_it() -> None:
    spec = pytorch_spec(None)
    spec["pytorchReplicaSpecs"]["Master"]["template"] = template(schedulerName="mine")
    made = world(PLUGINS, spec)
    plan = made.plan()
    (warning,) = (e for e in plan.events if e.reason == "SettedPodTemplateSchedulerName")
    assert "mine" in warning.message
    assert made.apply(plan).child("Pod", REPLICAS[0])["spec"]["schedulerName"] == "mine"


def test_an_edit_changes_the_pod_group_in_place_and_nothing_changes_it_otherwise() -> None:
    made = admitted(world("volcano").settle()).settle()
    uid = made.child("PodGroup", "mnist")["metadata"]["uid"]
    assert made.plan(at(5)).actions == ()
    made.change(pytorch_spec(3)).settle()
    group = made.child("PodGroup", "mnist")
    assert (group["spec"]["minMember"], group["metadata"]["uid"]) == (4, uid)
    assert group["status"] == {"phase": "Inqueue"}


def test_the_pod_group_goes_when_the_job_is_suspended_or_has_ended() -> None:
    made = world(PLUGINS).settle()
    made.change(pytorch_spec(run={"suspend": True})).settle()
    assert made.names() == []
    made.change(pytorch_spec()).settle().pods_become("Running").settle()
    made.pods_become("Succeeded", REPLICAS[0]).settle()
    assert "PodGroup/mnist" not in made.names()
    assert pods(made) == REPLICAS  # cleanPodPolicy is None


@pytest.mark.parametrize(
    ("scheduler", "type_"), [("volcano", gangs.OF_VOLCANO), (PLUGINS, gangs.OF_PLUGINS)]
)
def test_without_the_type_of_the_pod_group_a_job_waits_and_says_so(
    scheduler: str, type_: Any
) -> None:
    made = world(scheduler)
    made.absent = frozenset({type_})
    made.settle()
    assert pods(made) == []
    assert conditions(made) == ["Stalled", "Created"]
    assert made.condition("Stalled")["reason"] == "PodGroupsNotServed"
    assert type_.api_version in made.condition("Stalled")["message"]
    made.absent = frozenset()
    made.settle()
    assert "PodGroup/mnist" in made.names()


def test_a_pod_group_that_pends_for_long_stalls_the_job() -> None:
    made = world("volcano").settle()
    ref = ObjectRef(gangs.OF_VOLCANO, "default", "mnist")
    made.children[ref]["metadata"]["creationTimestamp"] = "2026-01-02T03:04:05Z"
    assert made.plan(NOW).requeue_after_s == 60
    made.settle(at(60))
    assert made.condition("Stalled")["reason"] == "PodGroupPending"
    admitted(made).settle(at(61))
    assert conditions(made) == ["Created"]


OWNED = [("", set()), ("volcano", {gangs.OF_VOLCANO}), (PLUGINS, {gangs.OF_PLUGINS})]


@pytest.mark.parametrize(("scheduler", "expected"), OWNED)
def test_only_the_pod_groups_of_the_chosen_scheduler_are_watched(
    scheduler: str, expected: set[Any]
) -> None:
    assert KIND.owns[gangs.OF_VOLCANO] is UpdateRule.REPLACE
    settings = msgspec.structs.replace(SETTINGS, gang_scheduler_name=scheduler)
    assert KIND.under(settings).owns.keys() & gangs.OWNS.keys() == expected


def test_without_a_gang_scheduler_a_scheduling_policy_has_no_effect() -> None:
    made = world("", pytorch_spec(run={"schedulingPolicy": POLICY})).settle()
    assert "PodGroup/mnist" not in made.names()
    assert "schedulerName" not in made.child("Pod", REPLICAS[0])["spec"]
