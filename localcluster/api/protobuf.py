"""Reads the protobuf request bodies that kubectl sends for a few kinds.

`kubectl create namespace|configmap|secret|serviceaccount|deployment|service` and `auth can-i` post
protobuf and do not fall back to JSON. Used by `requests`; other kinds are refused, and of pods and
Services only those fields are known that these commands set. Answers are JSON always.

Source: the wire format of protocol buffers; field numbers of k8s.io/api (generated.proto).
"""

import base64
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from localcluster import clock
from localcluster.objects import errors
from localcluster.objects.resources import Object

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZES = {_FIXED64: 8, _FIXED32: 4}


class _Field(msgspec.Struct, frozen=True):
    """One field of a message: its JSON name and how its value is read."""

    name: str
    read: Callable[[Any], Any]
    repeated: bool = False


_Message = dict[int, _Field]


def decode(body: bytes) -> Object:
    """The object in a `k8s` envelope.

    Raises: errors.BadRequest for bytes that are none; errors.UnsupportedMediaType for a kind
        that is not understood in this form
    """
    if not body.startswith(_MAGIC):
        raise errors.BadRequest("the body is not a Kubernetes protobuf message")
    try:
        unknown = _decode(body[len(_MAGIC) :], _UNKNOWN)
        head = unknown.get("typeMeta", {})
        message = _MESSAGES.get(head.get("kind", ""))
        if message is None:
            raise errors.UnsupportedMediaType(
                f"{head.get('kind')} is not understood as protobuf: send JSON"
                " (with kubectl: create -f instead of create <kind>)"
            )
        return {**head, **_decode(unknown.get("raw", b""), message)}
    except (ValueError, IndexError, TypeError) as error:
        raise errors.BadRequest("the body is not a valid protobuf message") from error


def _decode(data: bytes, message: _Message) -> Object:
    result: Object = {}
    for number, value in _fields(data):
        field = message.get(number)
        if field is None:
            continue
        read = field.read(value)
        if isinstance(read, _Entry):
            result.setdefault(field.name, {})[read.key] = read.value
        elif field.repeated:
            result.setdefault(field.name, []).append(read)
        elif read not in ("", None, {}):
            result[field.name] = read
    return result


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Field numbers and raw values: int for varints, bytes for the rest."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        wire_type = tag & 7
        if wire_type == _VARINT:
            value, position = _varint(data, position)
            yield tag >> 3, value
            continue
        if wire_type == _BYTES:
            size, position = _varint(data, position)
        elif wire_type in _FIXED_SIZES:
            size = _FIXED_SIZES[wire_type]
        else:
            raise ValueError(f"wire type {wire_type}")
        if position + size > len(data):
            raise ValueError("message is cut off")
        yield tag >> 3, data[position : position + size]
        position += size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise ValueError("varint is too long")


class _Entry(msgspec.Struct, frozen=True):
    """One entry of a map field."""

    key: str
    value: str


def _text(value: bytes) -> str:
    return value.decode()


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _message(message: _Message) -> Callable[[bytes], Object]:
    return lambda value: _decode(value, message)


def _map(read: Callable[[bytes], str]) -> Callable[[bytes], _Entry]:
    entry: _Message = {1: _Field("key", _text), 2: _Field("value", read)}

    def read_entry(value: bytes) -> _Entry:
        pair = _decode(value, entry)
        return _Entry(pair.get("key", ""), pair.get("value", ""))

    return read_entry


def _time(value: bytes) -> str | None:
    """The zero time, in which clients leave creationTimestamp, is absent."""
    seconds = _decode(value, {1: _Field("seconds", int)}).get("seconds", 0)
    if not 0 < seconds < 1 << 40:
        return None
    return clock.rfc3339(clock.from_unix(seconds))


def _int_or_string(value: bytes) -> int | str | None:
    read = _decode(value, {2: _Field("number", int), 3: _Field("text", _text)})
    number: int | None = read.get("number") or None
    text: str | None = read.get("text")
    return text or number


