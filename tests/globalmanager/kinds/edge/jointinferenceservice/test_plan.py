"""JointInferenceService: which objects are created, when, and that plans converge."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from edgeai.api.resources import AUTOSCALERS, DEPLOYMENTS, Object, ref_of
from globalmanager.contract import Create, Plan, Replace
from tests.globalmanager.kinds.edge.samples import (
    joint_inference_spec,
    mining_spec,
    proposal_service,
    sedna_service,
    small_service,
    value_of,
    worker_spec,
)
from tests.support.world import NOW, World, at

HPA = {"minReplicas": 2, "maxReplicas": 5}


def pod_spec(world: World, role: str) -> Object:
    name = f"{world.object['metadata']['name']}-deployment-{role}"
    pod: Object = world.child("Deployment", name)["spec"]["template"]["spec"]
    return pod


def env(world: World, role: str) -> list[tuple[str, str]]:
    """(name, value as `value_of` gives it) in order."""
    (container,) = pod_spec(world, role)["containers"]
    return [(item["name"], value_of(item)) for item in container["env"]]


# ---- the two manifests --------------------------------------------------------------------------


def test_the_proposals_sample_becomes_two_deployments_and_a_service() -> None:
    world = proposal_service().settle()
    assert world.names() == [
        "Deployment/helmet-detection-demo-deployment-cloud",
        "Deployment/helmet-detection-demo-deployment-edge",
        "Secret/helmet-detection-demo-edge",
        "Service/helmet-detection-demo-cloud",
    ]
    edge = pod_spec(world, "edge")
    assert edge["nodeName"] == "edge0"
    assert edge["containers"][0]["command"] == ["python3", "/code/edge_inference.py"]
    assert edge["containers"][0]["image"] == "registry.test/tensorflow:1.18"
    assert pod_spec(world, "cloud")["nodeName"] == "solar-corona-cloud"


def test_the_environment_of_the_proposals_edge_worker() -> None:
    names = dict(env(proposal_service().settle(), "edge"))
    assert names.pop("LC_SERVER") == "http://$(HOST_IP):9100/w/$(WORKER_SECRET)"
    assert names.pop("WORKER_SECRET") == "WORKER_SECRET of Secret helmet-detection-demo-edge"
    assert list(names.items()) == [
        ("NAMESPACE", "default"),
        ("SERVICE_NAME", "helmet-detection-demo"),
        ("WORKER_NAME", "helmet-detection-demo-edge"),
        ("BIG_MODEL_IP", "helmet-detection-demo-cloud.default"),
        ("BIG_MODEL_PORT", "5000"),
        ("HEM_NAME", "IBT"),
        ("HEM_PARAMETERS", "[]"),
        ("HOST_IP", "status.hostIP"),
        ("MODEL_URL", "/home/data/models/small.pb"),
        ("DATA_PATH_PREFIX", "/home/data"),
        ("nms_threshold", "0.6"),
    ]


def test_the_host_ip_comes_before_the_variable_that_uses_it() -> None:
    names = [name for name, _ in env(proposal_service().settle(), "edge")]
    assert names.index("HOST_IP") < names.index("LC_SERVER")
    assert names.index("WORKER_SECRET") < names.index("LC_SERVER")


def test_a_sedna_manifest_becomes_the_same_objects_in_its_own_group() -> None:
    world = sedna_service().settle()
    assert world.names() == [
        "Deployment/bird-watch-deployment-cloud",
        "Deployment/bird-watch-deployment-edge",
        "HorizontalPodAutoscaler/hpa-bird-watch-deployment-cloud",
        "Secret/bird-watch-edge",
        "Service/bird-watch-cloud",
    ]
    owner = world.child("Service", "bird-watch-cloud")["metadata"]["ownerReferences"][0]
    assert owner["apiVersion"] == "sedna.io/v1alpha1"


def test_the_environment_of_sednas_cloud_worker() -> None:
    assert env(sedna_service().settle(), "cloud") == [
        ("NAMESPACE", "default"),
        ("SERVICE_NAME", "bird-watch"),
        ("WORKER_NAME", "bird-watch-cloud"),
        ("BIG_MODEL_BIND_IP", "status.podIP"),
        ("BIG_MODEL_BIND_PORT", "5000"),
        ("MODEL_URL", "/downloads/birds/big.pb"),
    ]


def test_mining_parameters_are_a_json_list_in_the_environment() -> None:
    names = dict(env(sedna_service().settle(), "edge"))
    assert names["HEM_PARAMETERS"] == (
        '[{"key": "threshold_img", "value": "0.9"}, {"key": "threshold_box", "value": "0.9"}]'
    )
    assert names["video_url"] == "rtsp://camera.test/video"


def test_a_sedna_template_keeps_its_pod_settings() -> None:
    edge = pod_spec(sedna_service().settle(), "edge")
    assert edge["hostNetwork"] is True
    assert edge["tolerations"] == [{"operator": "Exists"}]
    assert edge["restartPolicy"] == "Always"
    assert [volume["name"] for volume in edge["volumes"]] == ["edgeai-data-0", "output"]


def test_a_model_in_a_bucket_is_fetched_with_its_secret() -> None:
    (fetch,) = pod_spec(sedna_service().settle(), "cloud")["initContainers"]
    assert fetch["args"] == ["s3://birds/big.pb", "/downloads/birds"]
    assert fetch["envFrom"] == [{"secretRef": {"name": "s3-key"}}]


def test_the_service_finds_the_cloud_pods() -> None:
    world = small_service().settle()
    service = world.child("Service", "digits-cloud")["spec"]
    labels = world.child("Deployment", "digits-deployment-cloud")["spec"]["template"]["metadata"]
    assert service["selector"].items() <= labels["labels"].items()
    assert service["ports"][0]["port"] == 5000


def test_a_deployment_selects_its_own_pods_only() -> None:
    world = small_service().settle()
    for role, other in (("edge", "cloud"), ("cloud", "edge")):
        name = f"digits-deployment-{role}"
        selector = world.child("Deployment", name)["spec"]["selector"]["matchLabels"]
        for candidate in (role, other):
            deployment = world.child("Deployment", f"digits-deployment-{candidate}")
            labels = deployment["spec"]["template"]["metadata"]["labels"]
            assert (selector.items() <= labels.items()) == (candidate == role)


def test_a_worker_without_a_node_is_named_after_the_node_of_its_pod() -> None:
    given = joint_inference_spec()
    given["edgeWorker"] = worker_spec("small")
    names = env(small_service(given).settle(), "edge")
    assert ("NODE_NAME", "spec.nodeName") in names
    assert dict(names)["WORKER_NAME"] == "digits-edge-$(NODE_NAME)"
    assert [name for name, _ in names].index("NODE_NAME") < [name for name, _ in names].index(
        "WORKER_NAME"
    )


def test_a_spec_without_mining_sets_no_mining_variables() -> None:
    assert not [
        name for name, _ in env(small_service().settle(), "edge") if name.startswith("HEM_")
    ]


# ---- autoscaling --------------------------------------------------------------------------------


def test_an_autoscaled_deployment_leaves_replicas_to_the_autoscaler() -> None:
    world = small_service(joint_inference_spec(cloud={"hpa": HPA}))
    made = world.plan().actions
    created = [one.object for one in made if isinstance(one, Create) and one.type == DEPLOYMENTS]
    replicas = {child["metadata"]["name"]: child["spec"].get("replicas") for child in created}
    assert replicas["digits-deployment-cloud"] is None
    assert replicas["digits-deployment-edge"] == 1
    world.settle()
    autoscaler = world.child("HorizontalPodAutoscaler", "hpa-digits-deployment-cloud")
    assert autoscaler["spec"] == {
        "scaleTargetRef": {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "name": "digits-deployment-cloud",
        },
        **HPA,
    }


def test_the_autoscalers_replicas_stay_until_the_autoscaler_is_removed() -> None:
    world = small_service(joint_inference_spec(cloud={"hpa": HPA})).settle()
    world.child("Deployment", "digits-deployment-cloud")["spec"]["replicas"] = 4
    world.change(
        joint_inference_spec(cloud={"hpa": HPA, "template": worker_spec("new")["template"]})
    ).settle()
    assert world.child("Deployment", "digits-deployment-cloud")["spec"]["replicas"] == 4
    world.change(joint_inference_spec()).settle()
    assert world.child("Deployment", "digits-deployment-cloud")["spec"]["replicas"] == 1
    assert not [name for name in world.names() if name.startswith("Horizontal")]


def test_a_server_without_autoscaling_v2_has_the_workers_and_the_service_says_so() -> None:
    world = small_service(joint_inference_spec(cloud={"hpa": HPA}))
    world.absent = frozenset({AUTOSCALERS})
    world.settle()
    assert not [name for name in world.names() if name.startswith("Horizontal")]
    assert "Deployment/digits-deployment-cloud" in world.names()
    message = world.condition("Accepted")["message"]
    assert "cloudWorker.hpa" in message
    assert "autoscaling/v2" in message


# ---- waiting ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "kind", "name"),
    [
        pytest.param(small_service, "Model", "small", id="edge model"),
        pytest.param(small_service, "Model", "big", id="cloud model"),
        pytest.param(small_service, "Node", "edge0", id="edge node"),
        pytest.param(proposal_service, "Node", "solar-corona-cloud", id="cloud node"),
    ],
)
def test_a_service_waits_for_a_missing_object_and_names_it(
    start: Callable[[], World], kind: str, name: str
) -> None:
    world = start().without(kind, name).settle()
    assert world.names() == []
    resolved = world.condition("ResolvedRefs")
    assert (resolved["status"], resolved["reason"]) == ("False", f"{kind}NotFound")
    assert f"{kind} " in resolved["message"]
    assert name in resolved["message"]
    assert world.status["phase"] == "Pending"
    assert world.condition("Running")["reason"] == "Waiting"
    (world.nodes if kind == "Node" else world.model)(name)
    assert len(world.settle().names()) == 4


def test_one_message_names_all_missing_objects() -> None:
    world = (
        small_service().without("Model", "small").without("Model", "big").without("Node", "edge0")
    )
    message = world.settle().condition("ResolvedRefs")["message"]
    assert all(name in message for name in ("default/small", "default/big", "Node edge0"))


def test_a_service_waits_for_an_image_of_its_framework() -> None:
    world = proposal_service()
    images, world.settings = world.settings, type(world.settings)(root_key=b"k")
    resolved = world.settle().condition("ResolvedRefs")
    assert resolved["reason"] == "FrameworkImageNotConfigured"
    assert "tensorflow:1.18" in resolved["message"]
    assert world.names() == []
    world.settings = images
    assert len(world.settle().names()) == 4


def test_a_service_waits_while_the_url_of_a_model_is_invalid() -> None:
    world = small_service().model("small", "ftp://x/y").settle()
    resolved = world.condition("ResolvedRefs")
    assert resolved["reason"] == "ModelInvalid"
    assert "spec.url" in resolved["message"]
    assert world.names() == []


def test_a_service_refers_to_models_of_its_own_group() -> None:
    world = sedna_service()
    refs = world.kind.references(world.observed())
    assert {ref.type.group for ref in refs} == {"sedna.io", ""}


@pytest.mark.parametrize(("kind", "name"), [("Model", "small"), ("Node", "edge0")])
def test_running_workers_stay_when_a_reference_is_deleted(kind: str, name: str) -> None:
    world = small_service().settle().available("edge", "cloud")
    before = dict(world.children)
    world.without(kind, name).settle()
    assert world.children == before
    assert world.condition("ResolvedRefs")["status"] == "False"
    assert world.condition("Running")["status"] == "True"


# ---- following the spec -------------------------------------------------------------------------


def spec_with_key1(**values: str) -> dict[str, Any]:
    """A spec with the variable `key1` in the workers of these roles: role -> value."""
    given = joint_inference_spec()
    for role, value in values.items():
        (container,) = given[f"{role}Worker"]["template"]["spec"]["containers"]
        container["env"] = [{"name": "key1", "value": value}]
    return given


@pytest.mark.parametrize(("role", "other"), [("edge", "cloud"), ("cloud", "edge")])
def test_a_changed_template_replaces_only_its_deployment(role: str, other: str) -> None:
    """The Deployment keeps its uid; the other children stay unchanged."""
    world = (
        small_service(spec_with_key1(edge="value1", cloud="value1"))
        .settle()
        .available("edge", "cloud")
    )
    before = dict(world.children)
    world.change(spec_with_key1(**{role: "value2", other: "value1"}))
    plan = world.plan()
    (action,) = plan.actions
    assert isinstance(action, Replace)
    concerned = ref_of(action.type, action.object)
    assert concerned.name == f"digits-deployment-{role}"
    world.apply(plan).settle()
    assert dict(env(world, role))["key1"] == "value2"
    assert dict(env(world, other))["key1"] == "value1"
    old, new = before.pop(concerned), world.children.pop(concerned)
    assert new["metadata"]["uid"] == old["metadata"]["uid"]
    assert new["spec"]["selector"] == old["spec"]["selector"]
    assert world.children == before
    assert world.status["observedGeneration"] == 2


@pytest.mark.parametrize(
    ("model", "change", "role"),
    [
        pytest.param("small", {"url": "/models/new.onnx"}, "edge", id="file of the edge"),
        pytest.param("big", {"url": "s3://models/new.onnx"}, "cloud", id="bucket of the cloud"),
    ],
)
def test_a_changed_model_replaces_only_the_deployment_that_uses_it(
    model: str, change: dict[str, str], role: str
) -> None:
    world = small_service().settle()
    old = dict(env(world, role))["MODEL_URL"]
    (action,) = world.model(model, **change).plan().actions
    assert isinstance(action, Replace)
    assert action.object["metadata"]["name"] == f"digits-deployment-{role}"
    world.settle()
    assert dict(env(world, role))["MODEL_URL"] not in ("", old)


# ---- convergence --------------------------------------------------------------------------------

CHANGES = [
    pytest.param(
        joint_inference_spec(), joint_inference_spec(cloud={"hpa": HPA}), id="autoscaler added"
    ),
    pytest.param(
        joint_inference_spec(edge={"hpa": HPA}, cloud={"hpa": HPA}),
        joint_inference_spec(),
        id="autoscalers removed",
    ),
    pytest.param(
        joint_inference_spec(), joint_inference_spec(edge={"nodeName": "edge1"}), id="edge moves"
    ),
    pytest.param(
        joint_inference_spec(), mining_spec("Random", random_ratio="0.3"), id="mining added"
    ),
]


@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_an_interrupted_plan_ends_in_the_state_of_a_complete_plan(old: Any, new: Any) -> None:
    whole = small_service(old).settle().change(new).settle()
    creation, change = small_service(old).plan(), small_service(old).settle().change(new).plan()
    prefixes = itertools.product(range(len(creation.actions) + 1), range(len(change.actions) + 1))
    for first, second in prefixes:
        world = small_service(old)
        world.apply(creation, actions=first).change(new)
        world.apply(world.plan(), actions=second).settle()
        assert world.names() == whole.names()
        for ref, child in whole.children.items():
            assert world.children[ref].get("spec") == child.get("spec")
        assert world.status == {**whole.status}


def test_a_settled_service_plans_nothing() -> None:
    world = small_service().contact("edge0").settle().available("edge", "cloud").settle()
    assert world.plan(at(3600)) == Plan()


def test_a_deleted_child_is_created_again() -> None:
    world = small_service().settle()
    lost = next(ref for ref in world.children if ref.name == "digits-deployment-edge")
    del world.children[lost]
    (action,) = world.plan().actions
    assert isinstance(action, Create)
    assert action.object["metadata"]["name"] == "digits-deployment-edge"


def test_a_service_that_is_being_deleted_has_an_empty_plan() -> None:
    world = small_service().settle().delete()
    world.children.clear()
    assert world.plan() == Plan()
    assert world.kind.assignments(world.observed()) == {}


def test_the_plan_does_not_depend_on_the_order_of_the_spec() -> None:
    given = mining_spec("IBT", threshold_img="0.5")
    turned = {key: dict(reversed(given[key].items())) for key in reversed(given)}
    assert small_service(given).plan(NOW).actions == small_service(turned).plan(NOW).actions


def test_an_edge_worker_with_the_relay_knows_its_proxy_after_what_the_proxy_needs() -> None:
    world = small_service()
    world.object["spec"]["transport"] = "relay"
    names = [name for name, _ in env(world.settle(), "edge")]
    for needed in ("HOST_IP", "WORKER_SECRET", "WORKER_NAME"):
        assert names.index(needed) < names.index("HTTP_PROXY")
    assert "HTTP_PROXY" not in dict(env(world, "cloud"))
