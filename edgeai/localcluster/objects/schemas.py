"""Prunes, defaults and validates an object by a structural schema.

Pure. The error texts are the same as in Kubernetes, because users search the web for these texts.
Knows the keywords and formats of edgeai's definitions, except CEL. Why no library: decision 0014.
"""

import copy
import functools
import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from edgeai import times
from edgeai.localcluster.objects import errors
from edgeai.localcluster.objects.errors import FieldError
from edgeai.localcluster.objects.resources import Object

_IDENTITY = frozenset({"apiVersion", "kind", "metadata"})
_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING = "x-kubernetes-int-or-string"


def prune(schema: Object, value: Any, *, root: bool = False) -> tuple[Any, list[str]]:
    """A copy of a value without its unknown fields, and their paths: `spec.workers[0].nam`.

    Args: root: `value` is a whole object; its apiVersion, kind and metadata always stay
    """
    unknown: list[str] = []
    return _prune(schema, value, "", unknown, root), unknown


def _prune(schema: Object, value: Any, path: str, unknown: list[str], root: bool = False) -> Any:
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [
            _prune(schema["items"], item, f"{path}[{index}]", unknown)
            for index, item in enumerate(value)
        ]
    if not isinstance(value, dict):
        return value
    if isinstance(schema.get("additionalProperties"), dict):
        inner = schema["additionalProperties"]
        return {key: _prune(inner, v, _join(path, key), unknown) for key, v in value.items()}
    properties = schema.get("properties") or {}
    keeps_all = bool(schema.get(_PRESERVE) or schema.get("additionalProperties"))
    identity = _IDENTITY if root else frozenset()
    result = {}
    for key, item in value.items():
        if key in properties and not (root and key == "metadata"):
            result[key] = _prune(properties[key], item, _join(path, key), unknown)
        elif keeps_all or key in identity:
            result[key] = item
        else:
            unknown.append(_join(path, key))
    return result


def default(schema: Object, value: Any) -> Any:
    """A copy of a value with defaults. A null in a field that is not nullable counts as missing."""
    if isinstance(value, list):
        items = schema.get("items")
        return [default(items, item) for item in value] if isinstance(items, dict) else value
    if not isinstance(value, dict):
        return value
    properties = schema.get("properties") or {}
    extra = schema.get("additionalProperties")
    result = {}
    for key, item in value.items():
        inner = properties.get(key, extra if isinstance(extra, dict) else None)
        if inner is None:
            result[key] = item
        elif item is not None or inner.get("nullable"):
            result[key] = default(inner, item)
    for key, inner in properties.items():
        if key not in result and "default" in inner:
            result[key] = default(inner, copy.deepcopy(inner["default"]))
    return result


def validate(schema: Object, value: Any, path: str = "") -> list[FieldError]:
    """All errors of a value. The caller must have pruned the value and filled in its defaults."""
    if value is None and schema.get("nullable"):
        return []
    wrong_type = _check_type(schema, value, path)
    if wrong_type:
        return wrong_type
    faults = list(_check_enum(schema, value, path))
    for type_, check in _CHECKS:
        if isinstance(value, type_) and not isinstance(value, bool):
            faults += check(schema, value, path)
    if "not" in schema and not validate(schema["not"], value, path):
        faults.append(
            errors.invalid(path, value, f"{path} in body must not validate the schema (not)")
        )
    return faults


_TYPES: dict[str, Callable[[Any], bool]] = {
    "array": lambda value: isinstance(value, list),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and value == int(value),
    "number": lambda value: _is_number(value),
    "object": lambda value: isinstance(value, dict),
    "string": lambda value: isinstance(value, str),
}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_type(schema: Object, value: Any, path: str) -> list[FieldError]:
    if schema.get(_INT_OR_STRING):
        expected, fits = "integer,string", _TYPES["integer"](value) or isinstance(value, str)
    elif schema.get("type"):
        expected, fits = schema["type"], _TYPES[schema["type"]](value)
    else:
        return []
    if fits:
        return []
    name = next((name for name, is_of in _TYPES.items() if is_of(value)), "null")
    why = f'{path} in body must be of type {expected}: "{name}"'
    return [
        FieldError(path, "FieldValueTypeInvalid", f"Invalid value: {errors.quoted(name)}: {why}")
    ]


