"""JointInferenceService: which objects are created, when, and that plans converge."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from globalmanager.contract import Create, Object, Plan, Replace, ref_of
from tests.globalmanager.builders import NOW, World, at
from tests.globalmanager.kinds.samples import digits, proposal, sedna_style, spec, worker

HPA = {"minReplicas": 2, "maxReplicas": 5}


def pod_spec(world: World, role: str) -> Object:
    name = f"{world.object['metadata']['name']}-deployment-{role}"
    pod: Object = world.child("Deployment", name)["spec"]["template"]["spec"]
    return pod


def env(world: World, role: str) -> list[tuple[str, str]]:
    """(name, value or field path) in order."""
    (container,) = pod_spec(world, role)["containers"]
    return [
        (item["name"], item.get("value") or item["valueFrom"]["fieldRef"]["fieldPath"])
        for item in container["env"]
    ]


# ---- the two manifests --------------------------------------------------------------------------


def test_the_proposals_sample_becomes_two_deployments_and_a_service() -> None:
    world = proposal().settle()
    assert world.names() == [
        "Deployment/helmet-detection-demo-deployment-cloud",
        "Deployment/helmet-detection-demo-deployment-edge",
        "Service/helmet-detection-demo-cloud",
    ]
    edge = pod_spec(world, "edge")
    assert edge["nodeName"] == "edge0"
    assert edge["containers"][0]["command"] == ["python3", "/code/edge_inference.py"]
    assert edge["containers"][0]["image"] == "registry.test/tensorflow:1.18"
    assert pod_spec(world, "cloud")["nodeName"] == "solar-corona-cloud"


def test_the_environment_of_the_proposals_edge_worker() -> None:
    names = dict(env(proposal().settle(), "edge"))
    assert names["LC_SERVER"].startswith("http://$(HOST_IP):9100/w/")
    del names["LC_SERVER"]
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
    names = [name for name, _ in env(proposal().settle(), "edge")]
    assert names.index("HOST_IP") < names.index("LC_SERVER")


def test_a_sedna_manifest_becomes_the_same_objects_in_its_own_group() -> None:
    world = sedna_style().settle()
    assert world.names() == [
        "Deployment/bird-watch-deployment-cloud",
        "Deployment/bird-watch-deployment-edge",
        "HorizontalPodAutoscaler/hpa-bird-watch-deployment-cloud",
        "Service/bird-watch-cloud",
    ]
    owner = world.child("Service", "bird-watch-cloud")["metadata"]["ownerReferences"][0]
    assert owner["apiVersion"] == "sedna.io/v1alpha1"


def test_the_environment_of_sednas_cloud_worker() -> None:
    assert env(sedna_style().settle(), "cloud") == [
        ("NAMESPACE", "default"),
        ("SERVICE_NAME", "bird-watch"),
        ("WORKER_NAME", "bird-watch-cloud"),
        ("BIG_MODEL_BIND_IP", "status.podIP"),
        ("BIG_MODEL_BIND_PORT", "5000"),
        ("MODEL_URL", "/downloads/birds/big.pb"),
    ]


def test_mining_parameters_travel_as_a_json_list() -> None:
    names = dict(env(sedna_style().settle(), "edge"))
    assert names["HEM_PARAMETERS"] == (
        '[{"key": "threshold_img", "value": "0.9"}, {"key": "threshold_box", "value": "0.9"}]'
    )
    assert names["video_url"] == "rtsp://camera.test/video"


def test_a_sedna_template_keeps_its_pod_settings() -> None:
    edge = pod_spec(sedna_style().settle(), "edge")
    assert edge["hostNetwork"] is True
    assert edge["tolerations"] == [{"operator": "Exists"}]
    assert edge["restartPolicy"] == "Always"
    assert [volume["name"] for volume in edge["volumes"]] == ["edgeai-data-0", "output"]


def test_a_model_in_a_bucket_is_fetched_with_its_secret() -> None:
    (fetch,) = pod_spec(sedna_style().settle(), "cloud")["initContainers"]
    assert fetch["args"] == ["s3://birds/big.pb", "/downloads/birds"]
    assert fetch["envFrom"] == [{"secretRef": {"name": "s3-key"}}]


def test_the_service_finds_the_cloud_pods() -> None:
    world = digits().settle()
    service = world.child("Service", "digits-cloud")["spec"]
    labels = world.child("Deployment", "digits-deployment-cloud")["spec"]["template"]["metadata"]
    assert service["selector"].items() <= labels["labels"].items()
    assert service["ports"][0]["port"] == 5000


def test_a_deployment_selects_its_own_pods_only() -> None:
    world = digits().settle()
    for role, other in (("edge", "cloud"), ("cloud", "edge")):
        name = f"digits-deployment-{role}"
        selector = world.child("Deployment", name)["spec"]["selector"]["matchLabels"]
        for candidate in (role, other):
            deployment = world.child("Deployment", f"digits-deployment-{candidate}")
            labels = deployment["spec"]["template"]["metadata"]["labels"]
            assert (selector.items() <= labels.items()) == (candidate == role)


def test_without_a_node_each_pod_is_named_after_its_own() -> None:
    given = spec()
    given["edgeWorker"] = worker("small")
    names = env(digits(given).settle(), "edge")
    assert ("NODE_NAME", "spec.nodeName") in names
    assert dict(names)["WORKER_NAME"] == "digits-edge-$(NODE_NAME)"
    assert [name for name, _ in names].index("NODE_NAME") < [name for name, _ in names].index(
        "WORKER_NAME"
    )


def test_without_mining_the_workers_code_decides() -> None:
    assert not [name for name, _ in env(digits().settle(), "edge") if name.startswith("HEM_")]


# ---- autoscaling --------------------------------------------------------------------------------


def test_an_autoscaled_deployment_leaves_replicas_to_the_autoscaler() -> None:
    world = digits(spec(cloud={"hpa": HPA}))
    created = [action.object for action in world.plan().actions if isinstance(action, Create)]
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


def test_the_autoscalers_number_survives_a_new_image_and_ends_with_it() -> None:
    world = digits(spec(cloud={"hpa": HPA})).settle()
    world.child("Deployment", "digits-deployment-cloud")["spec"]["replicas"] = 4
    world.change(spec(cloud={"hpa": HPA, "template": worker("new")["template"]})).settle()
    assert world.child("Deployment", "digits-deployment-cloud")["spec"]["replicas"] == 4
    world.change(spec()).settle()
    assert world.child("Deployment", "digits-deployment-cloud")["spec"]["replicas"] == 1
    assert not [name for name in world.names() if name.startswith("Horizontal")]


# ---- waiting ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "kind", "name"),
    [
        pytest.param(digits, "Model", "small", id="edge model"),
        pytest.param(digits, "Model", "big", id="cloud model"),
        pytest.param(digits, "Node", "edge0", id="edge node"),
        pytest.param(proposal, "Node", "solar-corona-cloud", id="cloud node"),
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
    assert len(world.settle().names()) == 3


def test_everything_missing_is_named_at_once() -> None:
    world = digits().without("Model", "small").without("Model", "big").without("Node", "edge0")
    message = world.settle().condition("ResolvedRefs")["message"]
    assert all(name in message for name in ("default/small", "default/big", "Node edge0"))


def test_it_waits_for_an_image_of_the_framework() -> None:
    world = proposal()
    images, world.settings = world.settings, type(world.settings)(root_key=b"k")
    resolved = world.settle().condition("ResolvedRefs")
    assert resolved["reason"] == "FrameworkImageNotConfigured"
    assert "tensorflow:1.18" in resolved["message"]
    assert world.names() == []
    world.settings = images
    assert len(world.settle().names()) == 3


def test_it_waits_for_a_model_whose_url_is_no_good() -> None:
    world = digits().model("small", "ftp://x/y").settle()
    resolved = world.condition("ResolvedRefs")
    assert resolved["reason"] == "ModelInvalid"
    assert "spec.url" in resolved["message"]
    assert world.names() == []


def test_models_of_the_other_group_do_not_count() -> None:
    world = sedna_style()
    refs = world.kind.references(world.observed())
    assert {ref.type.group for ref in refs} == {"sedna.io", ""}


@pytest.mark.parametrize(("kind", "name"), [("Model", "small"), ("Node", "edge0")])
def test_running_workers_are_left_alone_when_a_reference_vanishes(kind: str, name: str) -> None:
    world = digits().settle().available("edge", "cloud")
    before = dict(world.children)
    world.without(kind, name).settle()
    assert world.children == before
    assert world.condition("ResolvedRefs")["status"] == "False"
    assert world.condition("Running")["status"] == "True"


# ---- invalid specs ------------------------------------------------------------------------------


def mined(name: str, **parameters: str) -> dict[str, Any]:
    pairs = [{"key": key, "value": value} for key, value in parameters.items()]
    return spec(edge={"hardExampleMining": {"name": name, "parameters": pairs}})


BOTH = {"hardExampleMining": {"name": "IBT"}, "hardExampleAlgorithm": {"name": "IBT"}}
INVALID = [
    pytest.param(None, "spec: has the wrong form", id="no spec"),
    pytest.param([], "spec: has the wrong form", id="list"),
    pytest.param({"edgeWorker": worker("m")}, "spec.cloudWorker: is missing", id="one worker"),
    pytest.param(
        spec(edge={"model": {"name": ""}}), "spec.edgeWorker.model.name: has the", id="empty name"
    ),
    pytest.param(
        spec(cloud={"model": {"name": "../x"}}), "spec.cloudWorker.model.name: ", id="bad name"
    ),
    pytest.param(
        spec(cloud={"template": None}), "spec.cloudWorker: has no container", id="no form"
    ),
    pytest.param(
        spec(edge={"template": {"spec": {"containers": []}}}),
        "spec.edgeWorker.template.spec.containers: ",
        id="no container",
    ),
    pytest.param(
        mined("Guess"),
        "spec.edgeWorker.hardExampleMining.name: 'Guess' is no known algorithm; use one of "
        "BertRouter, CloudOnly, CrossEntropy, EdgeOnly, IBT, Random, Threshold",
        id="unknown algorithm",
    ),
    pytest.param(
        mined("Threshold", threshold="abc"),
        "spec.edgeWorker.hardExampleMining.parameters[0].value: 'abc' is no number",
        id="threshold is text",
    ),
    pytest.param(
        mined("Random", seed="0.5"),
        "spec.edgeWorker.hardExampleMining.parameters[0].value: '0.5' is no whole number",
        id="seed is a fraction",
    ),
    pytest.param(
        mined("IBT", threshold_img="0.5", threshold_box="nan"),
        "spec.edgeWorker.hardExampleMining.parameters[1].value: 'nan' is no number",
        id="threshold is not finite",
    ),
    pytest.param(spec(edge=BOTH), "spec.edgeWorker.hardExampleAlgorithm: ", id="mining twice"),
    pytest.param(
        spec(cloud={"hpa": {"minReplicas": 3, "maxReplicas": 2}}),
        "spec.cloudWorker.hpa: has the wrong form (minReplicas is greater",
        id="autoscaling limits",
    ),
]


@pytest.mark.parametrize(("given", "message"), INVALID)
def test_an_invalid_spec_is_reported_and_creates_nothing(given: Any, message: str) -> None:
    world = digits()
    world.object = {**world.object, "spec": given}
    world.settle()
    accepted = world.condition("Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", "InvalidSpec")
    assert accepted["message"].startswith(message)
    assert world.status["phase"] == "Invalid"
    assert "startTime" not in world.status
    assert world.names() == []


@pytest.mark.parametrize(("given", "message"), INVALID)
def test_an_invalid_change_leaves_running_workers_alone(given: Any, message: str) -> None:
    world = digits().settle().available("edge", "cloud")
    before = dict(world.children)
    world.change(given).settle()
    assert world.children == before
    assert world.condition("Running")["status"] == "True"
    assert world.condition("Accepted")["observedGeneration"] == 2
    world.change(spec()).settle()
    assert world.condition("Accepted")["status"] == "True"


@pytest.mark.parametrize("name", ["a" * 58, "1digits", "a.b"])
def test_a_name_that_makes_no_service_is_told(name: str) -> None:
    world = digits(name=name).settle()
    assert world.condition("Accepted")["message"].startswith("metadata.name: ")
    assert world.names() == []


def test_an_unknown_mining_parameter_is_passed_on_and_mentioned() -> None:
    world = digits(mined("IBT", treshold_img="0.9")).settle()
    accepted = world.condition("Accepted")
    assert accepted["status"] == "True"
    assert "does not know 'treshold_img'" in accepted["message"]
    assert "treshold_img" in dict(env(world, "edge"))["HEM_PARAMETERS"]


def test_a_template_that_overrides_the_worker_api_is_obeyed_with_a_warning() -> None:
    container = {"name": "c", "image": "i:1", "env": [{"name": "LC_SERVER", "value": "http://x"}]}
    world = digits(spec(edge={"template": {"spec": {"containers": [container]}}})).settle()
    accepted = world.condition("Accepted")
    assert accepted["status"] == "True"
    assert "edgeWorker.template sets LC_SERVER" in accepted["message"]
    assert dict(env(world, "edge"))["LC_SERVER"] == "http://x"


# ---- following the spec -------------------------------------------------------------------------


def tuned(**values: str) -> dict[str, Any]:
    """Spec whose workers, by role, are given the parameter `key1`."""
    given = spec()
    for role, value in values.items():
        (container,) = given[f"{role}Worker"]["template"]["spec"]["containers"]
        container["env"] = [{"name": "key1", "value": value}]
    return given


@pytest.mark.parametrize(("role", "other"), [("edge", "cloud"), ("cloud", "edge")])
def test_update_service(role: str, other: str) -> None:
    """The Deployment that the change concerns is updated in place, and nothing else is touched."""
    world = digits(tuned(edge="value1", cloud="value1")).settle().available("edge", "cloud")
    before = dict(world.children)
    world.change(tuned(**{role: "value2", other: "value1"}))
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
def test_a_changed_model_concerns_the_worker_that_uses_it(
    model: str, change: dict[str, str], role: str
) -> None:
    world = digits().settle()
    old = dict(env(world, role))["MODEL_URL"]
    (action,) = world.model(model, **change).plan().actions
    assert isinstance(action, Replace)
    assert action.object["metadata"]["name"] == f"digits-deployment-{role}"
    world.settle()
    assert dict(env(world, role))["MODEL_URL"] not in ("", old)


# ---- convergence --------------------------------------------------------------------------------

CHANGES = [
    pytest.param(spec(), spec(cloud={"hpa": HPA}), id="autoscaler comes"),
    pytest.param(spec(edge={"hpa": HPA}, cloud={"hpa": HPA}), spec(), id="autoscalers go"),
    pytest.param(spec(), spec(edge={"nodeName": "edge1"}), id="edge moves"),
    pytest.param(spec(), mined("Random", random_ratio="0.3"), id="mining comes"),
]


@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_every_interrupted_plan_ends_where_the_whole_one_ends(old: Any, new: Any) -> None:
    whole = digits(old).settle().change(new).settle()
    creation, change = digits(old).plan(), digits(old).settle().change(new).plan()
    prefixes = itertools.product(range(len(creation.actions) + 1), range(len(change.actions) + 1))
    for first, second in prefixes:
        world = digits(old)
        world.apply(creation, actions=first).change(new)
        world.apply(world.plan(), actions=second).settle()
        assert world.names() == whole.names()
        for ref, child in whole.children.items():
            assert world.children[ref]["spec"] == child["spec"]
        assert world.status == {**whole.status}


def test_a_settled_service_plans_nothing() -> None:
    world = digits().contact("edge0").settle().available("edge", "cloud").settle()
    assert world.plan(at(3600)) == Plan()


def test_a_deleted_child_is_created_again() -> None:
    world = digits().settle()
    lost = next(ref for ref in world.children if ref.name == "digits-deployment-edge")
    del world.children[lost]
    (action,) = world.plan().actions
    assert isinstance(action, Create)
    assert action.object["metadata"]["name"] == "digits-deployment-edge"


def test_a_service_being_deleted_is_left_to_the_garbage_collector() -> None:
    world = digits().settle().delete()
    world.children.clear()
    assert world.plan() == Plan()
    assert world.kind.assignments(world.observed()) == {}


def test_the_plan_does_not_depend_on_the_order_of_the_spec() -> None:
    given = mined("IBT", threshold_img="0.5")
    turned = {key: dict(reversed(given[key].items())) for key in reversed(given)}
    assert digits(given).plan(NOW).actions == digits(turned).plan(NOW).actions
