"""Parts of a CustomResourceDefinition, and the schema of a struct."""

import inspect
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec


class Column(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One additionalPrinterColumn of a CRD. `type` is string, integer or date. kubectl shows a
    column of priority 1 only with `kubectl get -o wide`.
    """

    name: str
    type: str
    json_path: str
    priority: int = 0


class Validation(msgspec.Struct, frozen=True):
    """A rule in CEL (x-kubernetes-validations) about the field with this path: "spec.runPolicy"."""

    field: str
    expression: str
    message: str


OpenApi = dict[str, Any]
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_ANNOTATIONS: Final = frozenset(
    {"title", "default"}
)  # no defaults, so the API stores what users wrote
KUBERNETES: Final = Path(__file__).with_name("kubernetes.json")
"""Name -> schema of types of Kubernetes. A command of the tests writes the file."""


def kubernetes(name: str) -> msgspec.Meta:
    """For a field that has the type of Kubernetes with this name."""
    return msgspec.Meta(extra_json_schema={"$ref": name})


def structural(type_: type) -> OpenApi:
    """The structural OpenAPI v3 schema of a struct. The schema has no references and never allows
    null.
    """
    (root,), components = msgspec.json.schema_components([type_])
    return _structural(root, {f"#/$defs/{name}": schema for name, schema in components.items()})


@cache
def _kubernetes() -> dict[str, OpenApi]:
    """Name -> schema, with references."""
    schemas: dict[str, OpenApi] = msgspec.json.decode(KUBERNETES.read_bytes())
    return schemas


@cache
def _of_kubernetes(name: str) -> OpenApi:
    return _structural(_kubernetes()[name], {})


def _structural(schema: OpenApi, components: Mapping[str, OpenApi]) -> OpenApi:
    if "$ref" in schema:
        name, siblings = schema["$ref"], _without(schema, "$ref")
        if name in components:
            return _structural({**components[name], **siblings}, components)
        return {**_of_kubernetes(name), **_without(siblings, *_ANNOTATIONS)}
    if "anyOf" in schema:
        # A type beside it is what users may write; the reconciler reads more, for older objects.
        branch = {} if "type" in schema else _only_branch(schema["anyOf"])
        return _structural({**branch, **_without(schema, "anyOf")}, components)
    # The API server drops empty values, so `kubectl apply` would write them again each time.
    fields = {
        key: value
        for key, value in schema.items()
        if key not in _ANNOTATIONS and value != [] and (key, value) != ("properties", {})
    }
    # OpenAPI 3.0 has true or false there. Server-side apply refuses a definition with a number.
    if fields.keys() & {"exclusiveMinimum", "exclusiveMaximum"}:
        raise ValueError(f"a bound with gt or lt has no structural schema: use ge or le: {schema}")
    if "description" in fields:
        fields["description"] = inspect.cleandoc(fields["description"])
    for key in ("items", "additionalProperties"):
        if isinstance(fields.get(key), dict):
            fields[key] = _structural(fields[key], components)
    if "properties" in fields:
        inner = fields["properties"].items()
        fields["properties"] = {name: _structural(value, components) for name, value in inner}
    # A struct without fields is no open map: the API server drops what a Go client cannot read.
    return fields if schema.get("properties") == {} else _typed(fields)


def _without(schema: OpenApi, *keys: str) -> OpenApi:
    return {name: value for name, value in schema.items() if name not in keys}


def _only_branch(branches: list[OpenApi]) -> OpenApi:
    """Raises: ValueError for a union that a structural schema cannot express"""
    real = [branch for branch in branches if branch != {"type": "null"}]
    if sorted(str(branch.get("type")) for branch in real) == ["integer", "string"]:
        return {_INT_OR_STRING: True}
    if len(real) != 1:
        raise ValueError(f"a field of several types has no structural schema: {branches}")
    return real[0]


def _typed(schema: OpenApi) -> OpenApi:
    """The schema with two additions that a structural schema requires: a type in every place, and
    x-kubernetes-preserve-unknown-fields on an open map.
    """
    if "enum" in schema:
        return {"type": "string", **schema}
    if "type" not in schema:
        if _INT_OR_STRING in schema:
            return schema
        return {_PRESERVE: True, **schema}
    is_open = not schema.keys() & {"properties", "additionalProperties"}
    return {**schema, _PRESERVE: True} if schema["type"] == "object" and is_open else schema