def _check_enum(schema: Object, value: Any, path: str) -> Iterable[FieldError]:
    # In Python 1 is in [True].
    if "enum" in schema and not any(
        value == one and isinstance(value, bool) == isinstance(one, bool) for one in schema["enum"]
    ):
        yield errors.unsupported(path, value, schema["enum"])


def _check_object(schema: Object, value: Object, path: str) -> Iterable[FieldError]:
    for name in schema.get("required") or ():
        if name not in value:
            yield errors.required(_join(path, name))
    yield from _check_size(schema, len(value), path, "Properties", "properties")
    properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
    for key, item in value.items():
        inner = properties.get(key, extra if isinstance(extra, dict) else None)
        if inner is not None:
            yield from validate(inner, item, _join(path, key))


def _check_array(schema: Object, value: list[Any], path: str) -> Iterable[FieldError]:
    yield from _check_size(schema, len(value), path, "Items", "items")
    if isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            yield from validate(schema["items"], item, f"{path}[{index}]")
    identities = set()
    for index, item in enumerate(value):
        identity = _identity(schema, item)
        if identity is not None and identity in identities:
            yield errors.duplicate(f"{path}[{index}]", item)
        identities.add(identity)


def _identity(schema: Object, item: Any) -> bytes | None:
    """The identity of an item in a list of type set or map; None in other lists."""
    kind = schema.get("x-kubernetes-list-type")
    if kind == "map" and isinstance(item, dict):
        keys = schema.get("x-kubernetes-list-map-keys") or ()
        item = [item.get(key) for key in keys]
    elif kind != "set":
        return None
    return msgspec.json.encode(item, order="deterministic")


def _check_size(
    schema: Object, size: int, path: str, keyword: str, noun: str
) -> Iterable[FieldError]:
    if size > schema.get(f"max{keyword}", size):
        limit = schema[f"max{keyword}"]
        detail = f"Too many: {size}: must have at most {limit} {noun}"
        yield FieldError(path, "FieldValueTooMany", detail)
    if size < schema.get(f"min{keyword}", size):
        why = f"{path} in body should have at least {schema[f'min{keyword}']} {noun}"
        yield errors.invalid(path, size, why)


def _check_string(schema: Object, value: str, path: str) -> Iterable[FieldError]:
    if len(value) > schema.get("maxLength", len(value)):
        detail = f"Too long: may not be more than {schema['maxLength']} bytes"
        yield FieldError(path, "FieldValueTooLong", detail)
    if len(value) < schema.get("minLength", 0):
        why = f"{path} in body should be at least {schema['minLength']} chars long"
        yield errors.invalid(path, value, why)
    expression = pattern(schema["pattern"]) if "pattern" in schema else None
    if expression is not None and not expression.search(value):
        why = f"{path} in body should match '{schema['pattern']}'"
        yield errors.invalid(path, value, why)
    if schema.get("format") == "date-time":
        try:
            times.parse(value)
        except ValueError:
            why = f"{path} in body must be of type date-time: {errors.quoted(value)}"
            yield errors.invalid(path, value, why)


def _check_number(schema: Object, value: float, path: str) -> Iterable[FieldError]:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and value < low:
        why = f"{path} in body should be greater than or equal to {low}"
        yield errors.invalid(path, value, why)
    if high is not None and value > high:
        why = f"{path} in body should be less than or equal to {high}"
        yield errors.invalid(path, value, why)
    limit = {"int32": 2**31, "int64": 2**63}.get(schema.get("format", ""))
    if limit and not -limit <= value < limit:
        yield errors.invalid(path, value, f"{path} in body must be of type {schema['format']}")


_CHECKS: tuple[tuple[Any, Callable[[Object, Any, str], Iterable[FieldError]]], ...] = (
    (dict, _check_object),
    (list, _check_array),
    (str, _check_string),
    ((int, float), _check_number),
)


@functools.lru_cache(maxsize=1024)
def pattern(text: str) -> re.Pattern[str] | None:
    """The compiled pattern; None if the text is not a regular expression."""
    try:
        return re.compile(text)
    except (re.error, TypeError):
        return None


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
