"""The GlobalManager against a real control plane: its objects, its status, its manners."""

import time
from typing import Any, Final

import pytest

from edgeai.cli.api import ApiError, Object, path_of
from tests.cluster.controlplane import ControlPlane
from tests.cluster.samples import model, service
from tests.support.client import Client
from tests.support.manager import GlobalManager
from tests.support.waiting import eventually

SETTLED_S: Final = 3.0
QUIET_S: Final = 6.0
# The garbage collector looks for new types twice a minute.
COLLECTED_S: Final = 75.0


@pytest.fixture
def digits(client: Client, manager: GlobalManager, namespace: str) -> Object:
    """A JointInferenceService with its Models, whose workers were created; as the API holds it."""
    made = create_all(
        client, service(namespace), model("small", namespace), model("big", namespace)
    )
    wait_for_workers(client, made)
    return made


def create_all(client: Client, *objects: Object) -> Object:
    """All of them. Returns: the first, as the API holds it"""
    first, *_ = [client.create(object_) for object_ in objects]
    return first


def children(client: Client, namespace: str) -> dict[str, Object]:
    """Deployments and Services of the namespace, as "Kind/name"."""
    root = f"namespaces/{namespace}"
    deployments = client.list(f"/apis/apps/v1/{root}/deployments")
    services = client.list(f"/api/v1/{root}/services")
    named = {f"Deployment/{each['metadata']['name']}": each for each in deployments}
    return named | {f"Service/{each['metadata']['name']}": each for each in services}


def pods(client: Client, namespace: str) -> list[Object]:
    return client.list(f"/api/v1/namespaces/{namespace}/pods")


def namespace_of(object_: Object) -> str:
    name: str = object_["metadata"]["namespace"]
    return name


def wait_for_workers(client: Client, job: Object) -> None:
    def check() -> bool:
        found = pods(client, namespace_of(job))
        assert len(found) == 2, f"{len(found)} of 2 pods"
        return True

    eventually("the pods of both workers", check)


def conditions(client: Client, job: Object) -> dict[str, Object]:
    status = client.get(path_of(job)).get("status") or {}
    return {each["type"]: each for each in status.get("conditions") or ()}


def wait_for_condition(client: Client, job: Object, type_: str, status: str) -> Object:
    def check() -> Object:
        found = conditions(client, job).get(type_, {})
        assert found.get("status") == status, f"{type_} is {found}"
        return found

    return eventually(f"{type_}={status}", check)


# ---- what is made ------------------------------------------------------------------------------


