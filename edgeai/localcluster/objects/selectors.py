"""Label and field selectors: which objects match.

Pure. `api.selector_parser` makes selectors from the text of a request.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from edgeai.localcluster.objects import errors
from edgeai.localcluster.objects.resources import Object, Resource


class Selectable(msgspec.Struct, frozen=True):
    """The labels and the fields of an object that a selector compares."""

    labels: Mapping[str, str]
    fields: Mapping[str, str]


class Requirement(msgspec.Struct, frozen=True):
    """One requirement of a selector: the value of `key` is one of `values`.

    If `values` is None, the requirement is that `key` is present. `negated` turns the requirement
    into its opposite.
    """

    key: str
    values: frozenset[str] | None = None
    negated: bool = False

    @classmethod
    def equals(cls, key: str, value: str) -> "Requirement":
        """The value of `key` is `value`."""
        return cls(key, frozenset({value}))

    def matches(self, labels: Mapping[str, str]) -> bool:
        if self.values is None:
            return (self.key in labels) is not self.negated
        return (labels.get(self.key) in self.values) is not self.negated


class Selector(msgspec.Struct, frozen=True):
    """Requirements on labels and fields. An object must meet all requirements.

    An empty selector matches every object.
    """

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.labels or self.fields)

    def matches(self, selectable: Selectable) -> bool:
        return all(rule.matches(selectable.labels) for rule in self.labels) and all(
            rule.matches(selectable.fields) for rule in self.fields
        )


EVERYTHING: Final = Selector()
"""The empty selector, which matches every object."""


def selectable(resource: Resource, object_: Object) -> Selectable:
    """The labels and the selectable fields of an object. A missing field has the value ""."""
    labels = object_["metadata"].get("labels") or {}
    fields = {path: _selectable_field(object_, path) for path in resource.selectable_fields}
    return Selectable(labels, fields)


def _selectable_field(object_: Object, path: str) -> str:
    value: Any = object_
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def from_label_selector(selector: Object | None) -> tuple[Requirement, ...] | None:
    """The requirements of a LabelSelector object (matchLabels, matchExpressions).

    Returns: None for a missing selector, which selects nothing.
    Raises: errors.BadRequest for an unknown operator.
    """
    if selector is None:
        return None
    requirements = [
        Requirement.equals(key, value) for key, value in (selector.get("matchLabels") or {}).items()
    ]
    return tuple(
        requirements + [_expression(term) for term in selector.get("matchExpressions") or []]
    )


def _expression(term: Object) -> Requirement:
    operator, key = term.get("operator"), str(term.get("key", ""))
    if operator in ("In", "NotIn"):
        return Requirement(key, frozenset(term.get("values") or []), operator == "NotIn")
    if operator in ("Exists", "DoesNotExist"):
        return Requirement(key, negated=operator == "DoesNotExist")
    raise errors.BadRequest(f'"{operator}" is not a valid label selector operator')
