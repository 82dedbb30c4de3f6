"""Built-in kinds: defaults, and validation errors."""

import base64
from typing import Any

import pytest

from edgeai.cli.api import Object
from tests.conformance.clusters import AnyCluster
from tests.conformance.objects import configmap, deployment, pod
from tests.conformance.space import Space
from tests.support.waiting import eventually


def with_container(**fields: Any) -> Object:
    container = {"name": "main", "image": "registry.test/main:1", **fields}
    return pod(containers=[{k: v for k, v in container.items() if v is not None}])


def service(name: str = "one", **spec: Any) -> Object:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


def lease(**spec: Any) -> Object:
    return {"metadata": {"name": "one"}, "spec": {"holderIdentity": "me", **spec}}


def templated(**spec: Any) -> Object:
    made = deployment(0)
    made["spec"]["template"]["spec"] |= spec
    return made


def worded() -> Object:
    made = deployment(0)
    made["spec"]["replicas"] = "two"
    return made


MOUNT = [{"name": "v", "mountPath": "/v"}]
INVALID: dict[str, tuple[str, Object, set[tuple[str, str]]]] = {
    "pod without containers": (
        "pods",
        pod(containers=[]),
        {("spec.containers", "FieldValueRequired")},
    ),
    "container without image": (
        "pods",
        with_container(image=None),
        {("spec.containers[0].image", "FieldValueRequired")},
    ),
    "container without name": (
        "pods",
        with_container(name=None),
        {("spec.containers[0].name", "FieldValueRequired")},
    ),
    "container of a name that is no label": (
        "pods",
        with_container(name="A_b"),
        {("spec.containers[0].name", "FieldValueInvalid")},
    ),
    "init container without image": (
        "pods",
        pod(initContainers=[{"name": "init"}]),
        {("spec.initContainers[0].image", "FieldValueRequired")},
    ),
    "two containers of one name": (
        "pods",
        pod(containers=[{"name": "a", "image": "b"}] * 2),
        {("spec.containers[1].name", "FieldValueDuplicate")},
    ),
    "mount without volume": (
        "pods",
        with_container(volumeMounts=MOUNT),
        {("spec.containers[0].volumeMounts[0].name", "FieldValueNotFound")},
    ),
    "port without number": (
        "pods",
        with_container(ports=[{"name": "http"}]),
        {("spec.containers[0].ports[0].containerPort", "FieldValueRequired")},
    ),
    "variable without name": (
        "pods",
        with_container(env=[{"value": "x"}]),
        {("spec.containers[0].env[0].name", "FieldValueRequired")},
    ),
    "host path without path": (
        "pods",
        pod(volumes=[{"name": "v", "hostPath": {}}]),
        {("spec.volumes[0].hostPath.path", "FieldValueRequired")},
    ),
    "unknown restart policy": (
        "pods",
        pod(restartPolicy="Sometimes"),
        {("spec.restartPolicy", "FieldValueNotSupported")},
    ),
    "deployment of other pods": (
        "deployments",
        deployment(0, selector={"matchLabels": {"app": "other"}}),
        {("spec.template.metadata.labels", "FieldValueInvalid")},
    ),
    "deployment of other pods by expression": (
        "deployments",
        deployment(
            0,
            selector={"matchExpressions": [{"key": "app", "operator": "In", "values": ["other"]}]},
        ),
        {("spec.template.metadata.labels", "FieldValueInvalid")},
    ),
    "negative replicas": (
        "deployments",
        deployment(-1),
        {("spec.replicas", "FieldValueInvalid")},
    ),
    "deployment of pods that end": (
        "deployments",
        templated(restartPolicy="Never"),
        {("spec.template.spec.restartPolicy", "FieldValueNotSupported")},
    ),
    "deployment without image": (
        "deployments",
        templated(containers=[{"name": "main"}]),
        {("spec.template.spec.containers[0].image", "FieldValueRequired")},
    ),
    "service without ports": (
        "services",
        service(ports=[]),
        {("spec.ports", "FieldValueRequired")},
    ),
    "two ports without names": (
        "services",
        service(ports=[{"port": 1}, {"port": 2}]),
        {
            ("spec.ports[0].name", "FieldValueRequired"),
            ("spec.ports[1].name", "FieldValueRequired"),
        },
    ),
    "service of a name that no host can have": (
        "services",
        service("a.host"),
        {("metadata.name", "FieldValueInvalid")},
    ),
    "key that no file can have": (
        "configmaps",
        {**configmap(), "data": {"a b": "1"}},
        {("data[a b]", "FieldValueInvalid")},
    ),
}


