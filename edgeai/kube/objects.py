"""Reads each object of the API's answers separately, so that a bad object does not harm the others.

A tenant may write a custom resource that the library cannot decode. A tenant may also write a
resource so deep that the code which walks it would fail. Such an object becomes an Unreadable, with
the parts of its name that can be found.
"""

import asyncio
import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Final

import msgspec

from edgeai.api.resources import Object, ObjectRef, ResourceType
from edgeai.kube import nesting

MAX_DEPTH: Final = 100
"""Largest number of nesting levels in an object. A CRD's schema, the deepest object that people
write, has about 40 levels. Python recurses to 1,000 levels, so code can safely walk, compare and
encode an object of this depth, also as a part of another object."""
MAX_OBJECT_BYTES: Final = 2 * 1024 * 1024
"""Largest size of an object as JSON, in bytes. etcd accepts 1.5 MiB. etcd stores built-in types in
a shorter form than JSON."""

_UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_MAX_DETAIL_CHARS: Final = 200
# the search for a too deep field covers these bytes, in about 6 ms
_SEARCHED_BYTES: Final = 64 * 1024
# decoded before other tasks get a turn, in about 20 ms
_TURN_BYTES: Final = 256 * 1024
_EVENT_HEAD: Final = re.compile(rb'\s*{\s*"type"\s*:\s*"([A-Z]+)"\s*,\s*"object"\s*:')

Buffer = bytes | bytearray
NonEmpty = Annotated[str, msgspec.Meta(min_length=1)]


