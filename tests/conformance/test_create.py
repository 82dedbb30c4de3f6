"""Creating objects, and reading one."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from edgeai.cli.api import Object
from tests.conformance.objects import configmap, deployment, pod, widget
from tests.conformance.space import Space

FORGED = {"uid": "forged", "creationTimestamp": "1999-01-01T00:00:00Z", "generation": 7}


def test_create_stamps_what_identifies_an_object(space: Space) -> None:
    created = space.create("configmaps", configmap())
    metadata = created["metadata"]
    assert (created["apiVersion"], created["kind"]) == ("v1", "ConfigMap")
    assert (metadata["name"], metadata["namespace"]) == ("one", space.name)
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", metadata["uid"])
    assert int(metadata["resourceVersion"]) > 0
    age = datetime.now(UTC) - datetime.fromisoformat(metadata["creationTimestamp"])
    assert timedelta(seconds=-2) < age < timedelta(seconds=30)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", metadata["creationTimestamp"])


def test_what_was_created_can_be_read(space: Space) -> None:
    created = space.create("widgets", widget())
    assert space.get("widgets", "one") == created


def test_what_only_the_api_sets_cannot_be_given(space: Space) -> None:
    metadata = space.create("widgets", {**widget(), "metadata": {"name": "a", **FORGED}})[
        "metadata"
    ]
    assert all(metadata[field] != value for field, value in FORGED.items())


def test_kind_and_version_may_be_left_out_for_built_in_kinds(space: Space) -> None:
    created = space.create("configmaps", {"metadata": {"name": "one"}})
    assert (created["kind"], created["apiVersion"]) == ("ConfigMap", "v1")


def test_generate_name_makes_a_new_name_each_time(space: Space) -> None:
    object_ = {**configmap(), "metadata": {"generateName": "run-"}}
    names = {space.create("configmaps", object_)["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(re.fullmatch(r"run-[a-z0-9]{5}", name) for name in names)


def test_a_name_goes_before_generate_name(space: Space) -> None:
    object_ = configmap("one", generateName="run-")
    assert space.create("configmaps", object_)["metadata"]["name"] == "one"


def test_a_name_is_taken_once(space: Space) -> None:
    space.create("configmaps", configmap())
    again = space.post("configmaps", configmap())
    assert again.refusal == (409, "AlreadyExists")
    assert again.body["message"] == 'configmaps "one" already exists'
    assert again.body["details"] == {"name": "one", "kind": "configmaps"}


def test_the_refusal_of_a_custom_resource_names_its_group(space: Space) -> None:
    space.create("widgets", widget())
    again = space.post("widgets", widget())
    assert again.body["message"] == 'widgets.conformance.test "one" already exists'
    assert again.body["details"] == {
        "name": "one",
        "group": "conformance.test",
        "kind": "widgets",
    }


@pytest.mark.parametrize(
    ("plural", "object_"), [("configmaps", configmap()), ("widgets", widget()), ("pods", pod())]
)
def test_a_dry_run_answers_as_if_and_keeps_nothing(
    space: Space, plural: str, object_: Object
) -> None:
    answer = space.post(plural, object_, dryRun="All")
    assert (answer.status, bool(answer.body["metadata"]["uid"])) == (201, True)
    assert space.find(plural, "one") is None


REFUSED: dict[str, tuple[str, Any, tuple[int, str], str]] = {
    "no name": (
        "configmaps",
        {"metadata": {}},
        (422, "Invalid"),
        "metadata.name: Required value: name or generateName is required",
    ),
    "name with a path": ("configmaps", configmap("../x"), (422, "Invalid"), "metadata.name"),
    "name with capitals": ("configmaps", configmap("A"), (422, "Invalid"), "RFC 1123"),
    "long name": ("configmaps", configmap("x" * 254), (422, "Invalid"), "metadata.name"),
    "another kind": (
        "configmaps",
        {**configmap(), "kind": "Secret"},
        (400, "BadRequest"),
        "Secret",
    ),
    "another version": (
        "widgets",
        {**widget(), "apiVersion": "conformance.test/v9"},
        (400, "BadRequest"),
        "conformance.test/v9",
    ),
    "another namespace": (
        "configmaps",
        configmap(namespace="elsewhere"),
        (400, "BadRequest"),
        "does not match the namespace",
    ),
    "label that is no text": ("configmaps", configmap(labels={"a": 1}), (400, "BadRequest"), ""),
    "label value": (
        "configmaps",
        configmap(labels={"a": "-"}),
        (422, "Invalid"),
        "metadata.labels: Invalid value",
    ),
    "label key": (
        "configmaps",
        configmap(labels={"a b": "c"}),
        (422, "Invalid"),
        "metadata.labels: Invalid value",
    ),
    "annotation that is no text": (
        "configmaps",
        configmap(annotations={"a": True}),
        (400, "BadRequest"),
        "",
    ),
    "owner without uid": (
        "configmaps",
        configmap(ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": "p"}]),
        (422, "Invalid"),
        "metadata.ownerReferences",
    ),
    "two controllers": (
        "configmaps",
        configmap(
            ownerReferences=[
                {"apiVersion": "v1", "kind": "Pod", "name": n, "uid": n, "controller": True}
                for n in "ab"
            ]
        ),
        (422, "Invalid"),
        "metadata.ownerReferences: Invalid value",
    ),
    "finalizer that has no domain": (
        "configmaps",
        configmap(finalizers=["hold"]),
        (422, "Invalid"),
        "metadata.finalizers",
    ),
    "finalizer that is no name": (
        "widgets",
        {**widget(), "metadata": {"name": "one", "finalizers": ["a b"]}},
        (422, "Invalid"),
        "metadata.finalizers: Invalid value",
    ),
    "no metadata": ("configmaps", {"data": {}}, (422, "Invalid"), "metadata.name"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_create_refuses(space: Space, case: str) -> None:
    plural, object_, refusal, text = REFUSED[case]
    answer = space.post(plural, object_)
    assert answer.refusal == refusal
    assert text in answer.body["message"]


def test_no_object_is_made_with_a_version(space: Space) -> None:
    """Kubernetes answers 500 without a reason; the local cluster does better."""
    answer = space.post("configmaps", configmap(resourceVersion="1"))
    assert answer.status in (400, 500)
    assert answer.body["message"] == "resourceVersion should not be set on objects to be created"


def test_no_object_is_made_in_a_namespace_that_is_not_there(space: Space) -> None:
    answer = space.client("POST", "/api/v1/namespaces/nowhere/configmaps", configmap())
    assert answer.refusal == (404, "NotFound")
    assert answer.body["message"] == 'namespaces "nowhere" not found'
    assert answer.body["details"] == {"name": "nowhere", "kind": "namespaces"}


def test_a_missing_object_is_named(space: Space) -> None:
    answer = space.client("GET", space.path("deployments", "none"))
    assert answer.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'deployments.apps "none" not found',
        "reason": "NotFound",
        "details": {"name": "none", "group": "apps", "kind": "deployments"},
        "code": 404,
    }


def test_status_is_not_taken_from_a_creation(space: Space) -> None:
    created = space.create("widgets", {**widget(), "status": {"from": "user"}})
    assert "status" not in created
    made = space.create("deployments", {**deployment(), "status": {"replicas": 9}})
    assert "replicas" not in made.get("status", {})
    assert space.create("pods", {**pod(), "status": {"phase": "Failed"}})["status"]["phase"] == (
        "Pending"
    )
