"""S3: an object, or all below a prefix, as a Dataset; an object as the content of a Model.

Each check reads the keys again, because keys are rotated.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import (
    BaseError,
    NotFoundError,
    NotModifiedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import S3Store

from edgeai.buckets import BUCKET_NAME, BucketKeys
from localcontroller.hooks.keys import KeyFiles
from localcontroller.hooks.samples import CHUNK_BYTES
from localcontroller.hooks.sources import (
    DIRECTORY,
    CountRequest,
    DatasetSource,
    Download,
    RangeRefused,
    Route,
    SourceError,
    SourceThreads,
    SourceTimeouts,
    file_sample_counter,
    redacted_source_url,
)

if TYPE_CHECKING:
    from obstore import GetOptions  # obstore defines these types for type checkers only

RETRIES: Final = 2
_MAX_PROBLEM_CHARS: Final = 300


class BucketSource(DatasetSource):
    """A Dataset in an S3 bucket. Raises: SourceError"""

    def __init__(self, request: CountRequest, key_files: KeyFiles) -> None:
        super().__init__(request)
        self._bucket, self._path = _bucket_and_key(self._url)
        if not self._format and self._url.endswith("/"):
            self._format = DIRECTORY
        self._key_files = key_files
        self._etag: str | None = None

    async def count_if_changed(self) -> int | None:
        limit_s = self._timeouts.total_s
        keys = await keys_from(self._key_files, self._url, self._threads, limit_s)
        where = f"spec.url: {redacted_source_url(self._url)}"
        with _bucket_errors(where, keys):
            store = _s3_store(self._bucket, keys, self._timeouts)
            try:
                async with asyncio.timeout(self._timeouts.total_s):
                    if self._format == DIRECTORY:
                        return await self._count_objects(store, where)
                    return await self._count_samples(store)
            except NotModifiedError as error:
                if self._etag:
                    return None
                text = f"{where}: the server answers 304 to a request without a condition"
                raise SourceError("Unavailable", text) from error

    async def _count_samples(self, store: S3Store) -> int:
        counter = file_sample_counter(self._format, self._url)
        options: GetOptions = {"if_none_match": self._etag} if self._etag else {}
        async with asyncio.timeout(self._timeouts.silence_s):
            response = await obstore.get_async(store, self._path, options=options)
        stream = response.stream(min_chunk_size=CHUNK_BYTES)
        samples = await self._threads.count(self._url, _chunks(stream), counter)
        self._etag = response.meta["e_tag"]
        return samples

    async def _count_objects(self, store: S3Store, where: str) -> int:
        objects, empty, pages = 0, "", aiter(obstore.list(store, self._path or None))
        while True:
            async with asyncio.timeout(self._timeouts.silence_s):
                page = await anext(pages, None)
            if page is None:
                break
            below = (entry for entry in page if entry["path"] != self._path)
            for entry in below:  # the page is ordered by key
                # Some tools create an empty object "dir/" for a directory, and obstore removes its
                # "/". Such an object does not count if the next object is below it.
                is_in_empty = bool(empty) and entry["path"].startswith(f"{empty}/")
                objects += 1 - is_in_empty
                empty = entry["path"] if not entry["size"] else ""
        if not objects:  # S3 has no empty directories
            raise SourceError("NotFound", f"{where}: there is no object below it")
        return objects


class BucketContent:
    """The content of a Model in an S3 bucket. Raises: SourceError"""

    def __init__(self, url: str, timeouts: SourceTimeouts, keys: BucketKeys, route: Route) -> None:
        self._bucket, self._path = _bucket_and_key(url)
        self._where = f"spec.url: {redacted_source_url(url)}"
        self._timeouts, self._keys, self._route = timeouts, keys, route

    @contextlib.asynccontextmanager
    async def download(self, start: int, tag: str) -> AsyncIterator[Download]:
        options: GetOptions = {"range": {"offset": start}} if start else {}
        if start and tag:
            options["if_match"] = tag
        with _bucket_errors(self._where, self._keys):
            store = _s3_store(self._bucket, self._keys, self._timeouts, self._route.proxy_url)
            try:
                async with asyncio.timeout(self._timeouts.silence_s):
                    response = await obstore.get_async(store, self._path, options=options)
            except BaseError as error:
                # obstore does not tell the answer 416 from other faults.
                if not start or (await obstore.head_async(store, self._path))["size"] > start:
                    raise
                text = f"{self._where}: the object is shorter than before"
                raise RangeRefused("Unavailable", text) from error
        meta = response.meta
        chunks = self._chunks(response.stream(min_chunk_size=CHUNK_BYTES))
        yield Download(start, meta["size"], meta["e_tag"] or "", chunks)

    async def _chunks(self, stream: "obstore.BytesStream") -> AsyncGenerator[bytes, None]:
        chunks = _chunks(stream)
        with _bucket_errors(self._where, self._keys):
            while True:
                async with asyncio.timeout(self._timeouts.silence_s):
                    chunk = await anext(chunks, b"")
                if not chunk:
                    return
                yield chunk


async def keys_from(
    files: KeyFiles, url: str, threads: SourceThreads, limit_s: float
) -> BucketKeys:
    """Raises: SourceError"""
    try:
        async with asyncio.timeout(limit_s):
            return await threads.run(url, files.read)
    except TimeoutError as error:
        text = f"its files cannot be read within {limit_s:g} s"
        raise SourceError("NoCredential", f"spec.credentialName: {text}") from error


@contextlib.contextmanager
def _bucket_errors(where: str, keys: BucketKeys) -> Iterator[None]:
    """Raises: SourceError for the errors of a request to a bucket"""
    try:
        yield
    except PreconditionError as error:
        raise RangeRefused("Unavailable", f"{where}: the object has changed") from error
    except TimeoutError as error:
        raise SourceError("Unavailable", f"{where}: no answer in time") from error
    except (NotFoundError, FileNotFoundError) as error:
        raise SourceError("NotFound", f"{where}: there is no such object") from error
    except (PermissionDeniedError, UnauthenticatedError, PermissionError) as error:
        raise SourceError(
            "Forbidden", f"{where}: the bucket rejects the keys; check spec.credentialName"
        ) from error
    except (BaseError, OSError, ValueError) as error:
        raise SourceError("Unavailable", f"{where}: {_problem_text(error, keys)}") from error


def _bucket_and_key(url: str) -> tuple[str, str]:
    """Split the URL into the bucket, and the key or prefix. Raises: SourceError"""
    parts = urlsplit(url)
    bucket = parts.netloc.rpartition("@")[2]
    if not BUCKET_NAME.fullmatch(bucket):
        raise SourceError(
            "InvalidURL", f"spec.url: {redacted_source_url(url)[:256]} names no bucket"
        )
    if "?" in url or "#" in url:  # workers, too, would drop this part of the key
        text = f"{redacted_source_url(url)[:256]} goes on with a '?' or '#'; no key may have one"
        raise SourceError("InvalidURL", f"spec.url: {text}")
    return bucket, parts.path.strip("/")


async def _chunks(stream: "obstore.BytesStream") -> AsyncIterator[bytes]:
    async for chunk in stream:
        if data := bytes(chunk):
            yield data


def _s3_store(
    bucket: str, keys: BucketKeys, timeouts: SourceTimeouts, proxy_url: str = ""
) -> S3Store:
    return S3Store(
        bucket,
        config=keys.config,
        client_options={
            "allow_http": keys.endpoint.startswith("http://"),
            "connect_timeout": timedelta(seconds=timeouts.connect_s),
            "timeout": timedelta(seconds=timeouts.total_s),
            **({"proxy_url": proxy_url} if proxy_url else {}),
        },
        retry_config={
            "max_retries": RETRIES,
            "retry_timeout": timedelta(seconds=timeouts.bucket_retry_s),
        },
    )


def _problem_text(error: Exception, keys: BucketKeys) -> str:
    """The text of an error, without keys, durations and request ids.

    Equal errors must have equal texts, because each new text is a new report.
    """
    text = (str(error).splitlines() or [type(error).__name__])[0]
    text = text.rpartition(" - ")[2].partition("<")[0].rstrip(": ")
    for key in (keys.secret, keys.access):
        text = text.replace(key, "…") if key else text
    return text[:_MAX_PROBLEM_CHARS]