def test_deployments_and_a_service_appear_and_are_owned(client: Client, digits: Object) -> None:
    made = children(client, namespace_of(digits))
    assert sorted(made) == [
        "Deployment/digits-deployment-cloud",
        "Deployment/digits-deployment-edge",
        "Service/digits-cloud",
    ]
    owner = {
        "apiVersion": "edgeai.io/v1alpha1",
        "kind": "JointInferenceService",
        "name": "digits",
        "uid": digits["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    assert [each["metadata"]["ownerReferences"] for each in made.values()] == [[owner]] * 3


def test_the_real_controllers_make_replica_sets_and_pods_with_our_labels(
    client: Client, digits: Object
) -> None:
    namespace = namespace_of(digits)
    sets = client.list(f"/apis/apps/v1/namespaces/{namespace}/replicasets")
    made = sorted(pods(client, namespace), key=lambda pod: str(pod["metadata"]["name"]))
    assert [len(sets), len(made)] == [2, 2]
    for pod, role in zip(made, ("cloud", "edge"), strict=True):
        expected = {
            "edgeai.io/uid": digits["metadata"]["uid"],
            "edgeai.io/role": role,
            "edgeai.io/name": "digits",
            "edgeai.io/kind": "jointinferenceservices.edgeai.io",
            "app.kubernetes.io/managed-by": "edgeai",
        }
        assert expected.items() <= pod["metadata"]["labels"].items()
    assert made[1]["spec"]["nodeName"] == "edge0"


def test_the_service_selects_the_cloud_pod_only(client: Client, digits: Object) -> None:
    namespace = namespace_of(digits)
    selector = children(client, namespace)["Service/digits-cloud"]["spec"]["selector"]
    query = "%2C".join(f"{key}%3D{value}" for key, value in selector.items())
    found = client.list(f"/api/v1/namespaces/{namespace}/pods?labelSelector={query}")
    assert [pod["metadata"]["labels"]["edgeai.io/role"] for pod in found] == ["cloud"]


def test_a_service_applied_before_its_models_is_told_what_it_waits_for(
    client: Client, manager: GlobalManager, namespace: str
) -> None:
    job = client.create(service(namespace))
    waiting = wait_for_condition(client, job, "ResolvedRefs", "False")
    assert "small" in waiting["message"]
    assert "big" in waiting["message"]
    create_all(client, model("small", namespace), model("big", namespace))
    wait_for_condition(client, job, "ResolvedRefs", "True")
    wait_for_workers(client, job)


def test_a_deleted_child_is_made_again(client: Client, digits: Object) -> None:
    path = f"/api/v1/namespaces/{namespace_of(digits)}/services/digits-cloud"
    before = client.get(path)["metadata"]["uid"]
    client.delete(path)

    def is_another() -> bool:
        found = client.find(path)
        return found is not None and found["metadata"]["uid"] != before

    eventually("another Service", is_another)


def test_a_changed_spec_reaches_the_pods(client: Client, digits: Object) -> None:
    container = {"name": "main", "image": "registry.test/other:2"}
    template = {"spec": {"containers": [container]}}
    client.patch(path_of(digits), {"spec": {"cloudWorker": {"template": template}}})

    def check() -> bool:
        found = pods(client, namespace_of(digits))
        images = {pod["spec"]["containers"][0]["image"] for pod in found}
        assert container["image"] in images, f"images: {sorted(images)}"
        return True

    eventually("a pod with the new image", check)


# ---- status ------------------------------------------------------------------------------------


def test_status_conditions_follow_the_api_conventions(client: Client, digits: Object) -> None:
    wait_for_condition(client, digits, "Accepted", "True")
    wait_for_condition(client, digits, "ResolvedRefs", "True")
    wait_for_condition(client, digits, "Running", "False")
    fields = {"type", "status", "reason", "message", "lastTransitionTime", "observedGeneration"}
    for condition in conditions(client, digits).values():
        assert condition.keys() == fields
        assert condition["observedGeneration"] == 1
    assert client.get(path_of(digits))["status"]["edgeNodes"] == "edge0"


def test_a_patch_of_the_status_with_a_stale_version_conflicts(
    client: Client, digits: Object
) -> None:
    wait_for_condition(client, digits, "Accepted", "True")
    stale = {"metadata": {"resourceVersion": digits["metadata"]["resourceVersion"]}}
    with pytest.raises(ApiError) as caught:
        client.patch(f"{path_of(digits)}/status", {**stale, "status": {"phase": "Running"}})
    assert caught.value.code == 409


def test_a_template_that_the_api_refuses_is_told_in_the_status(
    client: Client, manager: GlobalManager, namespace: str
) -> None:
    """What the types of the definition allow, and a Deployment does not."""
    container = {"name": "main", "image": "small:1", "ports": [{"containerPort": 70_000}]}
    template = {"spec": {"nodeName": "edge0", "containers": [container]}}
    job = create_all(
        client,
        service(namespace, edge={"template": template}),
        model("small", namespace),
        model("big", namespace),
    )

    def check() -> bool:
        told = [each["message"] for each in conditions(client, job).values()]
        assert any("ontainerPort" in message for message in told), f"conditions: {told}"
        return True

    eventually("the API's refusal in the status", check)


# ---- manners -----------------------------------------------------------------------------------


def registry(control_plane: ControlPlane) -> dict[str, int]:
    """What etcd holds, without namespaces that are being deleted.

    Those are of tests before this one. Their pods are on nodes without a kubelet, so nobody
    confirms the end of a pod, and the namespace controller writes that down again and again.
    """
    namespaces = (each["metadata"] for each in control_plane.client.list("/api/v1/namespaces"))
    going = {each["name"] for each in namespaces if "deletionTimestamp" in each}
    held = control_plane.registry()
    return {key: held[key] for key in held if going.isdisjoint(key.split("/"))}


def written(before: dict[str, int], after: dict[str, int]) -> dict[str, Any]:
    """Keys that were written or removed in between -> their revisions."""
    keys = before.keys() | after.keys()
    return {
        key: (before.get(key), after.get(key)) for key in keys if before.get(key) != after.get(key)
    }


def test_a_settled_system_writes_nothing(crds: ControlPlane, digits: Object) -> None:
    last = registry(crds)
    quiet_since = time.monotonic()

    def check() -> bool:
        nonlocal last, quiet_since
        previous, last = last, registry(crds)
        changes = written(previous, last)
        if changes:
            quiet_since = time.monotonic()
        quiet_s = time.monotonic() - quiet_since
        assert quiet_s > SETTLED_S, f"quiet for {quiet_s:.1f} s, after writes of {changes}"
        return True

    eventually("the end of all writes", check, poll_s=0.25)
    time.sleep(QUIET_S)
    assert written(last, registry(crds)) == {}
    assert any(path.endswith(f"/{namespace_of(digits)}/digits") for path in last)


def test_a_deleted_service_is_collected_with_all_that_was_made_for_it(
    client: Client, digits: Object
) -> None:
    client.delete(path_of(digits))

    def check() -> bool:
        namespace = namespace_of(digits)
        sets = client.list(f"/apis/apps/v1/namespaces/{namespace}/replicasets")
        found = [*children(client, namespace), *(each["metadata"]["name"] for each in sets)]
        # Without a kubelet nobody confirms the end of a pod that was told to end.
        found += [
            each["metadata"]["name"]
            for each in pods(client, namespace)
            if "deletionTimestamp" not in each["metadata"]
        ]
        assert not found, f"there is still {found}"
        return True

    eventually("the end of all that was made", check, timeout_s=COLLECTED_S, poll_s=0.5)
    assert client.find(path_of(digits)) is None
