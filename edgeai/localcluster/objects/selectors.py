"""Label and field selectors: what their texts mean, and which objects match. Pure."""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from edgeai.localcluster.objects import errors
from edgeai.localcluster.objects.resources import Object, Resource, field_value

_REQUIREMENT = re.compile(
    r"""\s*(?:
        (?P<absent>!)\s*(?P<absent_key>[^\s,=!()]+)
      | (?P<key>[^\s,=!()]+)\s*(?:
            (?P<equality>==|=|!=)\s*(?P<value>[^\s,()=!]*)
          | (?P<set>\bin|\bnotin)\s*\((?P<values>[^()]*)\)
        )?
    )\s*(?:,|$)""",
    re.VERBOSE,
)


class Selectable(msgspec.Struct, frozen=True):
    labels: Mapping[str, str]
    fields: Mapping[str, str]


class Requirement(msgspec.Struct, frozen=True):
    """One requirement of a selector: the value of `key` is one of `values`.

    `values` None: `key` is present. `negated` turns the requirement into its opposite.
    """

    key: str
    values: frozenset[str] | None = None
    negated: bool = False

    def matches(self, labels: Mapping[str, str]) -> bool:
        if self.values is None:
            return (self.key in labels) is not self.negated
        return (labels.get(self.key) in self.values) is not self.negated


class Selector(msgspec.Struct, frozen=True):
    """Requirements on labels and fields. An object must meet all requirements."""

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
    value = field_value(object_, path)
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def is_label_match(selector: Object | None, labels: Mapping[str, str]) -> bool:
    """Whether a LabelSelector has requirements, and the labels meet all of them.

    Raises: errors.BadRequest for an unknown operator.
    """
    selector = selector or {}
    exact = (selector.get("matchLabels") or {}).items()
    requirements = [Requirement(key, frozenset({value})) for key, value in exact]
    requirements += [_expression(term) for term in selector.get("matchExpressions") or []]
    return bool(requirements) and all(rule.matches(labels) for rule in requirements)


def _expression(term: Object) -> Requirement:
    operator, key = term.get("operator"), str(term.get("key", ""))
    if operator in ("In", "NotIn"):
        return Requirement(key, frozenset(term.get("values") or []), operator == "NotIn")
    if operator in ("Exists", "DoesNotExist"):
        return Requirement(key, negated=operator == "DoesNotExist")
    raise errors.BadRequest(f'"{operator}" is not a valid label selector operator')


def parse(resource: Resource, label_selector: str, field_selector: str) -> Selector:
    """Raises: errors.BadRequest for a malformed selector or an unknown field"""
    fields = parse_requirements("field", field_selector)
    for field in fields:
        if field.key not in resource.selectable_fields:
            raise errors.BadRequest(
                f'field label "{field.key}" is not supported for {resource.group_resource}; '
                f"supported: {', '.join(resource.selectable_fields)}"
            )
        if field.values is None:
            raise errors.BadRequest(f'invalid field selector "{field_selector}": want name=value')
    return Selector(parse_requirements("label", label_selector), fields)


def parse_requirements(noun: str, text: str) -> tuple[Requirement, ...]:
    """Parse a selector like `a=b,c!=d,e in (f,g),h notin (i),j,!k`. Args: noun: label or field

    Raises: errors.BadRequest
    """
    requirements: list[Requirement] = []
    position = 0
    text = text.strip()
    while position < len(text):
        match = _REQUIREMENT.match(text, position)
        if match is None:
            raise errors.BadRequest(
                f'unable to parse {noun} selector "{text}": see "{text[position:]}"'
            )
        requirements.append(_requirement(match))
        position = match.end()
    return tuple(requirements)


def _requirement(match: re.Match[str]) -> Requirement:
    if match["absent"]:
        return Requirement(match["absent_key"], negated=True)
    if match["equality"]:
        return Requirement(match["key"], frozenset({match["value"]}), match["equality"] == "!=")
    if match["set"]:
        values = frozenset(value.strip() for value in match["values"].split(","))
        return Requirement(match["key"], values, match["set"] == "notin")
    return Requirement(match["key"])
