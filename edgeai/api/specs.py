"""Reads a user's .spec into a struct. A wrong spec becomes a sentence that says what to correct.

The functions raise InvalidSpec and no other exception, whatever the spec contains.
"""

import re
from typing import Annotated, Any, Final, TypeVar

import msgspec

from edgeai.api.resources import Object
from edgeai.errors import EdgeAIError
from edgeai.ids import is_subdomain

S = TypeVar("S", bound=msgspec.Struct)

NonEmpty = Annotated[str, msgspec.Meta(min_length=1)]

_VALIDATION: Final = re.compile(r"(?P<problem>.*?)(?: - at `\$(?P<path>.*)`)?\Z", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(?P<field>.*)`\Z")
_DNS_1035_LABEL: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?\Z")
_MAX_SHOWN_CHARS: Final = 80


class InvalidSpec(EdgeAIError):
    """A field of the spec is wrong.

    Args:
        path: the field, for example "spec.edgeWorker.model.name"
        remedy: an imperative clause
    """

    def __init__(self, path: str, problem: str, remedy: str) -> None:
        self.path, self.problem, self.remedy = path, problem, remedy
        super().__init__(f"{path}: {problem}; {remedy}")


def parse(value: Any, type_: type[S], path: str = "spec") -> S:
    """Convert `value` to `type_`. Unknown fields are ignored.

    Raises: InvalidSpec for the first wrong field
    """
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        raise _explained(str(error), path) from error


def parse_spec(object_: Object, type_: type[S]) -> S:
    """The object's .spec, converted to `type_`. Raises: InvalidSpec"""
    return parse(object_.get("spec"), type_)


def _explained(text: str, root: str) -> InvalidSpec:
    parts = _VALIDATION.match(text)
    assert parts is not None  # the expression matches any text
    path = root + (parts["path"] or "")
    match = _MISSING.match(parts["problem"])
    if match:
        return InvalidSpec(f"{path}.{match['field']}", "is missing", "set it")
    return InvalidSpec(path, f"has the wrong form ({parts['problem']})", "correct it")


def shown(value: str) -> str:
    """A user's text for a message: in quotes, and cut to a bounded length."""
    text = value if len(value) <= _MAX_SHOWN_CHARS else value[:_MAX_SHOWN_CHARS] + "…"
    return repr(text)


def check_object_name(name: str, path: str, kind: str) -> None:
    """Raises: InvalidSpec unless `name` can be the name of an object of kind `kind`"""
    if not is_subdomain(name):
        remedy = "use lower-case letters, digits, '-' and '.'"
        raise InvalidSpec(path, f"{shown(name)} cannot be the name of a {kind}", remedy)


def check_service_name(name: str, suffix: str) -> None:
    """Raises: InvalidSpec unless `name` + `suffix` can be the name of a Service (a DNS label)"""
    limit = 63 - len(suffix)
    if len(name) > limit:
        problem = f"is {len(name)} characters long, too long for the Service {shown(name + suffix)}"
        remedy = f"create it anew under a name of at most {limit} characters"
        raise InvalidSpec("metadata.name", problem, remedy)
    if not _DNS_1035_LABEL.match(name):
        problem = f"{shown(name)} cannot begin the name of a Service"
        remedy = "create it anew under a name that starts with a letter and has no '.'"
        raise InvalidSpec("metadata.name", problem, remedy)
