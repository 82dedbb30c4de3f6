"""What an installation remembers of itself: a Secret in its namespace.

It holds the values and the rendering that are applied now, those of before, and the names of all
objects that the installation may have made. It is written before anything else is applied, so that
a command that was killed is taken up where it ended. It holds no keys. It is a Secret because who
may write it chooses what the next `edgeai rollback` applies.
"""

import base64
import binascii
import zlib
from typing import Any, Final

import msgspec

from edgeai.api.resources import Object
from edgeai.cli.install.cluster import Cluster, Name
from edgeai.cli.install.errors import InstallError

SECRET: Final = "edgeai-installation"
TYPE: Final = "edgeai.io/installation"
FORMAT: Final = 1
_KEY: Final = "record"
MAX_BYTES: Final = 512 * 1024
"""Largest size of the record, compressed. A Secret may have 1 MiB. All of deploy/ takes 5 KiB."""
_MAX_PLAIN_BYTES: Final = 16 * 1024 * 1024


class Revision(msgspec.Struct, frozen=True):
    """One rendering. `number` counts the renderings of this installation from 1."""

    number: int
    version: str
    values: dict[str, Any]
    objects: list[Object]


class Record(msgspec.Struct, frozen=True):
    current: Revision
    previous: Revision | None = None
    is_complete: bool = False
    """Whether all of `current` was applied and became ready."""
    inventory: tuple[Name, ...] = ()
    """All objects that may have been made and not been removed since."""
    format: int = FORMAT


def name(namespace: str) -> Name:
    return Name("v1", "Secret", namespace, SECRET)


async def load(cluster: Cluster) -> Record | None:
    """None when nothing was installed. Raises: InstallError when it cannot be read"""
    found = await cluster.find(name(cluster.namespace))
    if found is None:
        return None
    try:
        return decode((found.get("data") or {})[_KEY])
    except (KeyError, ValueError, zlib.error, binascii.Error, RecursionError) as error:
        raise InstallError(
            f"Secret {cluster.namespace}/{SECRET} cannot be read "
            f"({type(error).__name__}: {error}); it is of a newer version, or broken: delete it, "
            "and type: edgeai install --apply --adopt"
        ) from error


async def save(cluster: Cluster, record: Record) -> None:
    """Raises: InstallError"""
    metadata = {"name": SECRET, "namespace": cluster.namespace}
    await cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata,
            "type": TYPE,
            "data": {_KEY: encode(record)},
        }
    )


def encode(record: Record) -> str:
    """As text of a Secret's data. Raises: InstallError when it is too large"""
    packed = zlib.compress(msgspec.json.encode(record), 9)
    if len(packed) > MAX_BYTES:
        raise InstallError(
            f"the record of the installation has {len(packed)} bytes, more than a Secret keeps"
        )
    return base64.b64encode(packed).decode()


def decode(text: str) -> Record:
    """Raises: ValueError, zlib.error and others for what `encode` has not made"""
    unpacking = zlib.decompressobj()
    plain = unpacking.decompress(base64.b64decode(text, validate=True), _MAX_PLAIN_BYTES)
    if unpacking.unconsumed_tail:
        raise ValueError(f"it has more than {_MAX_PLAIN_BYTES} bytes")
    format_ = msgspec.json.decode(plain, type=_Format).format
    if format_ != FORMAT:
        raise ValueError(f"it has format {format_}, and this version knows {FORMAT}")
    return msgspec.json.decode(plain, type=Record)


class _Format(msgspec.Struct, frozen=True):
    format: int
