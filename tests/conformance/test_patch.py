"""The patch formats, as clients send them."""

from typing import Any, Final

import pytest

from edgeai.cli.api import Object
from tests.conformance.objects import configmap, deployment, pod, widget
from tests.conformance.space import Space
from tests.support.client import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH

# Merge

MERGES: dict[str, tuple[Object, Object]] = {
    "replace": ({"data": {"a": "2"}}, {"a": "2"}),
    "add": ({"data": {"b": "2"}}, {"a": "1", "b": "2"}),
    "remove": ({"data": {"a": None, "b": "2"}}, {"b": "2"}),
    "nothing": ({}, {"a": "1"}),
}


@pytest.mark.parametrize("content_type", [MERGE_PATCH, STRATEGIC_PATCH])
@pytest.mark.parametrize("case", MERGES)
def test_a_patch_merges_maps(space: Space, case: str, content_type: str) -> None:
    patch, expected = MERGES[case]
    space.create("configmaps", configmap())
    patched = space.patch("configmaps", "one", patch, content_type=content_type).ok()
    assert patched["data"] == expected


def test_a_merge_patch_replaces_lists(space: Space) -> None:
    space.create("widgets", widget(parts=[{"name": "a"}, {"name": "b"}]))
    patch = {"spec": {"parts": [{"name": "c", "weight": 2}]}}
    assert space.patch("widgets", "one", patch).ok()["spec"]["parts"] == patch["spec"]["parts"]


def test_a_patch_of_nothing_is_not_found(space: Space) -> None:
    assert space.patch("configmaps", "none", {}).refusal == (404, "NotFound")


def test_a_patch_with_a_stale_version_is_a_conflict(space: Space) -> None:
    old = space.create("configmaps", configmap())["metadata"]["resourceVersion"]
    space.patch("configmaps", "one", {"data": {"a": "2"}}).ok()
    stale = {"metadata": {"resourceVersion": old}, "data": {"a": "3"}}
    assert space.patch("configmaps", "one", stale).refusal == (409, "Conflict")


def test_a_patch_cannot_change_the_uid(space: Space) -> None:
    """Other than in an update, it is no precondition."""
    space.create("configmaps", configmap())
    answer = space.patch("configmaps", "one", {"metadata": {"uid": "another"}})
    assert answer.refusal == (422, "Invalid")
    assert answer.causes == {("metadata.uid", "FieldValueInvalid")}


def test_a_dry_run_of_a_patch_keeps_nothing(space: Space) -> None:
    created = space.create("configmaps", configmap())
    shown = space.patch("configmaps", "one", {"data": {"a": "2"}}, dryRun="All").ok()
    assert shown["data"] == {"a": "2"}
    assert space.get("configmaps", "one") == created


def test_a_patched_object_is_checked(space: Space) -> None:
    space.create("widgets", widget())
    answer = space.patch("widgets", "one", {"spec": {"size": 0}})
    assert answer.refusal == (422, "Invalid")
    assert answer.causes == {("spec.size", "FieldValueInvalid")}


# Strategic merge

MAIN: Final = {"name": "main", "image": "registry.test/main:1"}
STRATEGIC: dict[str, tuple[Object, Any]] = {
    "a container is merged by its name": (
        {"containers": [{"name": "main", "image": "x:2"}]},
        [("main", "x:2", ["A"])],
    ),
    "a container is added": (
        {"containers": [{"name": "side", "image": "y:1"}]},
        [("main", "registry.test/main:1", ["A"]), ("side", "y:1", [])],
    ),
    "a variable is merged by its name": (
        {"containers": [{"name": "main", "env": [{"name": "B", "value": "2"}]}]},
        [("main", "registry.test/main:1", ["A", "B"])],
    ),
    "a variable is deleted": (
        {"containers": [{"name": "main", "env": [{"name": "A", "$patch": "delete"}]}]},
        [("main", "registry.test/main:1", [])],
    ),
    "all containers are replaced": (
        {"containers": [{"$patch": "replace"}, {"name": "only", "image": "z:1"}]},
        [("only", "z:1", [])],
    ),
}


