"""Patches: JSON patch, merge patch, strategic merge."""

from typing import Any

import pytest

from edgeai.localcluster.objects import errors, patches
from edgeai.localcluster.objects.patches import PatchType
from edgeai.localcluster.objects.resources import Object

MERGES: dict[str, tuple[Any, Any, Any]] = {
    # RFC 7386, appendix A
    "replace": ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    "add": ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    "remove": ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    "list is replaced": ({"a": ["b"]}, {"a": ["c", "d"]}, {"a": ["c", "d"]}),
    "nested": ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    "map instead of text": ({"a": "foo"}, {"a": {"b": None}}, {"a": {}}),
    "null within a list stays": ({}, {"a": [None]}, {"a": [None]}),
}


@pytest.mark.parametrize("case", MERGES)
def test_merge_patch(case: str) -> None:
    target, patch, expected = MERGES[case]
    assert patches.apply(PatchType.MERGE, target, patch) == expected


CONTAINERS = {"containers": [{"name": "a", "image": "1", "env": [{"name": "x", "value": "1"}]}]}
STRATEGIC: dict[str, tuple[Object, Object, Object]] = {
    "item is merged by name": (
        CONTAINERS,
        {"containers": [{"name": "a", "image": "2"}]},
        {"containers": [{**CONTAINERS["containers"][0], "image": "2"}]},
    ),
    "item is added": (
        {"containers": [{"name": "a"}]},
        {"containers": [{"name": "b"}]},
        {"containers": [{"name": "a"}, {"name": "b"}]},
    ),
    "item is deleted": (
        {"volumes": [{"name": "a"}, {"name": "b"}]},
        {"volumes": [{"name": "a", "$patch": "delete"}]},
        {"volumes": [{"name": "b"}]},
    ),
    "nested list": (
        CONTAINERS,
        {"containers": [{"name": "a", "env": [{"name": "y", "value": "2"}]}]},
        {
            "containers": [
                {
                    "name": "a",
                    "image": "1",
                    "env": [{"name": "x", "value": "1"}, {"name": "y", "value": "2"}],
                }
            ]
        },
    ),
    "conditions by type": (
        {"conditions": [{"type": "Ready", "status": "False"}]},
        {"conditions": [{"type": "Ready", "status": "True"}]},
        {"conditions": [{"type": "Ready", "status": "True"}]},
    ),
    "container ports": (
        {"ports": [{"containerPort": 80}]},
        {"ports": [{"containerPort": 80, "name": "http"}]},
        {"ports": [{"containerPort": 80, "name": "http"}]},
    ),
    "service ports": (
        {"ports": [{"port": 80, "targetPort": 1}]},
        {"ports": [{"port": 80, "targetPort": 2}, {"port": 81}]},
        {"ports": [{"port": 80, "targetPort": 2}, {"port": 81}]},
    ),
    "port is deleted": (
        {"ports": [{"port": 80}, {"port": 81}]},
        {"ports": [{"port": 80, "$patch": "delete"}]},
        {"ports": [{"port": 81}]},
    ),
    "plain list is replaced": ({"args": ["a"]}, {"args": ["b"]}, {"args": ["b"]}),
    "finalizers are joined": (
        {"finalizers": ["a"]},
        {"finalizers": ["a", "b"]},
        {"finalizers": ["a", "b"]},
    ),
    "finalizer is deleted": (
        {"finalizers": ["a", "b"]},
        {"$deleteFromPrimitiveList/finalizers": ["a"]},
        {"finalizers": ["b"]},
    ),
    "element order is ignored": (
        CONTAINERS,
        {"$setElementOrder/containers": [{"name": "a"}]},
        CONTAINERS,
    ),
    "map is replaced": (
        {"strategy": {"type": "RollingUpdate", "rollingUpdate": {}}},
        {"strategy": {"$patch": "replace", "type": "Recreate"}},
        {"strategy": {"type": "Recreate"}},
    ),
    "retained keys": (
        {"strategy": {"type": "RollingUpdate", "rollingUpdate": {}}},
        {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}},
        {"strategy": {"type": "Recreate"}},
    ),
    "null removes": ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
}


@pytest.mark.parametrize("case", STRATEGIC)
def test_strategic_merge_patch(case: str) -> None:
    target, patch, expected = STRATEGIC[case]
    assert patches.apply(PatchType.STRATEGIC, target, patch) == expected


OPERATIONS: dict[str, tuple[Object, list[Object], Object]] = {
    "add": ({}, [{"op": "add", "path": "/a", "value": 1}], {"a": 1}),
    "insert": ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
    "append": ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
    "remove": ({"a": 1, "b": 2}, [{"op": "remove", "path": "/a"}], {"b": 2}),
    "replace": ({"a": 1}, [{"op": "replace", "path": "/a", "value": 2}], {"a": 2}),
    "move": ({"a": 1}, [{"op": "move", "from": "/a", "path": "/b"}], {"b": 1}),
    "copy": ({"a": 1}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": 1, "b": 1}),
    "test": ({"a": 1}, [{"op": "test", "path": "/a", "value": 1}], {"a": 1}),
    "escapes": (
        {"a": {"x/y~z": 1}},
        [{"op": "replace", "path": "/a/x~1y~0z", "value": 2}],
        {"a": {"x/y~z": 2}},
    ),
}


@pytest.mark.parametrize("case", OPERATIONS)
def test_json_patch(case: str) -> None:
    target, operations, expected = OPERATIONS[case]
    assert patches.apply(PatchType.JSON, target, operations) == expected


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/missing"},
        {"op": "remove", "path": ""},
        {"op": "remove", "path": "/list/00"},
        {"op": "replace", "path": "/missing", "value": 1},
        {"op": "test", "path": "/a", "value": 2},
        {"op": "add", "path": "/list/9", "value": 2},
        {"op": "add", "path": "/list/x", "value": 2},
        {"op": "jump", "path": "/a"},
        {"op": "add", "path": "a", "value": 1},
        {"op": "add", "path": "/a"},
        "add",
    ],
)
def test_an_impossible_operation_is_refused_by_its_number(operation: Any) -> None:
    with pytest.raises(errors.Unprocessable, match="operation 0"):
        patches.apply(PatchType.JSON, {"a": 1, "list": [0]}, [operation])


@pytest.mark.parametrize("patch_type", list(PatchType))
@pytest.mark.parametrize("patch", ["text", 5, None])
def test_a_patch_of_a_wrong_form_is_refused(patch_type: PatchType, patch: Any) -> None:
    with pytest.raises(errors.BadRequest):
        patches.apply(patch_type, {}, patch)


def test_neither_argument_is_changed() -> None:
    target: Object = {"a": {"b": [1]}, "containers": [{"name": "x", "env": []}]}
    patch: Object = {"a": {"b": [2]}, "containers": [{"name": "x", "env": [{"name": "y"}]}]}
    for patch_type in (PatchType.MERGE, PatchType.STRATEGIC):
        patched = patches.apply(patch_type, target, patch)
        patched["a"]["b"].append(3)
        patched["containers"][0]["env"].append({})
    assert target == {"a": {"b": [1]}, "containers": [{"name": "x", "env": []}]}
    assert patch == {"a": {"b": [2]}, "containers": [{"name": "x", "env": [{"name": "y"}]}]}
