"""An object, or all objects below a prefix, of an S3 bucket as the source of a Dataset.

The keys that it takes are files that the operator puts on the node, named as the keys of the
Secret that workers get: ACCESS_KEY_ID, SECRET_ACCESS_KEY and, off AWS, S3_ENDPOINT_URL; with
S3_REGION where that is not us-east-1. They are read for each look, for keys are rotated. Without
a credentialName, or with no more than an S3_ENDPOINT_URL, nothing is signed.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec
import obstore
from obstore.exceptions import (
    BaseError,
    NotFoundError,
    NotModifiedError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from obstore.store import S3Store

from common.ids import is_subdomain
from localcontroller.hooks.samples import CHUNK_BYTES
from localcontroller.hooks.sources import (
    CONNECT_S,
    DIRECTORY,
    SILENCE_S,
    TOTAL_S,
    SourceError,
    Threads,
    counter_for,
    shown,
)

if TYPE_CHECKING:
    from obstore import GetOptions  # neither is there at run time
    from obstore.store import S3Config

DEFAULT_REGION: Final = "us-east-1"
RETRIES: Final = 2
RETRY_S: Final = 30.0
MAX_KEY_BYTES: Final = 4096
_MAX_PROBLEM_CHARS: Final = 300


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


class BucketSource:
    """Args: keys: of the Dataset's namespace and credentialName"""

    def __init__(
        self,
        url: str,
        format_: str,
        threads: Threads,
        *,
        keys: KeyDirectory,
        namespace: str,
        credential: str,
    ) -> None:
        parts = urlsplit(url)
        self._url = url
        self._bucket = parts.netloc.rpartition("@")[2]
        self._path = parts.path.strip("/")
        self._format = DIRECTORY if not format_ and url.endswith("/") else format_
        self._threads = threads
        self._read_keys = lambda: keys.read(namespace, credential)
        self._etag: str | None = None

    async def look(self) -> int | None:
        """See Source"""
        keys = await self._keys()
        where = f"spec.url: {shown(self._url)}"
        try:
            store = _store(self._bucket, keys)
            async with asyncio.timeout(TOTAL_S):
                if self._format == DIRECTORY:
                    return await self._count_objects(store, where)
                return await self._count_samples(store)
        except NotModifiedError:
            return None
        except TimeoutError as error:
            raise SourceError("Unavailable", f"{where}: no answer in time") from error
        except (NotFoundError, FileNotFoundError) as error:
            raise SourceError("NotFound", f"{where}: there is no such object") from error
        except (PermissionDeniedError, UnauthenticatedError, PermissionError) as error:
            raise SourceError(
                "Forbidden", f"{where}: the bucket wants other keys; check spec.credentialName"
            ) from error
        except (BaseError, OSError, ValueError) as error:
            raise SourceError("Unavailable", f"{where}: {_problem(error, keys)}") from error

    async def _keys(self) -> Keys:
        try:
            async with asyncio.timeout(TOTAL_S):
                return await self._threads.run(self._url, self._read_keys)
        except TimeoutError as error:
            text = f"spec.credentialName: its files cannot be read within {TOTAL_S:.0f} s"
            raise SourceError("NoCredential", text) from error

    async def _count_samples(self, store: S3Store) -> int:
        counter = counter_for(self._format, self._url)
        options: GetOptions = {"if_none_match": self._etag} if self._etag else {}
        async with asyncio.timeout(SILENCE_S):
            found = await obstore.get_async(store, self._path, options=options)
        stream = found.stream(min_chunk_size=CHUNK_BYTES)
        samples = await self._threads.count(self._url, _chunks(stream), counter)
        self._etag = found.meta["e_tag"]
        return samples

    async def _count_objects(self, store: S3Store, where: str) -> int:
        objects, pages = 0, aiter(obstore.list(store, self._path or None))
        while True:
            async with asyncio.timeout(SILENCE_S):
                page = await anext(pages, None)
            if page is None:
                break
            objects += sum(not each["path"].endswith("/") for each in page)
        if not objects:  # S3 knows no empty directory
            raise SourceError("NotFound", f"{where}: there is no object below it")
        return objects


async def _chunks(stream: "obstore.BytesStream") -> AsyncIterator[bytes]:
    async for chunk in stream:
        if data := bytes(chunk):
            yield data


def _store(bucket: str, keys: Keys) -> S3Store:
    return S3Store(
        bucket,
        config=_config(keys),
        client_options={
            "allow_http": keys.endpoint.startswith("http://"),
            "connect_timeout": timedelta(seconds=CONNECT_S),
            "timeout": timedelta(seconds=TOTAL_S),
        },
        retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_S)},
    )


def _config(keys: Keys) -> "S3Config":
    config: S3Config = {"region": keys.region, "virtual_hosted_style_request": False}
    if keys.endpoint:
        config["endpoint"] = keys.endpoint
    if not keys.access:
        return {**config, "skip_signature": True}
    return {**config, "access_key_id": keys.access, "secret_access_key": keys.secret}


def _problem(error: Exception, keys: Keys) -> str:
    """What the client says, without what differs each time (durations, request ids) or is a key."""
    text = (str(error).splitlines() or [type(error).__name__])[0]
    text = text.rpartition(" - ")[2].partition("<")[0].rstrip(": ")
    for key in (keys.secret, keys.access):
        text = text.replace(key, "…") if key else text
    return text[:_MAX_PROBLEM_CHARS]
