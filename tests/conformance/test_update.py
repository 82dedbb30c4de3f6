"""Replacing objects and their status: versions, generations, what must not change."""

from typing import Any

import pytest

from edgeai.cli.api import Object
from tests.conformance.objects import bound_pod, configmap, deployment, pod, widget
from tests.conformance.space import Space
from tests.support.client import JSON_PATCH


def test_an_update_of_the_latest_version_is_kept_under_a_new_one(space: Space) -> None:
    old = space.create("configmaps", configmap())
    new = space.put("configmaps", {**old, "data": {"a": "2"}}).ok()
    assert new["data"] == {"a": "2"}
    assert int(new["metadata"]["resourceVersion"]) > int(old["metadata"]["resourceVersion"])
    assert space.get("configmaps", "one") == new


def test_a_stale_update_is_a_conflict(space: Space) -> None:
    old = space.create("configmaps", configmap())
    space.put("configmaps", {**old, "data": {"a": "2"}}).ok()
    stale = space.put("configmaps", {**old, "data": {"a": "3"}})
    assert stale.refusal == (409, "Conflict")
    assert stale.body["message"] == (
        'Operation cannot be fulfilled on configmaps "one": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    assert stale.body["details"] == {"name": "one", "kind": "configmaps"}
    assert space.get("configmaps", "one")["data"] == {"a": "2"}


def test_an_update_of_another_uid_is_a_conflict(space: Space) -> None:
    space.create("configmaps", configmap())
    answer = space.put("configmaps", configmap(uid="of-the-one-before"))
    assert answer.refusal == (409, "Conflict")
    assert "uid" in answer.body["message"].lower()


def test_an_update_without_version_wins(space: Space) -> None:
    space.create("configmaps", configmap())
    assert space.put("configmaps", {**configmap(), "data": {"b": "2"}}).ok()["data"] == {"b": "2"}


def test_a_custom_resource_is_not_replaced_without_its_version(space: Space) -> None:
    space.create("widgets", widget())
    answer = space.put("widgets", widget(size=4))
    assert answer.refusal == (422, "Invalid")
    assert answer.causes == {("metadata.resourceVersion", "FieldValueInvalid")}


def test_a_lease_is_not_replaced_without_its_version_either(space: Space) -> None:
    lease = {"metadata": {"name": "one"}, "spec": {"holderIdentity": "me"}}
    space.create("leases", lease)
    assert space.put("leases", lease).refusal == (422, "Invalid")


def test_an_update_does_not_create(space: Space) -> None:
    assert space.put("configmaps", configmap()).refusal == (404, "NotFound")


def test_an_update_under_another_name_is_refused(space: Space) -> None:
    space.create("configmaps", configmap())
    answer = space.client("PUT", space.path("configmaps", "one"), configmap("two"))
    assert answer.refusal == (400, "BadRequest")
    assert "does not match" in answer.body["message"]


@pytest.mark.parametrize(
    ("plural", "object_"), [("configmaps", configmap()), ("widgets", widget())]
)
def test_a_write_that_changes_nothing_leaves_no_trace(
    space: Space, plural: str, object_: Object
) -> None:
    created = space.create(plural, object_)
    assert space.put(plural, created).ok() == created
    assert space.patch(plural, "one", {"metadata": {"labels": None}}).ok() == created


def test_what_only_the_api_sets_stays(space: Space) -> None:
    before = space.create("widgets", widget())["metadata"]
    forged = {"creationTimestamp": "1999-01-01T00:00:00Z", "generation": 7, "labels": {"a": "b"}}
    after = space.patch("widgets", "one", {"metadata": forged}).ok()["metadata"]
    assert after["creationTimestamp"] == before["creationTimestamp"]
    assert (after["generation"], after["labels"]) == (1, {"a": "b"})


GENERATIONS: dict[str, tuple[Object, str, int]] = {
    "spec": ({"spec": {"size": 4}}, "", 2),
    "labels": ({"metadata": {"labels": {"a": "b"}}}, "", 1),
    "annotations": ({"metadata": {"annotations": {"a": "b"}}}, "", 1),
    "finalizers": ({"metadata": {"finalizers": ["test/hold"]}}, "", 1),
    "status": ({"status": {"seen": 1}}, "status", 1),
    "nothing": ({}, "", 1),
    "the same": ({"spec": {"size": 3}}, "", 1),
    "replicas by scale": ({"spec": {"replicas": 4}}, "scale", 2),
}


@pytest.mark.parametrize("case", GENERATIONS)
def test_generation_counts_changes_of_the_spec(space: Space, case: str) -> None:
    patch, subresource, generation = GENERATIONS[case]
    space.create("widgets", widget())
    space.patch("widgets", "one", patch, subresource=subresource).ok()
    assert space.get("widgets", "one")["metadata"]["generation"] == generation
    space.patch("widgets", "one", {"metadata": {"finalizers": None}}).ok()


def test_a_deployment_counts_generations_too(space: Space) -> None:
    space.create("deployments", deployment(0))
    assert space.get("deployments", "web")["metadata"]["generation"] == 1
    space.patch("deployments", "web", {"spec": {"replicas": 1}}).ok()
    space.patch("deployments", "web", {"metadata": {"labels": {"a": "b"}}}).ok()
    assert space.get("deployments", "web")["metadata"]["generation"] == 2


def test_a_configmap_has_no_generation(space: Space) -> None:
    assert "generation" not in space.create("configmaps", configmap())["metadata"]


def test_a_deletion_that_waits_counts_as_a_change(space: Space) -> None:
    object_ = widget()
    object_["metadata"]["finalizers"] = ["test/hold"]
    space.create("widgets", object_)
    space.delete("widgets", "one").ok()
    assert space.get("widgets", "one")["metadata"]["generation"] == 2
    space.patch("widgets", "one", {"metadata": {"finalizers": None}}).ok()


# The status


def test_status_and_the_rest_are_written_apart(space: Space) -> None:
    space.create("widgets", widget())
    both = {"spec": {"size": 9}, "status": {"from": "worker"}}
    by_status = space.patch("widgets", "one", both, subresource="status").ok()
    assert (by_status["spec"]["size"], by_status["status"]) == (3, {"from": "worker"})
    by_spec = space.patch("widgets", "one", {"spec": {"size": 9}, "status": {"x": 1}}).ok()
    assert (by_spec["spec"]["size"], by_spec["status"]) == (9, {"from": "worker"})


def test_a_replaced_status_is_checked_against_the_version(space: Space) -> None:
    old = space.create("widgets", widget())
    space.patch("widgets", "one", {"spec": {"size": 4}}).ok()
    stale = space.put("widgets", {**old, "status": {"a": 1}}, subresource="status")
    assert stale.refusal == (409, "Conflict")


def test_no_metadata_is_written_with_the_status_of_a_custom_resource(space: Space) -> None:
    """The patch is accepted: a uid in it is no precondition."""
    created = space.create("widgets", widget())
    patch = {"metadata": {"uid": "another", "labels": {"a": "b"}}, "status": {"a": 1}}
    metadata = space.patch("widgets", "one", patch, subresource="status").ok()["metadata"]
    assert metadata["uid"] == created["metadata"]["uid"]
    assert "labels" not in metadata


def test_an_update_keeps_the_status(space: Space) -> None:
    space.create("widgets", widget())
    written = space.patch("widgets", "one", {"status": {"a": 1}}, subresource="status").ok()
    del written["status"]
    assert space.put("widgets", written).ok()["status"] == {"a": 1}


def test_the_status_of_a_pod_is_written_apart_too(space: Space) -> None:
    space.create("pods", bound_pod())
    patch = {"status": {"phase": "Running"}, "metadata": {"labels": {"a": "b"}}}
    space.patch("pods", "one", patch, subresource="status").ok()
    assert space.get("pods", "one")["status"]["phase"] == "Running"
    space.patch("pods", "one", {"status": {"phase": "Failed"}}).ok()
    assert space.get("pods", "one")["status"]["phase"] == "Running"


def test_the_status_can_be_read_by_its_path(space: Space) -> None:
    created = space.create("widgets", widget())
    assert space.client("GET", space.path("widgets", "one", "status")).ok() == created


def test_what_has_no_status_has_no_such_path(space: Space) -> None:
    space.create("configmaps", configmap())
    answer = space.client("GET", space.path("configmaps", "one", "status"))
    assert answer.refusal == (404, "NotFound")


# What must not change


def _deployment_of(app: str) -> Object:
    made = deployment(0)
    made["spec"]["selector"] = {"matchLabels": {"app": app}}
    made["spec"]["template"]["metadata"]["labels"] = {"app": app}
    return made


def _pod_with(**fields: Any) -> Object:
    made = pod()
    made["spec"]["containers"][0].update(fields)
    return made


IMMUTABLE: dict[str, tuple[str, Object, Object, tuple[str, str]]] = {
    "pod command": (
        "pods",
        pod(),
        _pod_with(args=["x"]),
        ("spec", "FieldValueForbidden"),
    ),
    "pod restart policy": (
        "pods",
        pod(),
        pod(restartPolicy="Never"),
        ("spec", "FieldValueForbidden"),
    ),
    "deployment selector": (
        "deployments",
        deployment(0),
        _deployment_of("other"),
        ("spec.selector", "FieldValueInvalid"),
    ),
}


@pytest.mark.parametrize("case", IMMUTABLE)
def test_what_must_not_change_does_not(space: Space, case: str) -> None:
    plural, before, after, cause = IMMUTABLE[case]
    space.create(plural, before)
    answer = space.patch(plural, before["metadata"]["name"], after)
    assert answer.refusal == (422, "Invalid")
    assert cause in answer.causes


def test_the_image_of_a_pod_can_change(space: Space) -> None:
    space.create("pods", pod())
    image = "registry.test/main:2"
    operation = [{"op": "replace", "path": "/spec/containers/0/image", "value": image}]
    changed = space.patch("pods", "one", operation, content_type=JSON_PATCH).ok()
    assert changed["spec"]["containers"][0]["image"] == image


def test_a_pod_is_bound_by_no_update(space: Space) -> None:
    space.create("pods", bound_pod())
    answer = space.patch("pods", "one", {"spec": {"nodeName": "elsewhere"}})
    assert answer.refusal == (422, "Invalid")
