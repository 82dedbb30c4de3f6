"""Reads the objects in the API's answers, each apart: one that cannot be read spoils no other.

Called by `client`. A tenant may write a custom resource that nobody can decode, or that whoever
walks it falls over. Such an object comes out as Unreadable, with what can be had of its name.
"""

import re
from collections.abc import Iterable
from typing import Annotated, Any, Final

import msgspec

from globalmanager.contract import Object, ObjectRef, ResourceType
from globalmanager.kube import nesting

MAX_DEPTH: Final = 100
"""Levels of nesting in an object. A CRD's schema, the deepest thing in Kubernetes that people
write, has some 40. Python recurses to 1,000 levels: what walks, compares or encodes an object,
also as a part of another, stays far below."""
MAX_OBJECT_BYTES: Final = 2 * 1024 * 1024
"""Of an object as JSON. etcd takes 1.5 MiB; a built-in type is shorter there than as JSON."""

_UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_MAX_DETAIL_CHARS: Final = 200
_SEARCHED_BYTES: Final = 64 * 1024  # for the field that is too deep: some 6 ms
_EVENT_HEAD: Final = re.compile(rb'\s*{\s*"type"\s*:\s*"([A-Z]+)"\s*,\s*"object"\s*:')

NonEmpty = Annotated[str, msgspec.Meta(min_length=1)]


class Unreadable(msgspec.Struct, frozen=True):
    """An object that is left out, as far as its name can be told; "" is not known."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    problem: str
    """What is wrong with which field, and what to do."""

    def ref(self, type_: ResourceType) -> ObjectRef:
        return ObjectRef(type_, self.namespace, self.name)

    def stub(self, type_: ResourceType) -> Object:
        """So much of the object as is needed to say that it is gone, or to tell of it."""
        metadata = {
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
            "resourceVersion": self.resource_version,
        }
        return {"apiVersion": type_.api_version, "kind": type_.kind, "metadata": metadata}


class NotReadable(ValueError):
    """Its text is Unreadable.problem."""


class Page(msgspec.Struct, frozen=True):
    """One page of a list; the items as they are written."""

    resource_version: str
    continue_: str
    items: list[bytes]


class WatchEvent(msgspec.Struct, frozen=True):
    """One line of a watch; the object as it is written."""

    type: str
    object: bytes


# ---- one object ---------------------------------------------------------------------------------


def decode(document: bytes) -> Object:
    """A JSON object within the bounds, without the bookkeeping of field managers.

    Raises: NotReadable
    """
    if len(document) > MAX_OBJECT_BYTES:
        problem = f"it is larger than {MAX_OBJECT_BYTES} bytes of JSON: make it smaller"
        raise NotReadable(problem)
    try:
        object_ = _decoder.decode(document)
    except RecursionError as error:
        raise NotReadable(_too_deep(document)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        detail = str(error)[:_MAX_DETAIL_CHARS]
        raise NotReadable(f"it cannot be decoded ({detail}): write it anew") from error
    metadata = object_.get("metadata")
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)  # half of a pod's memory, read by nobody
    if _is_too_deep(object_):
        raise NotReadable(_too_deep(document))
    return object_


def read(document: bytes) -> Object | Unreadable:
    """An object of a list or a watch, with the metadata that everybody here relies on."""
    try:
        object_ = decode(document)
        _check_metadata(object_)
    except NotReadable as error:
        return _unreadable(document, str(error))
    return object_


def _is_too_deep(object_: Object) -> bool:
    """Level by level, without recursion."""
    level: list[Any] = [object_]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) is dict or type(inner) is list
        ]
        if not level:
            return False
    return True


def _too_deep(document: bytes) -> str:
    where = nesting.deeper_than(document[:_SEARCHED_BYTES], MAX_DEPTH) or "some field"
    return f"{where} is nested deeper than {MAX_DEPTH} levels: make it flatter"


class _Owner(msgspec.Struct):
    uid: NonEmpty
    kind: str = ""
    name: str = ""
    api_version: str = msgspec.field(default="", name="apiVersion")
    controller: bool | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    """The form that the API server gives to ObjectMeta, of any type."""

    name: NonEmpty
    uid: NonEmpty
    resource_version: NonEmpty
    namespace: str = ""
    generation: int = 0
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None


class _Identified(msgspec.Struct):
    metadata: _Metadata


def _check_metadata(object_: Object) -> None:
    """Raises: NotReadable"""
    try:
        msgspec.convert(object_, _Identified)
    except msgspec.ValidationError as error:
        problem = f"metadata has the wrong form ({str(error)[:_MAX_DETAIL_CHARS]}): correct it"
        raise NotReadable(problem) from error


_NAMING: Final = ("namespace", "name", "uid", "resourceVersion")


def _unreadable(document: bytes, problem: str) -> Unreadable:
    metadata = _members(document, ["metadata"]).get("metadata", b"")
    found = _members(metadata, _NAMING)
    namespace, name, uid, version = (_text(found.get(field, b"")) for field in _NAMING)
    return Unreadable(namespace, name, uid, version, problem)


def _members(document: bytes, names: Iterable[str]) -> dict[str, bytes]:
    """Those of the names that are there; what follows the last of them is not looked at."""
    missing = set(names)
    found: dict[str, bytes] = {}
    for name, value in nesting.members(document):
        if name in missing:
            missing.discard(name)
            found[name] = value
            if not missing:
                break
    return found


def _text(value: bytes) -> str:
    try:
        return msgspec.json.decode(value, type=str)
    except _UNDECODABLE:
        return ""


# ---- what holds objects -------------------------------------------------------------------------


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct):
    """Decoding one costs a twentieth of what decoding its items does."""

    items: list[msgspec.Raw] | None = None
    metadata: _ListMeta | None = None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


_decoder: Final = msgspec.json.Decoder(dict[str, Any])
_page_decoder: Final = msgspec.json.Decoder(_Page)
_list_meta_decoder: Final = msgspec.json.Decoder(_ListMeta)
_event_decoder: Final = msgspec.json.Decoder(_Event)


def read_page(body: bytes) -> Page:
    """A page of a list of which every item can be passed over. Raises: NotReadable"""
    try:
        page = _page_decoder.decode(body)
    except _UNDECODABLE as error:
        raise NotReadable(f"the answer is no list: {error}") from error
    metadata = page.metadata or _ListMeta()
    items = [bytes(item) for item in page.items or ()]
    return Page(metadata.resource_version, metadata.continue_, items)


def take_page_apart(body: bytes) -> Page:
    """What `read_page` gives, of any page; some 100 ms for each MiB. Raises: NotReadable"""
    found = _members(body, ["metadata", "items"])
    try:
        metadata = _list_meta_decoder.decode(found["metadata"])
    except (KeyError, *_UNDECODABLE) as error:
        raise NotReadable("the answer is no list") from error
    items = list(nesting.elements(found.get("items", b"")))
    return Page(metadata.resource_version, metadata.continue_, items)


def read_event(line: bytes) -> WatchEvent:
    """Raises: NotReadable, when it is not even the frame of one"""
    try:
        event = _event_decoder.decode(line)
    except _UNDECODABLE as error:
        # The object is what cannot be passed over, or was cut off. Servers write it last.
        head = _EVENT_HEAD.match(line)
        if head is None:
            raise NotReadable(f"a line that is no watch event: {error}") from error
        return WatchEvent(head[1].decode(), line[head.end() :].removesuffix(b"}"))
    return WatchEvent(event.type, bytes(event.object))
