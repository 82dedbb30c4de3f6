"""Parses the label selector and the field selector of a request.

Pure. An error has the text that the API answers.
"""

import re

from edgeai.localcluster.objects import errors
from edgeai.localcluster.objects.resources import Resource
from edgeai.localcluster.objects.selectors import Requirement, Selector

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


def parse(resource: Resource, label_selector: str, field_selector: str) -> Selector:
    """Parse the label selector and the field selector of a request.

    Raises: errors.BadRequest for a malformed selector or an unknown field
    """
    return Selector(parse_labels(label_selector), _parse_fields(resource, field_selector))


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """Parse a label selector like `a=b,c!=d,e in (f,g),h notin (i),j,!k`.

    Raises: errors.BadRequest
    """
    requirements: list[Requirement] = []
    position = 0
    text = text.strip()
    while position < len(text):
        match = _REQUIREMENT.match(text, position)
        if match is None:
            raise errors.BadRequest(
                f'unable to parse label selector "{text}": see "{text[position:]}"'
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


def _parse_fields(resource: Resource, text: str) -> tuple[Requirement, ...]:
    requirements = []
    for term in filter(None, (part.strip() for part in text.split(","))):
        key, operator, value = _split_term(term)
        if key not in resource.selectable_fields:
            raise errors.BadRequest(
                f'field label "{key}" is not supported for {resource.group_resource}; '
                f"supported: {', '.join(resource.selectable_fields)}"
            )
        requirements.append(Requirement(key, frozenset({value}), operator == "!="))
    return tuple(requirements)


def _split_term(term: str) -> tuple[str, str, str]:
    for operator in ("!=", "==", "="):
        key, separator, value = term.partition(operator)
        if separator:
            return key.strip(), operator, value.strip()
    raise errors.BadRequest(f'invalid field selector "{term}": want name=value or name!=value')
