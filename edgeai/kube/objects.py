"""Reads each object of the API's answers separately, so that a bad object does not harm the others.

A tenant may write a custom resource that the library cannot decode. A tenant may also write a
resource so deep that the code which walks it would fail. Such an object becomes an Unreadable, with
the parts of its name that can be found.
"""

import asyncio
import re
from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec

from edgeai.api.resources import Object, ObjectRef, ResourceType

MAX_DEPTH: Final = 100
"""Largest number of nesting levels in an object. A CRD's schema, the deepest object that people
write, has about 40 levels. Python recurses to 1,000 levels, so code can safely walk, compare and
encode an object of this depth, also as a part of another object."""
MAX_OBJECT_BYTES: Final = 2 * 1024 * 1024
"""Of an object as JSON. etcd accepts 1.5 MiB, and of built-in types in a shorter form than JSON."""

_UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_MAX_DETAIL_CHARS: Final = 200
# the search for a too deep field, and first for a name, covers these bytes, in about 10 ms
_SEARCHED_BYTES: Final = 64 * 1024
# decoded before other tasks get a turn, in about 20 ms
_TURN_BYTES: Final = 256 * 1024
_EVENT_HEAD: Final = re.compile(rb'\s*{\s*"type"\s*:\s*"([A-Z]+)"\s*,\s*"object"\s*:')
# Matches a bracket, a comma, or a string that is closed or cut off. The possessive quantifiers (*+)
# keep no memory for backtracking.
_TOKEN: Final = re.compile(
    rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[{}\[\],]',
    re.DOTALL,
)
_CLOSING: Final = {b"{": b"}", b"[": b"]"}
_MAX_NAMES: Final = 6
_MAX_NAME_CHARS: Final = 64

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


Form = Callable[[bytes], Object]
"""Decodes the fields of an object that the program reads, and skips over all others. Raises:
msgspec.DecodeError, UnicodeDecodeError, RecursionError"""