_TYPE_META: _Message = {1: _Field("apiVersion", _text), 2: _Field("kind", _text)}
_UNKNOWN: _Message = {1: _Field("typeMeta", _message(_TYPE_META)), 2: _Field("raw", bytes)}
_OWNER: _Message = {
    1: _Field("kind", _text),
    3: _Field("name", _text),
    4: _Field("uid", _text),
    5: _Field("apiVersion", _text),
    6: _Field("controller", bool),
    7: _Field("blockOwnerDeletion", bool),
}
_OBJECT_META: _Message = {
    1: _Field("name", _text),
    2: _Field("generateName", _text),
    3: _Field("namespace", _text),
    5: _Field("uid", _text),
    6: _Field("resourceVersion", _text),
    8: _Field("creationTimestamp", _time),
    11: _Field("labels", _map(_text)),
    12: _Field("annotations", _map(_text)),
    13: _Field("ownerReferences", _message(_OWNER), repeated=True),
    14: _Field("finalizers", _text, repeated=True),
}
_METADATA = _Field("metadata", _message(_OBJECT_META))
_NAMED: _Message = {1: _Field("name", _text)}
_RESOURCE_ATTRIBUTES: _Message = {
    1: _Field("namespace", _text),
    2: _Field("verb", _text),
    3: _Field("group", _text),
    4: _Field("version", _text),
    5: _Field("resource", _text),
    6: _Field("subresource", _text),
    7: _Field("name", _text),
}
_REVIEW_SPEC: _Message = {
    1: _Field("resourceAttributes", _message(_RESOURCE_ATTRIBUTES)),
    2: _Field(
        "nonResourceAttributes", _message({1: _Field("path", _text), 2: _Field("verb", _text)})
    ),
}
_SELECTOR: _Message = {1: _Field("matchLabels", _map(_text))}
_CONTAINER: _Message = {
    1: _Field("name", _text),
    2: _Field("image", _text),
    3: _Field("command", _text, repeated=True),
    4: _Field("args", _text, repeated=True),
    6: _Field(
        "ports",
        _message({1: _Field("name", _text), 3: _Field("containerPort", int)}),
        repeated=True,
    ),
}
_TEMPLATE: _Message = {
    1: _METADATA,
    2: _Field("spec", _message({2: _Field("containers", _message(_CONTAINER), repeated=True)})),
}
_DEPLOYMENT_SPEC: _Message = {
    1: _Field("replicas", int),
    2: _Field("selector", _message(_SELECTOR)),
    3: _Field("template", _message(_TEMPLATE)),
}
_SERVICE_PORT: _Message = {
    1: _Field("name", _text),
    2: _Field("protocol", _text),
    3: _Field("port", int),
    4: _Field("targetPort", _int_or_string),
    5: _Field("nodePort", int),
}
_SERVICE_SPEC: _Message = {
    1: _Field("ports", _message(_SERVICE_PORT), repeated=True),
    2: _Field("selector", _map(_text)),
    3: _Field("clusterIP", _text),
    4: _Field("type", _text),
    10: _Field("externalName", _text),
}
_MESSAGES: dict[str, _Message] = {
    "Deployment": {1: _METADATA, 2: _Field("spec", _message(_DEPLOYMENT_SPEC))},
    "Service": {1: _METADATA, 2: _Field("spec", _message(_SERVICE_SPEC))},
    "Namespace": {1: _METADATA},
    "ConfigMap": {
        1: _METADATA,
        2: _Field("data", _map(_text)),
        3: _Field("binaryData", _map(_base64)),
        4: _Field("immutable", bool),
    },
    "Secret": {
        1: _METADATA,
        2: _Field("data", _map(_base64)),
        3: _Field("type", _text),
        4: _Field("stringData", _map(_text)),
        5: _Field("immutable", bool),
    },
    "ServiceAccount": {
        1: _METADATA,
        3: _Field("imagePullSecrets", _message(_NAMED), repeated=True),
        4: _Field("automountServiceAccountToken", bool),
    },
    "SelfSubjectAccessReview": {1: _METADATA, 2: _Field("spec", _message(_REVIEW_SPEC))},
}
