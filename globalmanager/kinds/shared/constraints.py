"""Constraints on the spec of a training job: one table for three readers.

A `Constraint` is a row. The kinds put their rows together (`validation` has the shared ones). The
rows give three things: the keywords and CEL rules of the CustomResourceDefinition (`keywords`,
`validations`), the check (`check_form`, `check`), and the tested tables in docs/kinds (`rows`).
"""

import enum
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from edgeai.api.resources import Object
from edgeai.api.schemas import Validation
from edgeai.api.specs import InvalidSpec, shown
from edgeai.api.status import mapping
from edgeai.api.training import ReplicaForm

ANY: Final = "*"
"""The segment of a path that stands for each replica type."""


class JobForm(NamedTuple):
    """A job whose spec has the right form, as the checks of single rows get it."""

    object: Object
    spec: Any
    """The spec as the kind's own struct."""
    replicas: Mapping[str, ReplicaForm]
    """The replicas under the kind's own spelling of their types."""


class Constraint(msgspec.Struct, frozen=True, kw_only=True):
    """One row. At least one of `schema`, `cel` and `check` says the rule to a program."""

    field: str
    """Path of the field: "spec.runPolicy.managedBy"."""
    rule: str
    """What must hold, as the documentation and the API server say it to users."""
    schema: Mapping[str, Any] = {}
    """OpenAPI keywords of the field. The API server and the reconciler check them."""
    cel: str = ""
    """The rule in CEL, for the API server."""
    cel_field: str = ""
    """The field that is `self` in `cel`. `field` when it is empty."""
    # Accepts everything, because the keywords alone say many of the rules.
    check: Callable[[JobForm], None] = lambda _job: None
    """Checks what the OpenAPI keywords cannot express. Raises: InvalidSpec, and nothing else"""
    is_checked: bool = True
    """Whether the reconciler can check the rule. A rule about an edit needs the spec before the
    edit, which only the API server has."""


def choice(field: str, values: type[enum.StrEnum]) -> Constraint:
    """The row of a field that has one of these values."""
    return Constraint(field=field, rule=one_of(values), schema={"enum": sorted(values)})


def one_of(values: Iterable[str]) -> str:
    names = [str(value) for value in values]
    return " or ".join([", ".join(names[:-1]), names[-1]])


def number(field: str, least: int, most: int) -> Constraint:
    """The row of a field that is a number within these limits."""
    rule = f"a number from {least} to {most}"
    return Constraint(field=field, rule=rule, schema={"minimum": least, "maximum": most})


# ---- the reconciler's check ---------------------------------------------------------------------


def check_form(object_: Object, constraints: Sequence[Constraint]) -> None:
    """Check the OpenAPI keywords of all rows, for any object. Call this function before the spec is
    decoded, so that the message has the words of the table.

    Raises: InvalidSpec for the first wrong field
    """
    for row in constraints:
        for path, value in _values(object_, row.field.split(".")):
            if not _holds(value, row.schema):
                problem = f"is {_text(value)}, but must be {row.rule}"
                raise InvalidSpec(path, problem, "correct it")


def check(job: JobForm, constraints: Sequence[Constraint]) -> None:
    """Check what the keywords cannot express. Raises: InvalidSpec for the first violation"""
    for row in constraints:
        row.check(job)


def _values(value: Any, segments: Sequence[str], path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, value) of each field that is there."""
    if not segments:
        if value is not None:
            yield path, value
        return
    entries = mapping(value)
    first, rest = segments[0], segments[1:]
    for key in entries if first == ANY else [first] if first in entries else []:
        # The user writes the type, of any length. The message of a condition has 1,024 characters.
        place = str(key) if len(str(key)) < 64 else shown(str(key))
        yield from _values(entries[key], rest, f"{path}.{place}" if path else place)


def _holds(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether the value keeps the keywords. As in OpenAPI, a keyword says nothing about a value of
    another type. The decoding of the spec refuses a wrong type.
    """
    return all(_TESTS[key](value, limit) for key, limit in schema.items() if key in _TESTS)


def _is_number(value: Any) -> bool:
    # In Python True is an integer, in JSON it is not a number.
    return isinstance(value, int) and not isinstance(value, bool)


_TESTS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "enum": lambda value, limit: not isinstance(value, str) or value in limit,
    "minimum": lambda value, limit: not _is_number(value) or value >= limit,
    "maximum": lambda value, limit: not _is_number(value) or value <= limit,
    # The API server finds a pattern anywhere in a text; with its own anchors both readers agree.
    "pattern": lambda value, limit: (
        not isinstance(value, str) or re.fullmatch(limit, value) is not None
    ),
    "minProperties": lambda value, limit: not isinstance(value, dict) or len(value) >= limit,
    "maxProperties": lambda value, limit: not isinstance(value, dict) or len(value) <= limit,
}


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return f"a map of {len(value)} entries"
    if isinstance(value, str):
        return shown(value)
    # str() of an integer with more than 4,300 digits raises an exception.
    return str(value) if abs(value) < 10**20 else "a number of more than 20 digits"


# ---- the other readers --------------------------------------------------------------------------


def keywords(constraints: Sequence[Constraint]) -> dict[str, Mapping[str, Any]]:
    """Field -> OpenAPI keywords."""
    return {row.field: row.schema for row in constraints if row.schema}


def validations(constraints: Sequence[Constraint]) -> tuple[Validation, ...]:
    return tuple(
        Validation(row.cel_field or row.field, row.cel, f"{row.field} must be {row.rule}")
        for row in constraints
        if row.cel
    )


def rows(constraints: Sequence[Constraint]) -> list[str]:
    """The lines of the table in Markdown."""
    return [f"| `{row.field}` | {row.rule} | {_checkers(row)} |" for row in constraints]


def _checkers(row: Constraint) -> str:
    checkers = (
        (bool(row.schema), "schema"),
        (bool(row.cel), "CEL"),
        # Users of an API server without CEL read in the table which rules still hold there.
        (row.is_checked, "GlobalManager"),
    )
    return ", ".join(name for is_so, name in checkers if is_so)