class Page(msgspec.Struct, rename="camel"):
    """The metadata of one page of a list."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class WatchEvent(msgspec.Struct, frozen=True):
    """One line of a watch. The object is a JSON text."""

    type: str
    object: msgspec.Raw


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


def read(text: bytes | msgspec.Raw, form: Form | None = None) -> Object | Unreadable:
    """An object of a list or a watch, or Unreadable. Its metadata have the right form.

    Args: form: as in `decode`
    """
    document = bytes(text)
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
    try:
        names = _deep_names(
            msgspec.json.decode(_flattened(document[:_SEARCHED_BYTES], MAX_DEPTH)), MAX_DEPTH
        )
    except _UNDECODABLE:
        names = None
    where = f"{'.'.join(filter(None, names[:_MAX_NAMES]))}…" if names else "some field"
    return f"{where} is nested deeper than {MAX_DEPTH} levels: make it flatter"


def _deep_names(value: Any, levels: int) -> list[str] | None:
    """The names on the way to the first part that is nested deeper than `levels`, "" for an item of
    an array, each of limited length; None when no part is so deep.
    """
    if not isinstance(value, dict | list):
        return None
    if levels == 0:
        return []
    for name, inner in value.items() if isinstance(value, dict) else (("", i) for i in value):
        names = _deep_names(inner, levels - 1)
        if names is not None:
            return [name[:_MAX_NAME_CHARS], *names]
    return None


def _flattened(document: bytes, levels: int) -> bytes:
    """The document for a library that recurses: what is nested deeper than `levels` is an empty
    object or array, and what was cut off is closed after its last whole member.

    The scan does not recurse. It takes about 110 ms for each MiB, so only documents that the
    library could not decode are scanned. For other input than JSON the result is no JSON either.
    """
    parts: list[bytes] = []
    ends: list[bytes] = []  # the brackets that close the open ones
    start = 0  # of the text that is not in `parts` yet
    whole, depth = 0, 0  # where a document that was cut off can be closed, and how many brackets
    for token in _TOKEN.finditer(document):
        text = token[0]
        if text in _CLOSING:
            ends.append(_CLOSING[text])
            if len(ends) == levels + 1:
                parts.append(document[start : token.end()])
                start = token.end()
        elif text in b"}]":
            if len(ends) == levels + 1:
                start = token.start()
            if not ends or ends.pop() != text:
                break
        if text[:1] != b'"' and (len(ends) <= levels or start == token.end()):
            whole = token.start() if text == b"," else token.end()
            depth = len(ends)
    if not ends:
        return b"".join((*parts, document[start:]))
    return b"".join((*parts, document[start:whole], *reversed(ends[:depth])))


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


class _Naming(msgspec.Struct, rename="camel"):
    """Each value as JSON text, because a value may have any type."""

    namespace: msgspec.Raw = msgspec.Raw()
    name: msgspec.Raw = msgspec.Raw()
    uid: msgspec.Raw = msgspec.Raw()
    resource_version: msgspec.Raw = msgspec.Raw()


class _NamedObject(msgspec.Struct):
    metadata: _Naming


def _unreadable(document: bytes, problem: str) -> Unreadable:
    # The managed fields may be long, and stand before the name.
    for size in (_SEARCHED_BYTES, len(document)):
        try:
            metadata = _naming_decoder.decode(_flattened(document[:size], 2)).metadata
        except _UNDECODABLE:
            metadata = _Naming()
        if metadata.name:
            break
    values = (metadata.namespace, metadata.name, metadata.uid, metadata.resource_version)
    namespace, name, uid, version = map(_text, values)
    return Unreadable(namespace, name, uid, version, problem)


def _text(value: msgspec.Raw) -> str:
    try:
        return msgspec.json.decode(value, type=str)
    except _UNDECODABLE:
        return ""


# ---- pages and events ---------------------------------------------------------------------------


class _List(msgspec.Struct):
    """A page with undecoded items. It decodes twenty times as fast as one with decoded objects."""

    items: list[msgspec.Raw] | None = None
    metadata: Page | None = None


_decoder: Final = msgspec.json.Decoder(dict[str, Any])
_page_decoder: Final = msgspec.json.Decoder(_List)
_naming_decoder: Final = msgspec.json.Decoder(_NamedObject)
_event_decoder: Final = msgspec.json.Decoder(WatchEvent)


def _split_page(body: Buffer) -> tuple[Page, list[msgspec.Raw]]:
    """The page, and its items, which share the memory of `body`. Raises: NotReadable"""
    try:
        page = _page_decoder.decode(body)
    except _UNDECODABLE as error:
        raise NotReadable(f"the answer is no list: {error}") from error
    return page.metadata or Page(), page.items or []


def read_event(line: bytes) -> WatchEvent:
    """The event in one line of a watch. The object of the event may be unreadable.

    Raises: NotReadable when the line is not a watch event
    """
    try:
        return _event_decoder.decode(line)
    except _UNDECODABLE as error:
        # The object is too deep or was cut off. It is the last member of the event.
        head = _EVENT_HEAD.match(line)
        if head is None:
            raise NotReadable(f"a line that is no watch event: {error}") from error
        rest = line[head.end() :].removesuffix(b"}")
        return WatchEvent(head[1].decode(), msgspec.Raw(rest))


async def items_of(
    body: Buffer, form: Form | None = None
) -> tuple[Page, list[Object | Unreadable]]:
    """The page, and its objects.

    Args: form: as in `decode`
    Raises: NotReadable
    """
    try:
        page, documents = _split_page(body)
    except NotReadable:
        # An item may be too deep; its empty parts still are, as items are two levels lower. The
        # scan is slow. In a thread, it does not block the event loop and the sessions.
        page, documents = _split_page(
            await asyncio.to_thread(_flattened, bytes(body), MAX_DEPTH + 2)
        )
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
