"""Desired against observed: what is created, replaced, deleted and left alone."""

import copy
import re
from typing import Any

import pytest

from globalmanager.contract import DEPLOYMENTS, SERVICES, Create, Delete, Plan, Replace, UpdateRule
from globalmanager.kinds.jointinferenceservice import KIND
from globalmanager.rules import children, objects
from tests.globalmanager.builders import World, job

RULES = {SERVICES: UpdateRule.REPLACE, DEPLOYMENTS: UpdateRule.REPLACE}


def world() -> World:
    return World(KIND, job())


def deployment(world: World, *, image: str = "a", autoscaled: bool = False) -> Create:
    template = {"metadata": {"labels": {}}, "spec": {"containers": [{"image": image}]}}
    return children.deployment(
        world.observed(), name="digits-x", role="edge", template=template, autoscaled=autoscaled
    )


def service(world: World, port: int = 5000) -> Create:
    return children.service(
        world.observed(), name="digits-cloud", role="cloud", ports={"tcp": port}
    )


def applied(world: World, *desired: Create) -> list[object]:
    """The actions of all stages, which have taken effect."""
    stages = children.reconcile(world.observed(), desired, RULES)
    world.apply(Plan(stages=stages))
    return [action for stage in stages for action in stage]


def test_everything_created_is_owned_and_labelled() -> None:
    metadata = deployment(world()).object["metadata"]
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "edgeai.io/v1alpha1",
            "kind": "JointInferenceService",
            "name": "digits",
            "uid": "uid-1",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert metadata["labels"] == {
        "edgeai.io/uid": "uid-1",
        "app.kubernetes.io/managed-by": "edgeai",
        "edgeai.io/kind": "jointinferenceservices.edgeai.io",
        "edgeai.io/name": "digits",
        "edgeai.io/role": "edge",
    }


def test_what_is_missing_is_created_in_order() -> None:
    here = world()
    wishes = [service(here), deployment(here)]
    assert applied(here, *wishes) == wishes


def test_what_is_as_wished_is_left_alone() -> None:
    here = world()
    applied(here, service(here), deployment(here))
    assert applied(here, service(here), deployment(here)) == []


def test_a_changed_wish_replaces_in_place() -> None:
    here = world()
    applied(here, deployment(here))
    (action,) = applied(here, deployment(here, image="b"))
    assert isinstance(action, Replace)
    assert action.object["metadata"]["uid"] == "child-1"
    assert applied(here, deployment(here, image="b")) == []


def test_a_replacement_keeps_foreign_annotations_and_the_version_observed() -> None:
    here = world()
    applied(here, deployment(here))
    metadata = here.child("Deployment", "digits-x")["metadata"]
    metadata["resourceVersion"] = "17"
    metadata["annotations"]["deployment.kubernetes.io/revision"] = "3"
    metadata["labels"]["team"] = "vision"
    (action,) = applied(here, deployment(here, image="b"))
    assert isinstance(action, Replace)
    replaced = action.object["metadata"]
    assert replaced["resourceVersion"] == "17"
    assert replaced["annotations"]["deployment.kubernetes.io/revision"] == "3"
    assert replaced["labels"]["team"] == "vision"


@pytest.mark.parametrize(
    ("autoscaled", "expected"),
    [pytest.param(True, 4, id="autoscaler owns it"), pytest.param(False, 1, id="nobody else does")],
)
def test_replicas_belong_to_the_autoscaler_when_there_is_one(
    autoscaled: bool, expected: int
) -> None:
    here = world()
    applied(here, deployment(here, autoscaled=True))
    here.child("Deployment", "digits-x")["spec"]["replicas"] = 4
    applied(here, deployment(here, image="b", autoscaled=autoscaled))
    assert here.child("Deployment", "digits-x")["spec"]["replicas"] == expected


def test_what_was_scaled_to_none_has_one_pod_again() -> None:
    """Of none the service would say that it runs: Kubernetes calls all of no pods available."""
    here = world()
    applied(here, deployment(here))
    here.child("Deployment", "digits-x")["spec"]["replicas"] = 0
    (action,) = applied(here, deployment(here))
    assert isinstance(action, Replace)
    assert here.child("Deployment", "digits-x")["spec"]["replicas"] == 1
    assert applied(here, deployment(here)) == []


def test_what_was_scaled_up_stays() -> None:
    """Somebody's own autoscaler would scale it up again, and so on."""
    here = world()
    applied(here, deployment(here))
    here.child("Deployment", "digits-x")["spec"]["replicas"] = 3
    assert applied(here, deployment(here)) == []


