"""The keys with which Datasets in S3 are read: files that the operator puts on the node.

They are named as the keys of the Secret that workers get: ACCESS_KEY_ID, SECRET_ACCESS_KEY and,
off AWS, S3_ENDPOINT_URL; with S3_REGION where that is not us-east-1. Without a credentialName, or
with no more than an S3_ENDPOINT_URL, nothing is signed.
"""

from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from common.ids import is_subdomain
from localcontroller.hooks.sources import SourceError

DEFAULT_REGION: Final = "us-east-1"
MAX_KEY_BYTES: Final = 4096


class Keys(msgspec.Struct, frozen=True):
    """What a bucket wants to see; the empty ones: nothing, for a bucket that all may read."""

    access: str = ""
    secret: str = ""
    endpoint: str = ""
    region: str = DEFAULT_REGION

    def __repr__(self) -> str:
        return f"Keys(endpoint={self.endpoint!r}, region={self.region!r})"


class KeyDirectory:
    """Where keys are: `<root>/<namespace>/<credentialName>/<file>`. None: nowhere.

    Or `<root>/<namespace>.<credentialName>.<file>`, since a mounted Secret has no directories;
    neither a namespace nor the name of a file has a dot.
    """

    def __init__(self, root: Path | None) -> None:
        self._root = root

    def read(self, namespace: str, name: str) -> Keys:
        """Raises: SourceError, which quotes nothing of a file"""
        if not name:
            return Keys()
        if not (is_subdomain(namespace) and is_subdomain(name)):
            raise SourceError("NoCredential", f"spec.credentialName: {name[:64]!r} is no name")
        if self._root is None:
            raise SourceError(
                "NoCredential",
                f"spec.credentialName: this node holds no keys of {name}; "
                "give its LocalController --credentials-dir",
            )
        file = partial(_file, self._root, namespace, name)
        endpoint = _key(file("S3_ENDPOINT_URL"), is_optional=True)
        access = _key(file("ACCESS_KEY_ID"), is_optional=bool(endpoint))
        return Keys(
            access=access,
            secret=_key(file("SECRET_ACCESS_KEY"), is_optional=not access),
            endpoint=endpoint if "://" in endpoint or not endpoint else f"https://{endpoint}",
            region=_key(file("S3_REGION"), is_optional=True) or DEFAULT_REGION,
        )


def _file(root: Path, namespace: str, name: str, key: str) -> Path:
    flat = root / f"{namespace}.{name}.{key}"
    return flat if flat.exists() else root / namespace / name / key


def _key(file: Path, *, is_optional: bool = False) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(MAX_KEY_BYTES).decode("ascii").strip()
    except FileNotFoundError as error:
        if is_optional:
            return ""
        problem = error.strerror
    except OSError as error:
        problem = error.strerror
    except UnicodeDecodeError:  # not chained: it quotes what it could not decode
        problem = "it is not ASCII"
    raise SourceError("NoCredential", f"spec.credentialName: {file} on this node: {problem}")