@pytest.mark.parametrize("case", INVALID)
def test_a_mistake_is_named_by_its_field(space: Space, case: str) -> None:
    plural, object_, causes = INVALID[case]
    answer = space.post(plural, object_)
    assert answer.refusal == (422, "Invalid")
    assert answer.causes == causes


def test_a_port_out_of_range_is_named(space: Space) -> None:
    answer = space.post("services", service(ports=[{"port": 65536, "targetPort": 1}]))
    assert answer.causes == {("spec.ports[0].port", "FieldValueInvalid")}


def test_the_name_of_a_missing_container_image_stands_in_the_message(space: Space) -> None:
    message = space.post("pods", with_container(image=None)).body["message"]
    assert message == 'Pod "one" is invalid: spec.containers[0].image: Required value'


MALFORMED: dict[str, tuple[str, Object]] = {
    "number in a configmap": ("configmaps", {**configmap(), "data": {"a": 1}}),
    "secret that is no base64": ("secrets", {"metadata": {"name": "one"}, "data": {"a": "!"}}),
    "replicas in words": ("deployments", worded()),
    "containers that are no list": ("pods", pod(containers={"name": "main"})),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_what_cannot_be_decoded_is_a_bad_request(space: Space, case: str) -> None:
    plural, object_ = MALFORMED[case]
    answer = space.post(plural, object_)
    assert answer.refusal == (400, "BadRequest")
    assert "cannot be handled as a" in answer.body["message"]


# Defaults


def chosen(object_: Object, *fields: str) -> Object:
    return {field: object_.get(field) for field in fields}


def test_the_defaults_of_a_pod(space: Space) -> None:
    created = space.create("pods", with_container(ports=[{"containerPort": 80}]))
    spec, (container,) = created["spec"], created["spec"]["containers"]
    assert chosen(spec, "restartPolicy", "dnsPolicy", "terminationGracePeriodSeconds") == {
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "terminationGracePeriodSeconds": 30,
    }
    assert chosen(container, "imagePullPolicy", "terminationMessagePath", "resources") == {
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePath": "/dev/termination-log",
        "resources": {},
    }
    assert container["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert created["status"]["phase"] == "Pending"


@pytest.mark.parametrize(
    ("image", "policy"),
    [("x", "Always"), ("x:latest", "Always"), ("host:5000/x", "Always"), ("x:1", "IfNotPresent")],
)
def test_images_that_may_change_are_pulled_always(space: Space, image: str, policy: str) -> None:
    created = space.create("pods", with_container(image=image))
    assert created["spec"]["containers"][0]["imagePullPolicy"] == policy


def test_a_volume_of_no_kind_is_an_empty_directory(space: Space) -> None:
    created = space.create("pods", pod(volumes=[{"name": "v"}]))
    assert {"name": "v", "emptyDir": {}} in created["spec"]["volumes"]


def test_the_defaults_of_a_deployment(space: Space) -> None:
    made = deployment(0)
    del made["spec"]["replicas"]
    spec = space.create("deployments", made)["spec"]
    assert chosen(spec, "replicas", "progressDeadlineSeconds", "strategy") == {
        "replicas": 1,
        "progressDeadlineSeconds": 600,
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"},
        },
    }
    assert spec["template"]["spec"]["restartPolicy"] == "Always"


def test_the_defaults_of_a_service(space: Space) -> None:
    spec = space.create("services", service())["spec"]
    assert spec["ports"] == [{"protocol": "TCP", "port": 80, "targetPort": 80}]
    assert (spec["type"], spec["sessionAffinity"]) == ("ClusterIP", "None")


def test_a_pod_that_fits_nowhere_says_so_beside_what_others_say(space: Space) -> None:
    space.create("pods", pod(schedulingGates=[{"name": "a.test/later"}]))
    other = {"type": "a.test/Other", "status": "True"}
    patch = {"status": {"conditions": [other]}}  # replaces the whole list
    space.patch("pods", "one", patch, subresource="status").ok()
    space.patch("pods", "one", {"spec": {"schedulingGates": []}}).ok()

    def conditions() -> Object | None:
        found = space.get("pods", "one")["status"]["conditions"]
        named = {each["type"]: each for each in found}
        return named if len(named) == 2 else None

    scheduled = eventually("both conditions", conditions)["PodScheduled"]
    assert (scheduled["status"], scheduled["reason"]) == ("False", "Unschedulable")
    assert scheduled["message"]


# Secrets and ConfigMaps


def test_string_data_of_a_secret_is_kept_as_data(space: Space) -> None:
    made = {
        "metadata": {"name": "one"},
        "data": {"a": base64.b64encode(b"old").decode()},
        "stringData": {"a": "new", "b": "value"},
    }
    secret = space.create("secrets", made)
    decoded = {key: base64.b64decode(value) for key, value in secret["data"].items()}
    assert (secret["type"], decoded) == ("Opaque", {"a": b"new", "b": b"value"})
    assert "stringData" not in secret


def test_binary_data_of_a_configmap_is_kept(space: Space) -> None:
    binary = {"b": base64.b64encode(b"\0\xff").decode()}
    created = space.create("configmaps", {**configmap(), "binaryData": binary})
    assert (created["data"], created["binaryData"]) == ({"a": "1"}, binary)


# Services


def test_a_service_gets_an_address_and_keeps_it(space: Space) -> None:
    space.create("services", service())
    address = eventually("an address", lambda: space.get("services", "one")["spec"]["clusterIP"])
    space.patch("services", "one", service(ports=[{"port": 81}])).ok()
    changed = space.get("services", "one")["spec"]
    assert (changed["clusterIP"], changed["ports"][0]["port"]) == (address, 81)


def test_a_headless_service_has_none(space: Space) -> None:
    spec = space.create("services", service(clusterIP="None"))["spec"]
    assert spec["clusterIP"] == "None"


# Events, Leases, Nodes


def event(name: str, of: str, namespace: str) -> Object:
    return {
        "metadata": {"name": name},
        "involvedObject": {"kind": "Pod", "name": of, "namespace": namespace},
        "reason": "Tested",
        "message": "it was",
        "type": "Normal",
        "count": 1,
        "firstTimestamp": "2030-01-01T00:00:00Z",
        "lastTimestamp": "2030-01-01T00:00:00Z",
        "source": {"component": "test"},
    }


def test_events_are_found_by_their_object(space: Space) -> None:
    for name in ("a", "b"):
        space.create("events", event(f"event-{name}", name, space.name))
    selector = "involvedObject.name=b,involvedObject.kind=Pod,reason=Tested,type=Normal"
    (found,) = space.list("events", fieldSelector=selector)
    assert (found["metadata"]["name"], found["message"]) == ("event-b", "it was")


def test_an_event_can_be_counted_up(space: Space) -> None:
    space.create("events", event("one", "a", space.name))
    patch = {"count": 2, "lastTimestamp": "2030-01-01T00:00:09Z"}
    patched = space.patch("events", "one", patch).ok()
    assert chosen(patched, "count", "lastTimestamp", "firstTimestamp") == {
        **patch,
        "firstTimestamp": "2030-01-01T00:00:00Z",
    }


def test_a_lease_changes_hands_by_its_version(space: Space) -> None:
    created = space.create(
        "leases", lease(leaseDurationSeconds=15, renewTime="2030-01-01T00:00:00.000000Z")
    )
    assert created["spec"]["renewTime"] == "2030-01-01T00:00:00.000000Z"
    taken = {**created, "spec": {**created["spec"], "holderIdentity": "you", "leaseTransitions": 1}}
    space.put("leases", taken).ok()
    late = space.put("leases", {**created, "spec": {**created["spec"], "holderIdentity": "me"}})
    assert late.refusal == (409, "Conflict")
    spec = space.get("leases", "one")["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("you", 1)


def test_a_node_is_registered_with_its_status(cluster: AnyCluster) -> None:
    address = {"type": "InternalIP", "address": "192.0.2.9"}
    made = {
        "metadata": {"name": "registered0", "labels": {"a": "b"}},
        "status": {"addresses": [address]},
    }
    created = cluster.client("POST", "/api/v1/nodes", made).ok()
    try:
        assert created["status"]["addresses"] == [address]
        assert "namespace" not in created["metadata"]
        listed = cluster.client("GET", "/api/v1/nodes", labelSelector="a=b").ok()["items"]
        assert [each["metadata"]["name"] for each in listed] == ["registered0"]
    finally:
        cluster.client("DELETE", "/api/v1/nodes/registered0").ok()


def test_there_is_no_node_in_a_namespace(space: Space) -> None:
    assert space.client("GET", space.path("nodes")).status == 404


@pytest.mark.parametrize("name", ["default", "kube-system"])
def test_a_namespace_is_there_from_the_start(cluster: AnyCluster, name: str) -> None:
    namespace = cluster.client("GET", f"/api/v1/namespaces/{name}").ok()
    assert namespace["status"]["phase"] == "Active"