def test_what_the_autoscaler_has_scaled_stays() -> None:
    here = world()
    applied(here, deployment(here, autoscaled=True))
    here.child("Deployment", "digits-x")["spec"]["replicas"] = 3
    assert applied(here, deployment(here, autoscaled=True)) == []


def test_a_service_keeps_its_address() -> None:
    here = world()
    applied(here, service(here))
    here.child("Service", "digits-cloud")["spec"]["clusterIP"] = "10.0.0.7"
    applied(here, service(here, port=6000))
    spec = here.child("Service", "digits-cloud")["spec"]
    assert (spec["clusterIP"], spec["ports"][0]["port"]) == ("10.0.0.7", 6000)


def test_what_is_no_longer_wished_is_deleted_first() -> None:
    here = world()
    applied(here, deployment(here), service(here))
    actions = applied(here, deployment(here, image="b"))
    assert [type(action) for action in actions] == [Delete, Replace]
    assert here.names() == ["Deployment/digits-x"]


def test_what_is_being_deleted_is_left_alone() -> None:
    here = world()
    applied(here, deployment(here), service(here))
    for child in here.children.values():
        child["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    assert applied(here, deployment(here, image="b")) == []


def test_the_hash_does_not_depend_on_the_order_of_keys() -> None:
    assert objects.content_hash({"a": 1, "b": 2}) == objects.content_hash({"b": 2, "a": 1})
    assert objects.content_hash({"a": 1}) != objects.content_hash({"a": 2})


# ---- what others change -------------------------------------------------------------------------


def changed(world: World, kind: str, name: str, path: str, value: Any) -> None:
    """Somebody sets a field of a child: "spec.ports[0].port"."""
    *parents, last = [int(key) if key.isdecimal() else key for key in re.split(r"[.\[\]]+", path)]
    target: Any = world.child(kind, name)
    for key in parents:
        target = target[key]
    target[last] = value


@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param("spec.ports.0.port", 6000, id="a port"),
        pytest.param("spec.selector", {"app": "x"}, id="the selector"),
        pytest.param("metadata.labels", {}, id="the labels"),
    ],
)
def test_what_others_changed_is_put_back(path: str, value: Any) -> None:
    here = world()
    (made,) = applied(here, service(here))
    before = copy.deepcopy(here.child("Service", "digits-cloud"))
    changed(here, "Service", "digits-cloud", path, value)
    (action,) = applied(here, service(here))
    assert isinstance(action, Replace)
    assert action.is_drift
    assert here.child("Service", "digits-cloud") == before
    assert isinstance(made, Create)


def test_a_changed_wish_is_no_drift() -> None:
    here = world()
    applied(here, service(here))
    (action,) = applied(here, service(here, port=6000))
    assert isinstance(action, Replace)
    assert not action.is_drift


def test_what_the_server_filled_in_is_no_drift() -> None:
    here = world()
    applied(here, service(here), deployment(here))
    changed(here, "Service", "digits-cloud", "spec.clusterIP", "10.0.0.7")
    changed(here, "Service", "digits-cloud", "spec.ports.0.nodePort", 30000)
    container = "spec.template.spec.containers.0"
    changed(here, "Deployment", "digits-x", f"{container}.imagePullPolicy", "Always")
    changed(here, "Deployment", "digits-x", "metadata.annotations.revision", "3")
    assert applied(here, service(here), deployment(here)) == []


def test_putting_back_leaves_the_number_of_replicas_to_others() -> None:
    here = world()
    applied(here, deployment(here))
    changed(here, "Deployment", "digits-x", "spec.replicas", 3)
    changed(here, "Deployment", "digits-x", "spec.template.spec.containers.0.image", "evil")
    applied(here, deployment(here))
    spec = here.child("Deployment", "digits-x")["spec"]
    assert spec["template"]["spec"]["containers"][0]["image"] == "a"
    assert spec["replicas"] == 3


def test_an_empty_value_that_the_server_drops_is_no_difference() -> None:
    wish = {"spec": {"env": [{"name": "A", "value": ""}], "volumes": []}}
    assert objects.differences(wish, {"spec": {"env": [{"name": "A"}]}}) == {}


def test_a_difference_names_its_path_and_what_is_there() -> None:
    wish = {"spec": {"ports": [{"port": 1}, {"port": 2}]}, "data": {"a": "b"}}
    existing = {"spec": {"ports": [{"port": 1}, {"port": 3}]}, "data": {"a": "b", "c": "d"}}
    assert objects.differences(wish, existing) == {"spec.ports[1].port": 3}
