"""Fields that a kind does not have: a typo that an API server would drop without a word.

The API server refuses them where a request says so.
"""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from edgeai.api.resources import ResourceType
from edgeai.client.errors import InvalidObject
from edgeai.client.objects import CLASSES
from edgeai.kube.errors import ApiError
from edgeai.text import printable

TOP: Final = ("apiVersion", "kind", "metadata", "spec", "status")
FIELDS: Final = {
    "ConfigMap": (*TOP[:3], "data", "binaryData", "immutable"),
    "Secret": (*TOP[:3], "data", "stringData", "type", "immutable"),
}
METADATA: Final = (
    *("name", "generateName", "namespace", "labels", "annotations", "finalizers"),
    *("ownerReferences", "uid", "resourceVersion", "generation", "creationTimestamp"),
    *("deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "selfLink"),
)
_UNKNOWN: Final = re.compile(r'unknown field "([^"]+)"|\.(\S+): field not declared in schema')
_INDEX: Final = re.compile(r"\[[^]]*\]")
_MAX_NAMED: Final = 5
_MAX_CHARS: Final = 200  # of one field in an error
_CORRECT: Final = "correct it, or leave it out"


def unknown_fields(error: ApiError) -> list[str]:
    """The unknown fields that the API server names in its refusal; none of another refusal."""
    return [first or second for first, second in _UNKNOWN.findall(error.message)]


def check_head(document: Mapping[str, Any], name: str) -> None:
    """Raises: InvalidObject for a field beside the spec, or of the metadata, that no object has"""
    for part, names, path in (
        (document, FIELDS.get(str(document.get("kind")), TOP), ""),
        (document.get("metadata") or {}, METADATA, "metadata."),
    ):
        fields = [f"{path}{field}" for field in part if field not in names]
        if fields:
            raise _refusal(name, "an object", fields, names)


def spec_refusal(type_: ResourceType, name: str, fields: Sequence[str]) -> InvalidObject:
    """The error for unknown fields of the spec. Args: name: the object"""
    return _refusal(name, f"a {type_.kind}", fields, _siblings(type_, fields[0]))


def _refusal(name: str, owner: str, fields: Sequence[str], names: Iterable[str]) -> InvalidObject:
    """Args: owner: what does not have the fields; names: of the fields that it has"""
    # Somebody else may have written the file: its words go to a terminal.
    first, *others = (printable(field)[:_MAX_CHARS] for field in fields[:_MAX_NAMED])
    problem = f"is not a field of {owner}"
    problem += f", nor is {', nor '.join(others)}" if others else ""
    problem += f", and {len(fields) - _MAX_NAMED} more" if len(fields) > _MAX_NAMED else ""
    similar = difflib.get_close_matches(first.rpartition(".")[2], names, n=1, cutoff=0.6)
    remedy = f"did you mean {similar[0]}? {_CORRECT}" if similar else _CORRECT
    return InvalidObject(name, first, problem, remedy)


def _siblings(type_: ResourceType, field: str) -> list[str]:
    """The fields that the definition of the type has in the place of `field`."""
    from edgeai.api.schemas import structural  # only a refusal needs it

    definitions = [one.DEFINITION for one in CLASSES if type_ in one.DEFINITION.types]
    if not definitions:
        return []  # a ConfigMap or a Secret
    (definition,) = definitions
    schema = {"properties": {"spec": structural(definition.spec)}}
    for step in field.split(".")[:-1]:
        properties = schema.get("properties") or {}
        inner = properties.get(_INDEX.sub("", step)) or schema.get("additionalProperties") or {}
        for _ in _INDEX.findall(step):
            inner = inner.get("items") or {}
        schema = inner
    return list(schema.get("properties") or {})
