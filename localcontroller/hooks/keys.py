"""Reads the keys for Datasets in S3 from files that the operator puts on the node.

The files have the names that the Secret of the workers uses: ACCESS_KEY_ID, SECRET_ACCESS_KEY,
S3_ENDPOINT_URL (only for servers other than AWS) and S3_REGION (if not us-east-1). Requests are not
signed if the Dataset has no credentialName, or if S3_ENDPOINT_URL is the only file.
"""

from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from edgeai.buckets import DEFAULT_REGION, BucketKeys, endpoint_url
from edgeai.ids import is_subdomain
from localcontroller.hooks.sources import SourceError

MAX_KEY_BYTES: Final = 4096


class KeyFiles(NamedTuple):
    """Where this node has the keys of one bucket: files `<root>/<namespace>/<name>/<file>`.

    A file `<root>/<namespace>.<name>.<file>` comes first, because a mounted Secret has no
    directories. This name is unique: neither a namespace nor `<file>` contains a dot.
    """

    root: Path | None
    """None: this node has no keys."""
    namespace: str
    name: str
    """credentialName"""

    def read(self) -> BucketKeys:
        """Raises: SourceError, which never quotes the content of a file"""
        root, namespace, name = self
        if not name:
            return BucketKeys()
        if not (is_subdomain(namespace) and is_subdomain(name)):
            raise SourceError("NoCredential", f"spec.credentialName: {name[:64]!r} is no name")
        if root is None:
            raise SourceError(
                "NoCredential",
                f"spec.credentialName: this node holds no keys of {name}; "
                "give its LocalController --credentials-dir",
            )
        file = partial(_key_file, root, namespace, name)
        endpoint = _read_key(file("S3_ENDPOINT_URL"), is_optional=True)
        access = _read_key(file("ACCESS_KEY_ID"), is_optional=bool(endpoint))
        return BucketKeys(
            access=access,
            secret=_read_key(file("SECRET_ACCESS_KEY"), is_optional=not access),
            endpoint=endpoint_url(endpoint),
            region=_read_key(file("S3_REGION"), is_optional=True) or DEFAULT_REGION,
        )


def _key_file(root: Path, namespace: str, name: str, key: str) -> Path:
    flat = root / f"{namespace}.{name}.{key}"
    return flat if flat.exists() else root / namespace / name / key


def _read_key(file: Path, *, is_optional: bool = False) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(MAX_KEY_BYTES).decode("ascii").strip()
    except FileNotFoundError as error:
        if is_optional:
            return ""
        problem = error.strerror
    except OSError as error:
        problem = error.strerror
    except UnicodeDecodeError:  # no `from error`: the error quotes the content
        problem = "it is not ASCII"
    raise SourceError("NoCredential", f"spec.credentialName: {file} on this node: {problem}")