@pytest.mark.parametrize("case", STRATEGIC)
def test_a_strategic_patch_merges_lists_item_by_item(space: Space, case: str) -> None:
    patch, expected = STRATEGIC[case]
    made = deployment(0)
    made["spec"]["template"]["spec"]["containers"] = [
        {**MAIN, "env": [{"name": "A", "value": "1"}]}
    ]
    space.create("deployments", made)
    whole = {"spec": {"template": {"spec": patch}}}
    patched = space.patch("deployments", "web", whole, content_type=STRATEGIC_PATCH).ok()
    containers = patched["spec"]["template"]["spec"]["containers"]
    shown = [
        (each["name"], each["image"], sorted(env["name"] for env in each.get("env", [])))
        for each in containers
    ]
    assert sorted(shown) == expected


FINALIZERS: dict[str, tuple[Object, list[str]]] = {
    "joined": ({"finalizers": ["test/b", "test/c"]}, ["test/a", "test/b", "test/c"]),
    "taken out": ({"$deleteFromPrimitiveList/finalizers": ["test/a"]}, ["test/b"]),
}


@pytest.mark.parametrize("case", FINALIZERS)
def test_a_strategic_patch_treats_finalizers_as_a_set(space: Space, case: str) -> None:
    patch, expected = FINALIZERS[case]
    space.create("configmaps", configmap(finalizers=["test/a", "test/b"]))
    whole = {"metadata": patch}
    patched = space.patch("configmaps", "one", whole, content_type=STRATEGIC_PATCH).ok()
    assert sorted(patched["metadata"]["finalizers"]) == expected
    space.patch("configmaps", "one", {"metadata": {"finalizers": None}}).ok()


def test_retained_keys_drop_the_others(space: Space) -> None:
    space.create("deployments", deployment(0))
    patch = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    patched = space.patch("deployments", "web", patch, content_type=STRATEGIC_PATCH).ok()
    assert patched["spec"]["strategy"] == {"type": "Recreate"}


def test_conditions_are_merged_by_type(space: Space) -> None:
    space.create("pods", pod())
    for type_, status in (("a.test/A", "True"), ("a.test/B", "True"), ("a.test/A", "False")):
        patch = {"status": {"conditions": [{"type": type_, "status": status}]}}
        space.patch("pods", "one", patch, content_type=STRATEGIC_PATCH, subresource="status").ok()
    conditions = space.get("pods", "one")["status"]["conditions"]
    found = {each["type"]: each["status"] for each in conditions}
    assert (found["a.test/A"], found["a.test/B"]) == ("False", "True")


def test_a_custom_resource_takes_no_strategic_patch(space: Space) -> None:
    space.create("widgets", widget())
    answer = space.patch("widgets", "one", {}, content_type=STRATEGIC_PATCH)
    assert answer.refusal == (415, "UnsupportedMediaType")


# JSON patch

OPERATIONS: dict[str, tuple[list[Object], Object]] = {
    "add": ([{"op": "add", "path": "/data/b", "value": "2"}], {"a": "1", "b": "2"}),
    "remove": ([{"op": "remove", "path": "/data/a"}], {}),
    "replace": ([{"op": "replace", "path": "/data/a", "value": "2"}], {"a": "2"}),
    "move": ([{"op": "move", "from": "/data/a", "path": "/data/b"}], {"b": "1"}),
    "copy": ([{"op": "copy", "from": "/data/a", "path": "/data/b"}], {"a": "1", "b": "1"}),
    "test": ([{"op": "test", "path": "/data/a", "value": "1"}], {"a": "1"}),
    "two": (
        [
            {"op": "add", "path": "/data/b", "value": "2"},
            {"op": "remove", "path": "/data/a"},
        ],
        {"b": "2"},
    ),
}


@pytest.mark.parametrize("case", OPERATIONS)
def test_json_patch(space: Space, case: str) -> None:
    operations, expected = OPERATIONS[case]
    space.create("configmaps", configmap())
    patched = space.patch("configmaps", "one", operations, content_type=JSON_PATCH).ok()
    assert patched.get("data", {}) == expected


