"""What others change in children: put back, and told where they do it again and again."""

from typing import Any

import msgspec
import pytest

from edgeai.api.resources import DEPLOYMENTS, ObjectRef
from globalmanager.contract import Replace
from tests.globalmanager.kinds.edge.samples import proposal_service, sedna_service
from tests.support.world import NOW, World, copied

EDGE = ObjectRef(DEPLOYMENTS, "default", "helmet-detection-demo-deployment-edge")
IMAGE = "spec.template.spec.containers[0].image"
POD = "spec.template.spec"
CLOUD = "bird-watch-deployment-cloud"


def with_another_image(world: World) -> World:
    """Somebody has set the image of the edge worker."""
    child: Any = world.children[EDGE]
    container = {**child["spec"]["template"]["spec"]["containers"][0], "image": "theirs"}
    template = child["spec"]["template"]
    spec = {**template["spec"], "containers": [container]}
    world.children[EDGE] = {
        **child,
        "spec": {**child["spec"], "template": {**template, "spec": spec}},
    }
    return world


def plan(world: World, **overridden: Any) -> Any:
    observed = msgspec.structs.replace(world.observed(), **overridden)
    made = world.kind.plan(observed, NOW)
    found = [
        one for one in (made.status or {}).get("conditions", ()) if one["type"] == "Overridden"
    ]
    return (found or [None])[0], made


def test_what_is_overridden_is_told_with_the_fields_and_a_remedy() -> None:
    world = with_another_image(proposal_service().settle())
    condition, made = plan(world, overridden={EDGE: (IMAGE,)})
    assert (condition["status"], condition["reason"]) == ("True", "SetByOthers")
    for words in (f"Deployment {EDGE.name}", IMAGE, "managedFields", "change the job"):
        assert words in condition["message"]
    assert len(made.actions) == 1  # the engine leaves it out


def test_a_first_change_is_put_back_without_a_word_in_the_status() -> None:
    condition, made = plan(with_another_image(proposal_service().settle()))
    assert condition is None
    assert len(made.actions) == 1


def test_the_condition_ends_with_the_difference() -> None:
    world = with_another_image(proposal_service().settle())
    _, made = plan(world, overridden={EDGE: (IMAGE,)})
    world.object = {**world.object, "status": {**world.status, **made.status}}
    assert world.condition("Overridden")["status"] == "True"
    world.settle()  # puts the image back
    condition, made = plan(world, overridden={EDGE: (IMAGE,)})
    assert condition is None
    assert "Overridden" not in [one["type"] for one in world.status["conditions"]]


def test_a_new_leader_keeps_the_condition_until_it_knows() -> None:
    world = with_another_image(proposal_service().settle())
    _, made = plan(world, overridden={EDGE: (IMAGE,)})
    world.object = {**world.object, "status": {**world.status, **made.status}}
    assert world.plan().status is None


def test_many_fields_and_children_fit_into_the_message() -> None:
    world = proposal_service().settle()
    fields = tuple(f"spec.template.spec.containers[0].env[{n}].value" for n in range(500))
    changed = {ref: child for ref, child in world.children.items() if "spec" in child}
    for ref, child in changed.items():
        world.children[ref] = {**child, "spec": {**child["spec"], "selector": {"a": "b"}}}
    condition, _ = plan(world, overridden=dict.fromkeys(changed, fields))
    assert len(condition["message"]) < 1024
    assert "and 498 more" in condition["message"]
    assert "1 more children" in condition["message"]
    assert condition["message"].endswith("or change the job")


# ---- what is put back ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "name", "path", "value"),
    [
        ("Deployment", "bird-watch-deployment-edge", f"{POD}.containers.0.image", "theirs"),
        ("Deployment", "bird-watch-deployment-edge", f"{POD}.containers.0.env.0.value", "theirs"),
        ("Deployment", "bird-watch-deployment-cloud", f"{POD}.nodeSelector.zone", "theirs"),
        ("Deployment", "bird-watch-deployment-cloud", "spec.selector.matchLabels", {"a": "b"}),
        ("Service", "bird-watch-cloud", "spec.selector", {"a": "b"}),
        ("Service", "bird-watch-cloud", "spec.ports.0.targetPort", 1),
        ("HorizontalPodAutoscaler", f"hpa-{CLOUD}", "spec.maxReplicas", 40),
        ("HorizontalPodAutoscaler", f"hpa-{CLOUD}", "spec.scaleTargetRef.name", "theirs"),
        (
            "HorizontalPodAutoscaler",
            f"hpa-{CLOUD}",
            "spec.metrics.0.resource.target.averageUtilization",
            90,
        ),
    ],
)
def test_a_field_that_the_service_declares_is_put_back(
    kind: str, name: str, path: str, value: Any
) -> None:
    world = sedna_service().settle()
    ref = next(ref for ref in world.children if (ref.type.kind, ref.name) == (kind, name))
    before = copied(world.children[ref])
    target: Any = world.children[ref]
    *parents, last = [int(word) if word.isdigit() else word for word in path.split(".")]
    for word in parents:
        target = target[word]
    target[last] = value
    (action,) = world.plan().actions
    assert isinstance(action, Replace)
    assert action.is_drift
    assert world.settle().children[ref] == before
