"""The words by which people name kinds and jobs: "digits", "jis/digits", "fl.sedna.io/digits"."""

import difflib
from collections.abc import Mapping
from typing import Any, Final

from edgeai.api.resources import CONFIG_MAPS, SECRETS, Object, ResourceType
from edgeai.client.errors import InvalidObject, UnknownKind
from edgeai.client.objects import CLASSES, TYPES, AnyResource
from edgeai.client.strictness import check_head
from edgeai.errors import InvalidName
from edgeai.ids import is_subdomain

DATA: Final = (CONFIG_MAPS, SECRETS)
"""Types that jobs read, and that a file may have beside the jobs."""
_CLASSES: Final = {
    (type_.api_version, type_.kind): class_
    for class_ in CLASSES
    for type_ in class_.DEFINITION.types
}
"""(apiVersion, kind) of a document -> its class."""
_MAX_SHOWN_CHARS: Final = 80


def types_named(word: str, subject: str) -> tuple[ResourceType, ...]:
    """The types that a word means: a kind, plural, singular or short name, also with ".GROUP".

    Args: subject: where the word stands, for the error
    Raises: UnknownKind
    """
    name, _, group = word.lower().partition(".")
    types = tuple(
        type_
        for class_ in CLASSES
        for type_ in class_.DEFINITION.resources
        if name in _names(class_, type_) and group in ("", type_.group)
    )
    if not types:
        near = difflib.get_close_matches(name, kind_words(), n=1)
        meant = f" (did you mean {near[0]}?)" if near else ""
        raise UnknownKind(subject, word[:_MAX_SHOWN_CHARS], _all_words() + meant)
    return types


def kind_words() -> tuple[str, ...]:
    """Every kind in the form that a user types: "jis", "pytorchjob"."""
    return tuple(kind_word(type_.kind, type_.group).lower() for type_ in TYPES)


def _names(class_: type[AnyResource], type_: ResourceType) -> tuple[str, ...]:
    short = class_.DEFINITION.short_names.get(type_.group, ())
    return (class_.DEFINITION.singular, type_.plural, *short)


def kind_word(kind: str, group: str) -> str:
    """A short word that means this kind in this group alone: "jis", "ji", "PyTorchJob"."""
    for definition in (class_.DEFINITION for class_ in CLASSES):
        if definition.name == kind and definition.short_names:
            short = definition.short_names.get(group)
            return short[0] if short else f"{definition.singular}.{group}"
    return kind


def _all_words() -> str:
    """Every kind with its short names: "federatedlearningjob (flj, fl)"."""
    kinds = []
    for definition in (class_.DEFINITION for class_ in CLASSES):
        short = ", ".join(name for names in definition.short_names.values() for name in names)
        kinds.append(f"{definition.singular} ({short})" if short else definition.singular)
    return ", ".join(kinds)


def parse_job(text: str) -> tuple[tuple[ResourceType, ...], str]:
    """The types that may be meant, and the name: of "NAME" or "KIND/NAME".

    Raises: UnknownKind, InvalidName
    """
    word, has_kind, name = text.rpartition("/")
    if not is_subdomain(name):
        raise InvalidName("JOB", text[:_MAX_SHOWN_CHARS], "NAME or KIND/NAME, by the rules")
    return (types_named(word, f"JOB {text!r}") if has_kind else TYPES), name


def check_document(document: Any, subject: str) -> Object:
    """An object that `apply` can send.

    Args: subject: the place of the document, for the error: "document 2 of job.yaml"
    Raises: UnknownKind, InvalidObject
    """
    if not isinstance(document, Mapping):
        raise InvalidObject(
            subject, "the whole", "is not a mapping", "write apiVersion, kind, metadata"
        )
    if type_of_document(document) is None:
        full_name = f"{document.get('kind')} of {document.get('apiVersion')}"
        words = ", ".join(f"{type_.kind} of {type_.api_version}" for type_ in (*TYPES, *DATA))
        raise UnknownKind(subject, full_name[:_MAX_SHOWN_CHARS], words)
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    if not isinstance(name, str) or not is_subdomain(name):
        remedy = "use lower-case letters, digits, '-' and '.'"
        problem = "is missing" if name is None else f"{name!r} is no name"
        raise InvalidObject(subject, "metadata.name", problem, remedy)
    check_head(document, subject)
    return dict(document)


def type_of_document(document: Mapping[str, Any]) -> ResourceType | None:
    """The type of an object as a file has it; None for a kind that `apply` does not take."""
    head = _head(document)
    types = _CLASSES[head].DEFINITION.types if head in _CLASSES else DATA
    return next((type_ for type_ in types if (type_.api_version, type_.kind) == head), None)


def _head(document: Mapping[str, Any]) -> tuple[str, str]:
    return str(document.get("apiVersion")), str(document.get("kind"))


def resource(object_: Object) -> AnyResource:
    """The typed object of one that `apply_document` returns. Raises: UnknownKind"""
    if class_ := _CLASSES.get(_head(object_)):
        return class_(object_)
    raise UnknownKind("object", str(object_.get("kind"))[:_MAX_SHOWN_CHARS], _all_words())