class Unreadable(msgspec.Struct, frozen=True):
    """An object that cannot be read. A field is "" when its value cannot be found."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    problem: str
    """Which field is wrong, what is wrong with it, and what to do."""

    def ref(self, type_: ResourceType) -> ObjectRef:
        return ObjectRef(type_, self.namespace, self.name)

    def stub(self, type_: ResourceType) -> Object:
        """An object with only these metadata, for the store and for events about the object."""
        metadata = {
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
            "resourceVersion": self.resource_version,
        }
        return {"apiVersion": type_.api_version, "kind": type_.kind, "metadata": metadata}


class NotReadable(ValueError):
    """A document cannot be read. The text of the error becomes `Unreadable.problem`."""


class Page(msgspec.Struct, frozen=True):
    """One page of a list. The items are JSON texts."""

    resource_version: str
    continue_: str
    items: list[bytes]
    size: int = 0
    """Bytes of the page."""


Form = Callable[[bytes], Object]
"""Decodes the fields of an object that the program reads, and skips over all others. Raises:
msgspec.DecodeError, UnicodeDecodeError, RecursionError"""


class WatchEvent(msgspec.Struct, frozen=True):
    """One line of a watch. The object is a JSON text."""

    type: str
    object: bytes


# ---- one object ---------------------------------------------------------------------------------


def decode(document: bytes, form: Form | None = None) -> Object:
    """A JSON object within the limits of size and depth.

    Of metadata.managedFields only one thing is left: the version in which the spec of a custom
    resource was first written, where the object has another version.

    Args: form: decodes the fields that are read; None: all fields
    Raises: NotReadable
    """
    if len(document) > MAX_OBJECT_BYTES:
        problem = f"it is larger than {MAX_OBJECT_BYTES} bytes of JSON: make it smaller"
        raise NotReadable(problem)
    try:
        object_ = _decoder.decode(document) if form is None else form(document)
    except RecursionError as error:
        raise NotReadable(_too_deep(document)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        detail = str(error)[:_MAX_DETAIL_CHARS]
        raise NotReadable(f"it cannot be decoded ({detail}): write it anew") from error
    metadata = object_.get("metadata")
    if isinstance(metadata, dict):
        # this field is half of a pod's memory
        written_in = _spec_version(metadata.pop("managedFields", None))
        if written_in and written_in != object_.get("apiVersion"):
            metadata["managedFields"] = [{"apiVersion": written_in, "fieldsV1": {"f:spec": {}}}]
    if is_too_deep(object_):
        raise NotReadable(_too_deep(document))
    return object_


def _spec_version(managers: Any) -> str:
    """The apiVersion in which the spec of a custom resource was first written; "" if unknown."""
    for entry in managers if isinstance(managers, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("fieldsV1"), dict):
            group, _, version = str(entry.get("apiVersion", "")).partition("/")
            is_custom = version and "." in group and not group.endswith(".k8s.io")
            if is_custom and "f:spec" in entry["fieldsV1"]:
                return f"{group}/{version}"
    return ""


def read(document: bytes, form: Form | None = None) -> Object | Unreadable:
    """An object of a list or a watch, or Unreadable. The metadata of an object have the right
    form.

    Args: form: as in `decode`
    """
    try:
        object_ = decode(document, form)
        _check_metadata(object_)
    except NotReadable as error:
        return _unreadable(document, str(error))
    return object_


class CheckedDict(dict[str, Any]):
    """A part of an object that is not too deep. The check of the whole object leaves it out."""

    __slots__ = ("__weakref__",)


def is_too_deep(object_: Object, levels: int = MAX_DEPTH) -> bool:
    """Whether the object has more levels. The function walks level by level, without recursion."""
    level: list[Any] = [object_]
    for _ in range(levels):
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
    """The form of ObjectMeta that the API server guarantees for every type."""

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
    texts = _members(metadata, _NAMING)
    namespace, name, uid, version = (_text(texts.get(field, b"")) for field in _NAMING)
    return Unreadable(namespace, name, uid, version, problem)


def _members(document: bytes, names: Iterable[str]) -> dict[str, bytes]:
    """Name -> value of each wanted member of the object. The scan stops after the last wanted
    member.
    """
    absent = set(names)
    values: dict[str, bytes] = {}
    for name, value in nesting.members(document):
        if name in absent:
            absent.discard(name)
            values[name] = value
            if not absent:
                break
    return values


def _text(value: bytes) -> str:
    try:
        return msgspec.json.decode(value, type=str)
    except _UNDECODABLE:
        return ""


# ---- pages and events ---------------------------------------------------------------------------


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct):
    """A page with undecoded items. It decodes twenty times as fast as a page with decoded
    objects.
    """

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
    """A page of a list. The JSON library must be able to skip over every item. Raises:
    NotReadable
    """
    page, items = _split_page(body)
    return msgspec.structs.replace(page, items=[bytes(item) for item in items])


def _split_page(body: Buffer) -> tuple[Page, list[msgspec.Raw]]:
    """The page without items, and its items, which share the memory of `body`. Raises:
    NotReadable
    """
    try:
        page = _page_decoder.decode(body)
    except _UNDECODABLE as error:
        raise NotReadable(f"the answer is no list: {error}") from error
    metadata = page.metadata or _ListMeta()
    return Page(metadata.resource_version, metadata.continue_, [], len(body)), page.items or []


def scan_page(body: bytes) -> Page:
    """A page of a list with items of any depth. The scan takes about 100 ms for each MiB. Raises:
    NotReadable
    """
    parts = _members(body, ["metadata", "items"])
    try:
        metadata = _list_meta_decoder.decode(parts["metadata"])
    except (KeyError, *_UNDECODABLE) as error:
        raise NotReadable("the answer is no list") from error
    items = list(nesting.elements(parts.get("items", b"")))
    return Page(metadata.resource_version, metadata.continue_, items, len(body))


def read_event(line: bytes) -> WatchEvent:
    """The event in one line of a watch. The object of the event may be unreadable.

    Raises: NotReadable when the line is not a watch event
    """
    try:
        event = _event_decoder.decode(line)
    except _UNDECODABLE as error:
        # The object is too deep or was cut off. It is the last member of the event.
        head = _EVENT_HEAD.match(line)
        if head is None:
            raise NotReadable(f"a line that is no watch event: {error}") from error
        return WatchEvent(head[1].decode(), line[head.end() :].removesuffix(b"}"))
    return WatchEvent(event.type, bytes(event.object))


async def items_of(
    body: Buffer, form: Form | None = None
) -> tuple[Page, list[Object | Unreadable]]:
    """The page without its JSON texts, and its objects.

    Args: form: as in `decode`
    Raises: NotReadable
    """
    try:
        page, documents = _split_page(body)
    except NotReadable:
        # `scan_page` is slow. In a thread, `scan_page` does not block the event loop and the
        # sessions.
        return await asyncio.to_thread(_scan_items, bytes(body), form)
    items: list[Object | Unreadable] = []
    read_bytes = 0
    for raw in documents:
        document = bytes(raw)
        items.append(read(document, form))
        read_bytes += len(document)
        if read_bytes >= _TURN_BYTES:  # let the sessions and the Lease have their turn
            read_bytes = 0
            await asyncio.sleep(0)
    return page, items


def _scan_items(body: bytes, form: Form | None) -> tuple[Page, list[Object | Unreadable]]:
    page = scan_page(body)
    return page, [read(item, form) for item in page.items]
