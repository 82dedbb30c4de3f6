"""Which children are created, replaced, deleted and left alone."""

import copy
import re
from typing import Any

import msgspec
import pytest

from edgeai.api.objects import SPEC_HASH
from edgeai.api.resources import DEPLOYMENTS, PODS, SERVICES, Object, ResourceType, ref_of
from globalmanager.contract import Action, Create, Delete, Plan, Replace, UpdateRule
from globalmanager.kinds.edge.jointinferenceservice import KIND
from globalmanager.kinds.shared import children, objects
from tests.support.world import World, job

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
    """Carry out the actions of all stages, and return them."""
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


def test_missing_children_are_created_in_order() -> None:
    here = world()
    desired = [service(here), deployment(here)]
    assert applied(here, *desired) == desired


def test_children_that_are_as_wanted_are_left_alone() -> None:
    here = world()
    applied(here, service(here), deployment(here))
    assert applied(here, service(here), deployment(here)) == []


def test_a_changed_child_is_replaced_in_place() -> None:
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


def test_a_deployment_scaled_to_zero_gets_one_pod_again() -> None:
    """A service with zero pods would count as running: Kubernetes calls zero of zero available."""
    here = world()
    applied(here, deployment(here))
    here.child("Deployment", "digits-x")["spec"]["replicas"] = 0
    (action,) = applied(here, deployment(here))
    assert isinstance(action, Replace)
    assert here.child("Deployment", "digits-x")["spec"]["replicas"] == 1
    assert applied(here, deployment(here)) == []


def test_a_deployment_that_was_scaled_up_stays() -> None:
    """A user's own autoscaler would scale the Deployment up again, for ever."""
    here = world()
    applied(here, deployment(here))
    here.child("Deployment", "digits-x")["spec"]["replicas"] = 3
    assert applied(here, deployment(here)) == []


def test_the_number_of_the_autoscaler_stays() -> None:
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


def test_children_that_are_no_longer_wanted_are_deleted_first() -> None:
    here = world()
    applied(here, deployment(here), service(here))
    actions = applied(here, deployment(here, image="b"))
    assert [type(action) for action in actions] == [Delete, Replace]
    assert here.names() == ["Deployment/digits-x"]


def test_a_child_that_is_being_deleted_is_left_alone() -> None:
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
def test_a_field_that_others_changed_is_put_back(path: str, value: Any) -> None:
    here = world()
    (made,) = applied(here, service(here))
    before = copy.deepcopy(here.child("Service", "digits-cloud"))
    changed(here, "Service", "digits-cloud", path, value)
    (action,) = applied(here, service(here))
    assert isinstance(action, Replace)
    assert action.is_drift
    assert here.child("Service", "digits-cloud") == before
    assert isinstance(made, Create)


def test_a_change_by_the_job_is_no_drift() -> None:
    here = world()
    applied(here, service(here))
    (action,) = applied(here, service(here, port=6000))
    assert isinstance(action, Replace)
    assert not action.is_drift


def test_a_field_that_the_server_filled_in_is_no_drift() -> None:
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
    desired = {"spec": {"env": [{"name": "A", "value": ""}], "volumes": []}}
    assert objects.differences(desired, {"spec": {"env": [{"name": "A"}]}}) == {}


def test_a_difference_has_a_path_and_the_value_there() -> None:
    desired = {"spec": {"ports": [{"port": 1}, {"port": 2}]}, "data": {"a": "b"}}
    existing = {"spec": {"ports": [{"port": 1}, {"port": 3}]}, "data": {"a": "b", "c": "d"}}
    assert objects.differences(desired, existing) == {"spec.ports[1].port": 3}


# ---- update rules -------------------------------------------------------------------------------

CONFIG_MAPS = ResourceType("", "v1", "configmaps", "ConfigMap")


def pod(world: World, name: str = "digits-a", image: str = "a") -> Create:
    template = {"metadata": {"labels": {}}, "spec": {"containers": [{"image": image}]}}
    return children.pod(world.observed(), name=name, role="edge", template=template)


def config(world: World, text: str = "a") -> Create:
    content = {"data": {"hosts": text}}
    return objects.child(
        world.observed(), CONFIG_MAPS, name="digits-hosts", role="edge", content=content
    )


def reconciled(world: World, rules: Any, *desired: Create, **more: Any) -> list[Action]:
    """As `applied`, under these rules."""
    plan = Plan(stages=children.reconcile(world.observed(), desired, rules, **more))
    world.apply(plan)
    return list(plan.actions)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        pytest.param(UpdateRule.REPLACE, [Replace], id="replaced in place"),
        pytest.param(UpdateRule.RECREATE, [Delete], id="deleted, then made anew"),
        pytest.param(UpdateRule.KEEP, [], id="never touched"),
        pytest.param(UpdateRule.REFUSE, [], id="never touched, and told"),
    ],
)
def test_a_child_that_is_not_as_wished_is_updated_by_its_rule(
    rule: UpdateRule, expected: list[type]
) -> None:
    here, rules = world(), {PODS: rule}
    assert [type(each) for each in reconciled(here, rules, pod(here))] == [Create]
    desired = pod(here, image="b")
    assert [type(each) for each in reconciled(here, rules, desired)] == expected
    told = [ref_of(PODS, desired.object)] if rule is UpdateRule.REFUSE else []
    assert list(children.refused(here.observed(), [desired], rules)) == told