def test_a_json_pointer_escapes_slashes(space: Space) -> None:
    space.create("configmaps", configmap())
    operations = [
        {"op": "add", "path": "/metadata/annotations", "value": {}},
        {"op": "add", "path": "/metadata/annotations/a.test~1b", "value": "x"},
    ]
    patched = space.patch("configmaps", "one", operations, content_type=JSON_PATCH).ok()
    assert patched["metadata"]["annotations"] == {"a.test/b": "x"}


IMPOSSIBLE: dict[str, Object] = {
    "remove what is not there": {"op": "remove", "path": "/data/missing"},
    "unknown operation": {"op": "jump", "path": "/data/a"},
    "another value": {"op": "test", "path": "/data/a", "value": "2"},
    "below what is not there": {"op": "add", "path": "/missing/a", "value": "2"},
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_an_impossible_operation_is_refused_and_nothing_is_kept(space: Space, case: str) -> None:
    created = space.create("configmaps", configmap())
    operations = [{"op": "add", "path": "/data/b", "value": "2"}, IMPOSSIBLE[case]]
    answer = space.patch("configmaps", "one", operations, content_type=JSON_PATCH)
    assert answer.refusal == (422, "Invalid")
    assert space.get("configmaps", "one") == created


# What is no patch

NO_PATCH: dict[str, tuple[Any, str]] = {
    "merge patch that is a list": ([], MERGE_PATCH),
    "merge patch that is no JSON": (b"{", MERGE_PATCH),
    "strategic patch that is a list": ([], STRATEGIC_PATCH),
    "JSON patch that is a map": ({}, JSON_PATCH),
    "JSON patch that is no JSON": (b"{", JSON_PATCH),
}


@pytest.mark.parametrize("case", NO_PATCH)
def test_what_is_no_patch_is_refused(space: Space, case: str) -> None:
    """By 400, 422 or 500, depending on Kubernetes' version."""
    patch, content_type = NO_PATCH[case]
    created = space.create("configmaps", configmap())
    answer = space.patch("configmaps", "one", patch, content_type=content_type)
    assert (answer.status >= 400, answer.body["kind"]) == (True, "Status")
    assert space.get("configmaps", "one") == created


def test_an_unknown_format_of_patches_is_refused(space: Space) -> None:
    space.create("configmaps", configmap())
    answer = space.patch("configmaps", "one", {}, content_type="application/json")
    assert answer.refusal == (415, "UnsupportedMediaType")


# Server-side apply, as far as the local cluster goes: it merges


def applied(name: str, **data: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": data,
    }


def test_apply_creates_and_then_merges(space: Space) -> None:
    def apply(data: dict[str, str], manager: str) -> Any:
        return space.patch(
            "configmaps",
            "one",
            applied("one", **data),
            content_type=APPLY_PATCH,
            fieldManager=manager,
        )

    created, merged = apply({"a": "1"}, "me"), apply({"b": "2"}, "you")
    assert (created.status, merged.status) == (201, 200)
    assert merged.body["data"] == {"a": "1", "b": "2"}


def test_apply_merges_the_containers_of_a_deployment(space: Space) -> None:
    space.create("deployments", deployment(0))
    containers = [{"name": "main", "image": "x:2"}]
    change = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "spec": {"template": {"spec": {"containers": containers}}},
    }
    answer = space.patch(
        "deployments", "web", change, content_type=APPLY_PATCH, fieldManager="me", force="true"
    )
    (container,) = answer.ok()["spec"]["template"]["spec"]["containers"]
    assert (container["image"], container["imagePullPolicy"]) == ("x:2", "IfNotPresent")


def test_apply_needs_a_field_manager(space: Space) -> None:
    answer = space.patch("configmaps", "one", applied("one"), content_type=APPLY_PATCH)
    assert answer.refusal == (422, "Invalid")
    assert answer.causes == {("fieldManager", "FieldValueRequired")}
