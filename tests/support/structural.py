"""Checks whether a CRD's schema is structural, by the rules of Kubernetes' documentation. Pure."""

from typing import Any

from edgeai.localcluster.objects import errors, schemas
from edgeai.localcluster.objects.errors import FieldError
from edgeai.localcluster.objects.resources import Object

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_FORBIDDEN = ("$ref", "definitions", "dependencies", "deprecated", "discriminator", "id")
_ONLY_OUTSIDE_JUNCTORS = ("type", "default", "additionalProperties", "nullable", "description")
_JUNCTORS = ("allOf", "anyOf", "oneOf")


def check(schema: Object, path: str) -> list[FieldError]:
    """The reasons why a schema is not structural; an empty list for a structural schema."""
    if schema.get("type") != "object":
        return [errors.invalid(f"{path}.type", schema.get("type"), "must be object at the root")]
    return _check_node(schema, path)


def _check_node(schema: Any, path: str) -> list[FieldError]:
    if not isinstance(schema, dict):
        return [errors.invalid(path, schema, "must be a schema, that is a map")]
    faults = _check_type(schema, path) + _check_keywords(schema, path)
    faults += _check_junctors(schema, path) + _check_default(schema, path)
    for name, child in (schema.get("properties") or {}).items():
        faults += _check_node(child, f"{path}.properties[{name}]")
    if isinstance(schema.get("additionalProperties"), dict):
        faults += _check_node(schema["additionalProperties"], f"{path}.additionalProperties")
    if "items" in schema:
        faults += _check_node(schema["items"], f"{path}.items")
    return faults


def _check_type(schema: Object, path: str) -> list[FieldError]:
    type_ = schema.get("type")
    free = schema.get("x-kubernetes-int-or-string") or schema.get(
        "x-kubernetes-preserve-unknown-fields"
    )
    if not type_:
        why = "must not be empty for specified object fields"
        return [] if free else [errors.required(f"{path}.type", why)]
    if type_ not in _TYPES:
        return [errors.unsupported(f"{path}.type", type_, _TYPES)]
    if type_ == "array" and "items" not in schema:
        return [errors.required(f"{path}.items", "must be specified for an array")]
    return []


def _check_keywords(schema: Object, path: str) -> list[FieldError]:
    faults = [
        errors.forbidden(f"{path}.{keyword}", "not allowed in a structural schema")
        for keyword in _FORBIDDEN
        if keyword in schema
    ]
    if isinstance(schema.get("items"), list):
        faults.append(errors.forbidden(f"{path}.items", "must be one schema, not a list"))
    if schema.get("additionalProperties") is False:
        faults.append(errors.forbidden(f"{path}.additionalProperties", "must not be false"))
    if schema.get("properties") and schema.get("additionalProperties"):
        why = "must not be used together with properties"
        faults.append(errors.forbidden(f"{path}.additionalProperties", why))
    if schema.get("uniqueItems"):
        why = "cannot be true since the runtime complexity becomes quadratic"
        faults.append(errors.forbidden(f"{path}.uniqueItems", why))
    if "pattern" in schema and schemas.pattern(schema["pattern"]) is None:
        faults.append(
            errors.invalid(f"{path}.pattern", schema["pattern"], "is no regular expression")
        )
    return faults


def _check_junctors(schema: Object, path: str) -> list[FieldError]:
    """Check that the branches of allOf, anyOf, oneOf and not have only rules for the value."""
    branches = [
        (branch, f"{path}.{junctor}[{index}]")
        for junctor in _JUNCTORS
        for index, branch in enumerate(schema.get(junctor) or ())
    ]
    if "not" in schema:
        branches.append((schema["not"], f"{path}.not"))
    int_or_string = schema.get("x-kubernetes-int-or-string")
    faults = []
    for branch, where in branches:
        faults += [
            errors.forbidden(f"{where}.{keyword}", "must not be set here to be structural")
            for keyword in _ONLY_OUTSIDE_JUNCTORS
            if keyword in branch and not (int_or_string and keyword == "type")
        ]
    return faults


def _check_default(schema: Object, path: str) -> list[FieldError]:
    if schema.get("default") is None:
        return []
    faults = schemas.validate(schema, schema["default"], f"{path}.default")
    _, unknown = schemas.prune(schema, schema["default"])
    return faults + [
        errors.invalid(f"{path}.default", schema["default"], f"has the unknown field {field}")
        for field in unknown
    ]
