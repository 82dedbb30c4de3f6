"""The patch formats of the API, as pure functions from object and patch to object.

The formats are JSON patch (RFC 6902), JSON merge patch (RFC 7386) and, for built-in objects only,
strategic merge patch. Server-side apply is a strategic merge for built-in objects, and a merge
patch for custom resources. Fields have no owners, so a field that a later apply leaves out stays.
"""

import copy
from enum import StrEnum
from typing import Any

from jsonpatch import JsonPatch, JsonPatchException, JsonPointerException

from edgeai.localcluster.objects import errors
from edgeai.localcluster.objects.resources import Object

MERGE_KEYS = {
    "conditions": "type",
    "containerStatuses": "name",
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainerStatuses": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "podIPs": "ip",
    "secrets": "name",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""Name of a list -> the field that identifies the items of the list."""

_PRIMITIVE_SETS = frozenset({"finalizers"})
# The merge keys of a container's ports, of a Service's ports and of a Node's addresses.
_ADDRESS_KEYS = ("containerPort", "port", "type")


class PatchType(StrEnum):
    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


def apply(patch_type: PatchType, object_: Object, patch: Any, *, custom: bool = False) -> Object:
    """The patched object. The function changes neither the object nor the patch.

    Args:
        custom: the object is a custom resource, so a server-side apply is a merge patch
    Raises: errors.BadRequest if malformed; errors.Unprocessable if it does not fit the object
    """
    if patch_type is PatchType.JSON:
        return apply_json_patch(object_, patch)
    if not isinstance(patch, dict):
        raise errors.BadRequest("the patch must be a map")
    if patch_type is PatchType.MERGE or (patch_type is PatchType.APPLY and custom):
        merged: Object = merge(object_, patch)
        return merged
    try:
        return merge_strategically(object_, patch)
    except (AttributeError, TypeError) as error:
        raise errors.BadRequest(f"the strategic merge patch is malformed: {error}") from error


def merge(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch: maps merge, null removes a field, any other value replaces one."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def merge_strategically(target: Object, patch: Object) -> Object:
    """Like `merge`, but merges a list that has a merge key item by item.

    The function understands `$patch: delete|replace`, `$retainKeys` and
    `$deleteFromPrimitiveList/<field>`. It ignores `$setElementOrder/<field>`: new items come last.
    """
    if patch.get("$patch") == "replace":
        return {key: copy.deepcopy(value) for key, value in patch.items() if key != "$patch"}
    if patch.get("$patch") == "delete":
        return {}
    result = dict(target)
    if isinstance(retained := patch.get("$retainKeys"), list):
        result = {key: value for key, value in result.items() if key in retained}
    for key, value in patch.items():
        if key.startswith("$"):
            _apply_directive(result, key, value)
        elif value is None:
            result.pop(key, None)
        else:
            result[key] = _merge_value(key, result.get(key), value)
    return result


def _apply_directive(result: Object, directive: str, value: Any) -> None:
    name, _, field = directive.partition("/")
    if name == "$deleteFromPrimitiveList" and isinstance(result.get(field), list):
        result[field] = [item for item in result[field] if item not in value]


def _merge_value(key: str, current: Any, value: Any) -> Any:
    if isinstance(value, dict):
        return merge_strategically(current if isinstance(current, dict) else {}, value)
    if not isinstance(value, list):
        return value
    present = current if isinstance(current, list) else []
    if key in _PRIMITIVE_SETS:
        return present + [item for item in value if item not in present]
    merge_key = _merge_key(key, present + value)
    if merge_key is None:
        return copy.deepcopy(value)
    return _merge_items(merge_key, present, value)


def _merge_key(field: str, items: list[Any]) -> str | None:
    """The merge key of a list; None if the list has no merge key.

    The merge key of `ports` and `addresses` depends on the items of the list.
    """
    if field in ("ports", "addresses"):
        entries = [item for item in items if isinstance(item, dict) and "$patch" not in item]
        return next(
            (key for key in _ADDRESS_KEYS if entries and all(key in entry for entry in entries)),
            None,
        )
    return MERGE_KEYS.get(field)


def _merge_items(merge_key: str, present: list[Any], patch: list[Any]) -> list[Any]:
    if any(item == {"$patch": "replace"} for item in patch):
        return [copy.deepcopy(item) for item in patch if item != {"$patch": "replace"}]
    result = list(present)
    for item in patch:
        if not isinstance(item, dict) or merge_key not in item:
            raise errors.BadRequest(f'strategic merge patch: an item lacks its key "{merge_key}"')
        index = _index_of(result, merge_key, item[merge_key])
        if item.get("$patch") == "delete":
            result[index : index + 1] = []
        elif index == len(result):
            result.append(merge_strategically({}, item))
        else:
            result[index] = merge_strategically(result[index], item)
    return result


def _index_of(items: list[Any], merge_key: str, value: Any) -> int:
    for index, item in enumerate(items):
        if isinstance(item, dict) and item.get(merge_key) == value:
            return index
    return len(items)


def apply_json_patch(object_: Object, operations: Any) -> Object:
    """Apply a JSON patch (RFC 6902) with any of the six operations.

    Raises: errors.BadRequest if malformed; errors.Unprocessable, which names the operation
    """
    if not isinstance(operations, list):
        raise errors.BadRequest("a JSON patch is a list of operations")
    result: Any = copy.deepcopy(object_)
    for index, operation in enumerate(copy.deepcopy(operations)):
        try:
            result = JsonPatch([operation]).apply(result, in_place=True)
        except (JsonPatchException, JsonPointerException) as error:
            raise errors.Unprocessable(f"JSON patch operation {index}: {error}") from error
    if not isinstance(result, dict):
        raise errors.BadRequest("the JSON patch leaves no object")
    return result
