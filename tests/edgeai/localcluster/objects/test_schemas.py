"""Structural schemas: pruning, defaults, and faults in the words of the API server."""

from typing import Any

import pytest

from edgeai.localcluster.api.tables import values_at
from edgeai.localcluster.objects import schemas
from edgeai.localcluster.objects.resources import Object

TEXT = {"type": "string"}
WORKERS = {
    "type": "object",
    "properties": {
        "workers": {
            "type": "array",
            "items": {"type": "object", "properties": {"name": TEXT}, "required": ["name"]},
        },
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "labels": {"type": "object", "additionalProperties": TEXT},
    },
}
PRUNED: dict[str, tuple[Object, Object, list[str]]] = {
    "known": ({"workers": [{"name": "a"}]}, {"workers": [{"name": "a"}]}, []),
    "unknown": ({"wrkers": 1}, {}, ["wrkers"]),
    "unknown in a list": (
        {"workers": [{"name": "a"}, {"nam": "b"}]},
        {"workers": [{"name": "a"}, {}]},
        ["workers[1].nam"],
    ),
    "preserved": ({"free": {"any": {"thing": 1}}}, {"free": {"any": {"thing": 1}}}, []),
    "map": ({"labels": {"any": "x"}}, {"labels": {"any": "x"}}, []),
    "identity": (
        {"apiVersion": "v1", "kind": "K", "metadata": {"x": 1}},
        {"apiVersion": "v1", "kind": "K", "metadata": {"x": 1}},
        [],
    ),
}


@pytest.mark.parametrize("case", PRUNED)
def test_prune(case: str) -> None:
    value, expected, unknown = PRUNED[case]
    assert schemas.prune(WORKERS, value, root=True) == (expected, unknown)


def test_what_is_within_a_preserved_map_is_pruned_where_it_is_known() -> None:
    inner = {"type": "object", "properties": {"a": TEXT}}
    schema = {"x-kubernetes-preserve-unknown-fields": True, "properties": {"known": inner}}
    pruned, unknown = schemas.prune(schema, {"other": 1, "known": {"a": "x", "b": 1}})
    assert pruned == {"other": 1, "known": {"a": "x"}}
    assert unknown == ["known.b"]


DEFAULTED: dict[str, tuple[Object, Any, Any]] = {
    "absent": ({"properties": {"a": {"default": 1}}}, {}, {"a": 1}),
    "present": ({"properties": {"a": {"default": 1}}}, {"a": 2}, {"a": 2}),
    "null counts as absent": ({"properties": {"a": {"default": 1}}}, {"a": None}, {"a": 1}),
    "null without default goes": ({"properties": {"a": {"type": "string"}}}, {"a": None}, {}),
    "nullable null stays": (
        {"properties": {"a": {"default": 1, "nullable": True}}},
        {"a": None},
        {"a": None},
    ),
    "within a default": (
        {"properties": {"a": {"default": {}, "properties": {"b": {"default": 2}}}}},
        {},
        {"a": {"b": 2}},
    ),
    "not within an absent map": (
        {"properties": {"a": {"properties": {"b": {"default": 2}}}}},
        {},
        {},
    ),
    "within a list": ({"items": {"properties": {"b": {"default": 2}}}}, [{}], [{"b": 2}]),
    "within a map": (
        {"additionalProperties": {"properties": {"b": {"default": 2}}}},
        {"x": {}},
        {"x": {"b": 2}},
    ),
}


@pytest.mark.parametrize("case", DEFAULTED)
def test_default(case: str) -> None:
    schema, value, expected = DEFAULTED[case]
    assert schemas.default(schema, value) == expected


def test_a_default_is_copied_each_time() -> None:
    schema: Object = {"properties": {"a": {"default": []}}}
    schemas.default(schema, {})["a"].append(1)
    assert schemas.default(schema, {}) == {"a": []}


def spec(**properties: Any) -> Object:
    return {"type": "object", "properties": properties}