@pytest.mark.parametrize("rule", UpdateRule)
def test_under_every_rule_what_is_missing_is_made_and_what_is_too_much_is_deleted(
    rule: UpdateRule,
) -> None:
    here, rules = world(), {PODS: rule}
    reconciled(here, rules, pod(here, "digits-a"))
    actions = reconciled(here, rules, pod(here, "digits-b"))
    assert [type(each) for each in actions] == [Delete, Create]
    assert here.names() == ["Pod/digits-b"]


@pytest.mark.parametrize("rule", UpdateRule)
def test_under_every_rule_what_is_as_wished_is_left_alone(rule: UpdateRule) -> None:
    here, rules = world(), {PODS: rule}
    reconciled(here, rules, pod(here))
    assert reconciled(here, rules, pod(here)) == []
    assert children.refused(here.observed(), [pod(here)], rules) == ()


def test_what_is_refused_is_a_change_only() -> None:
    """Not what is missing, nor what another rule is for."""
    here = world()
    rules = {PODS: UpdateRule.REFUSE, CONFIG_MAPS: UpdateRule.REPLACE}
    assert children.refused(here.observed(), [pod(here)], rules) == ()
    reconciled(here, rules, config(here))
    assert children.refused(here.observed(), [config(here, "b")], rules) == ()


def test_a_child_without_a_spec_is_replaced_with_all_its_content() -> None:
    here, rules = world(), {CONFIG_MAPS: UpdateRule.REPLACE}
    reconciled(here, rules, config(here))
    here.child("ConfigMap", "digits-hosts")["metadata"]["resourceVersion"] = "5"
    (action,) = reconciled(here, rules, config(here, "b"))
    assert isinstance(action, Replace)
    assert action.object["data"] == {"hosts": "b"}
    assert action.object["metadata"]["resourceVersion"] == "5"
    assert "spec" not in action.object
    assert reconciled(here, rules, config(here, "b")) == []


def test_what_is_settled_is_neither_made_nor_changed_nor_deleted() -> None:
    here, rules = world(), {PODS: UpdateRule.RECREATE}
    desired = [pod(here, "digits-a"), pod(here, "digits-b")]
    reconciled(here, rules, desired[0])
    settled = [ref_of(PODS, each.object) for each in desired]
    changed = [pod(here, "digits-a", "b"), pod(here, "digits-b", "b")]
    assert reconciled(here, rules, *changed, exempt=settled) == []
    assert reconciled(here, rules, exempt=settled) == []
    assert here.names() == ["Pod/digits-a"]


def test_what_is_independent_is_one_stage() -> None:
    """First what is too much, then type after type."""
    here = world()
    rules = {PODS: UpdateRule.KEEP, CONFIG_MAPS: UpdateRule.REPLACE}
    reconciled(here, rules, pod(here, "digits-x"), pod(here, "digits-y"))
    desired = [config(here), pod(here, "digits-a"), pod(here, "digits-b")]
    stages = children.reconcile(here.observed(), desired, rules)
    assert [[type(action).__name__ for action in stage] for stage in stages] == [
        ["Delete", "Delete"],
        ["Create"],
        ["Create", "Create"],
    ]


def test_a_pod_keeps_the_labels_and_annotations_of_its_template() -> None:
    template = {
        "metadata": {"labels": {"team": "vision"}, "annotations": {"note": "x"}},
        "spec": {"containers": []},
    }
    made = children.pod(world().observed(), name="digits-a", role="edge", template=template)
    metadata = made.object["metadata"]
    assert metadata["labels"] == {
        "team": "vision",
        **objects.job_labels(world().observed(), "edge"),
    }
    assert metadata["annotations"] == {
        "note": "x",
        SPEC_HASH: objects.content_hash(template),
    }


def test_a_headless_service_has_no_address_and_may_have_several_ports() -> None:
    made = children.service(
        world().observed(),
        name="digits-a",
        role="edge",
        ports={"ssh": 22, "http": 80},
        selector={"a": "b"},
        headless=True,
    )
    spec = made.object["spec"]
    assert (spec["clusterIP"], spec["publishNotReadyAddresses"]) == ("None", True)
    assert spec["selector"] == {"a": "b"}
    assert [(port["name"], port["port"]) for port in spec["ports"]] == [("ssh", 22), ("http", 80)]


# ---- scalers ------------------------------------------------------------------------------------

SCALERS = ResourceType("edgeai.io", "v1", "scales", "Scale")


def scaler(name: str, *owners: Object, **metadata: Any) -> Object:
    known = {"name": name, "namespace": "default", "uid": f"uid-of-{name}", **metadata}
    return {"metadata": {**known, **({"ownerReferences": [*owners]} if owners else {})}}


def test_scalers_that_nobody_controls_are_adopted() -> None:
    here = world()
    mine = objects.owner_reference(here.observed())
    other = {**mine, "uid": "uid-of-another"}
    scalers = [
        scaler("new"),
        scaler("owned", {**other, "controller": False}),
        scaler("adopted", mine),
        scaler("others", other),
        scaler("going", deletionTimestamp="2026-01-02T03:04:05Z"),
    ]
    observed = msgspec.structs.replace(
        here.observed(), scalers={ref_of(SCALERS, each): each for each in scalers}
    )
    adoptions = children.adoptions(observed)
    assert [(each.ref.name, each.uid) for each in adoptions] == [
        ("new", "uid-of-new"),
        ("owned", "uid-of-owned"),
    ]
    adopted = [each for each in scalers if children.is_adopted(observed, each)]
    assert adopted == [scalers[2]]