FAULTS: dict[str, tuple[Object, Any, str]] = {
    "required": (
        {"type": "object", "required": ["name"]},
        {},
        "spec.name: Required value",
    ),
    "required, deep in a list": (
        WORKERS,
        {"workers": [{"name": "a"}, {}]},
        "spec.workers[1].name: Required value",
    ),
    "wrong type": (
        spec(a={"type": "integer"}),
        {"a": "x"},
        'spec.a: Invalid value: "string": spec.a in body must be of type integer: "string"',
    ),
    "boolean is no integer": (
        spec(a={"type": "integer"}),
        {"a": True},
        'spec.a: Invalid value: "boolean": spec.a in body must be of type integer: "boolean"',
    ),
    "fraction is no integer": (
        spec(a={"type": "integer"}),
        {"a": 1.5},
        'spec.a: Invalid value: "number": spec.a in body must be of type integer: "number"',
    ),
    "null": (
        spec(a={"type": "array", "items": TEXT}),
        {"a": [None]},
        'spec.a[0]: Invalid value: "null": spec.a[0] in body must be of type string: "null"',
    ),
    "enum": (
        spec(a={"type": "string", "enum": ["x", "y"]}),
        {"a": "z"},
        'spec.a: Unsupported value: "z": supported values: "x", "y"',
    ),
    "minimum": (
        spec(a={"type": "integer", "minimum": 1}),
        {"a": 0},
        "spec.a: Invalid value: 0: spec.a in body should be greater than or equal to 1",
    ),
    "int32": (
        spec(a={"type": "integer", "format": "int32"}),
        {"a": 2**31},
        "spec.a: Invalid value: 2147483648: spec.a in body must be of type int32",
    ),
    "pattern": (
        spec(a={"type": "string", "pattern": "^[a-z]+$"}),
        {"a": "A"},
        "spec.a: Invalid value: \"A\": spec.a in body should match '^[a-z]+$'",
    ),
    "min length": (
        spec(a={"type": "string", "minLength": 1}),
        {"a": ""},
        'spec.a: Invalid value: "": spec.a in body should be at least 1 chars long',
    ),
    "max length": (
        spec(a={"type": "string", "maxLength": 1}),
        {"a": "xx"},
        "spec.a: Too long: may not be more than 1 bytes",
    ),
    "min items": (
        spec(a={"type": "array", "minItems": 1, "items": TEXT}),
        {"a": []},
        "spec.a: Invalid value: 0: spec.a in body should have at least 1 items",
    ),
    "max properties": (
        spec(a={"type": "object", "maxProperties": 1, "additionalProperties": TEXT}),
        {"a": {"x": "1", "y": "2"}},
        "spec.a: Too many: 2: must have at most 1 properties",
    ),
    "date-time": (
        spec(a={"type": "string", "format": "date-time"}),
        {"a": "yesterday"},
        'spec.a: Invalid value: "yesterday": spec.a in body must be of type date-time: "yesterday"',
    ),
    "int or string": (
        spec(a={"x-kubernetes-int-or-string": True}),
        {"a": []},
        'spec.a: Invalid value: "array": spec.a in body must be of type integer,string: "array"',
    ),
    "set": (
        spec(a={"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"}),
        {"a": ["x", "x"]},
        'spec.a[1]: Duplicate value: "x"',
    ),
    "map list": (
        spec(
            a={
                "type": "array",
                "items": {"type": "object"},
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
            }
        ),
        {"a": [{"name": "x", "v": 1}, {"name": "x", "v": 2}]},
        'spec.a[1]: Duplicate value: {"name":"x","v":2}',
    ),
    "not": (
        {"type": "object", "not": {"required": ["a"]}},
        {"a": 1},
        'spec: Invalid value: {"a":1}: spec in body must not validate the schema (not)',
    ),
}


@pytest.mark.parametrize("case", FAULTS)
def test_fault(case: str) -> None:
    schema, value, text = FAULTS[case]
    assert [str(fault) for fault in schemas.validate(schema, value, "spec")] == [text]


VALID: dict[str, tuple[Object, Any]] = {
    "whole number as float": ({"type": "integer"}, 3.0),
    "nullable": ({"type": "string", "nullable": True}, None),
    "int or string, int": ({"x-kubernetes-int-or-string": True}, 3),
    "int or string, text": ({"x-kubernetes-int-or-string": True}, "25%"),
    "anything": ({"x-kubernetes-preserve-unknown-fields": True}, [1, "x", None]),
    "unknown format": ({"type": "string", "format": "password"}, "x"),
    "date-time": ({"type": "string", "format": "date-time"}, "2030-01-02T03:04:05.678901Z"),
    "same twice in an atomic list": ({"type": "array", "items": TEXT}, ["x", "x"]),
}


@pytest.mark.parametrize("case", VALID)
def test_valid(case: str) -> None:
    schema, value = VALID[case]
    assert schemas.validate(schema, value, "spec") == []


DOCUMENT: Object = {
    "spec": {"workers": [{"name": "a"}, {"name": "b"}]},
    "status": {
        "conditions": [
            {"type": "Failed", "status": "False"},
            {"type": "Ready", "status": "True"},
        ]
    },
}
PATHS: dict[str, list[Any]] = {
    ".spec.workers[*].name": ["a", "b"],
    ".spec.workers[-1:].name": ["b"],
    '.status.conditions[?(@.type=="Ready")].status': ["True"],
    '.status.conditions[?(@.type=="Lost")].status': [],
    ".spec.missing.deeper": [],
    ".spec.workers.name": [],
    ".spec..workers": [],
    ".spec.workers[name]": [],
}


@pytest.mark.parametrize("path", PATHS)
def test_jsonpath_of_printer_columns(path: str) -> None:
    assert values_at(path, DOCUMENT) == PATHS[path]
