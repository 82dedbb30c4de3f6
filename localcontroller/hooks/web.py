"""A file behind an http or https URL as the source of a Dataset or of a Model.

Each check is one conditional GET. If the server ignores the condition, the headers of the answer
show whether the content has changed; the body of unchanged content is not read.

The report names no cause when there is no answer. Otherwise a Dataset could find out which ports
are open in the network of the node. The log of the node names the cause.
"""

import contextlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator, Mapping
from http import HTTPStatus
from typing import Final

import aiohttp

from common.lean_imports import system_tls
from localcontroller.hooks.addresses import AddressFilter, Network
from localcontroller.hooks.samples import CHUNK_BYTES
from localcontroller.hooks.sources import (
    CountRequest,
    DatasetSource,
    Download,
    RangeRefused,
    Route,
    SourceError,
    SourceTimeouts,
    file_sample_counter,
    redacted_source_url,
)

MAX_REDIRECTS: Final = 5
NO_ANSWER: Final = "no answer over HTTP, or an address that is not allowed"
_CONTENT_RANGE: Final = re.compile(r"bytes (?P<start>\d{1,18})-\d{1,18}/(?P<size>\d{1,18}|\*)")
_FINGERPRINT: Final = ("ETag", "Last-Modified", "Content-Length")
"""The headers that change with the content of the file."""
_ABSENT: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)
_DENIED: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class WebSource(DatasetSource):
    """A Dataset behind an http or https URL. Args: networks: see SourceOptions"""

    def __init__(self, request: CountRequest, networks: Collection[Network]) -> None:
        super().__init__(request)
        self._networks = networks
        self._fingerprint: tuple[str, ...] = ("", "", "")

    async def count_if_changed(self) -> int | None:
        where = f"spec.url: {redacted_source_url(self._url)}"
        counter, conditions = file_sample_counter(self._format, self._url), self._conditions()
        async with new_session(self._timeouts, self._networks) as session:
            response = await _get(session, self._url, conditions)
            with _reading(where):
                async with response:
                    fingerprint = tuple(response.headers.get(name, "") for name in _FINGERPRINT)
                    if response.status == HTTPStatus.NOT_MODIFIED and conditions:
                        return None
                    _check_status(response.status, where)
                    _check_encoding(response, where)
                    if fingerprint == self._fingerprint and any(fingerprint):
                        response.close()
                        return None
                    chunks = aiter(response.content.iter_chunked(CHUNK_BYTES))
                    samples = await self._threads.count(self._url, chunks, counter)
        self._fingerprint = fingerprint
        return samples

    def _conditions(self) -> dict[str, str]:
        etag, modified, _ = self._fingerprint
        if etag:
            return {"If-None-Match": etag}
        return {"If-Modified-Since": modified} if modified else {}


class WebContent:
    def __init__(self, url: str, timeouts: SourceTimeouts, route: Route) -> None:
        self._url = url
        self._timeouts = timeouts
        self._route = route

    @contextlib.asynccontextmanager
    async def download(self, start: int, tag: str) -> AsyncIterator[Download]:
        where = f"spec.url: {redacted_source_url(self._url)}"
        headers = {"Range": f"bytes={start}-"} if start else {}
        if start and tag:
            headers["If-Range"] = tag
        async with new_session(self._timeouts, *self._route) as session:
            response = await _get(session, self._url, headers)
            async with response:
                if response.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and start:
                    raise RangeRefused("Unavailable", f"{where}: the file is shorter than before")
                if response.status != HTTPStatus.PARTIAL_CONTENT or not start:
                    _check_status(response.status, where)
                    start = 0
                _check_encoding(response, where)
                size = _size(response, start, where)
                yield Download(start, size, _tag(response), _whole(response, where))


async def _whole(response: aiohttp.ClientResponse, where: str) -> AsyncGenerator[bytes, None]:
    with _reading(where):
        async for chunk in response.content.iter_chunked(CHUNK_BYTES):
            yield chunk


def _tag(response: aiohttp.ClientResponse) -> str:
    """What If-Range takes: a strong ETag, or the time of the last change."""
    etag, modified = (response.headers.get(name, "") for name in ("ETag", "Last-Modified"))
    tag = etag if etag.startswith('"') and etag.isascii() else modified
    return tag if tag.isascii() else ""  # other bytes would not go back as they came


def _size(response: aiohttp.ClientResponse, start: int, where: str) -> int | None:
    """The bytes of the whole content. Raises: SourceError"""
    if not start:
        return response.content_length
    match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if match is None or int(match["start"]) != start:
        raise RangeRefused("Unavailable", f"{where}: the server sends other bytes than asked for")
    return None if match["size"] == "*" else int(match["size"])


def new_session(
    timeouts: SourceTimeouts, networks: Collection[Network], proxy_url: str = ""
) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(socket_factory=AddressFilter(networks).open_socket),
        # A few bytes could become a large body. The session asks for no compression.
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(
            total=timeouts.total_s,
            sock_connect=timeouts.connect_s,
            sock_read=timeouts.silence_s,
        ),
        proxy=proxy_url or None,
        trust_env=True,  # else use the proxies of the environment
        # Uncompressed content has a Content-Length, which reveals a body that was cut off.
        headers={"Accept-Encoding": "identity"},
    )


async def _get(
    session: aiohttp.ClientSession, url: str, headers: Mapping[str, str]
) -> aiohttp.ClientResponse:
    """Raises: SourceError when there is no answer"""
    where = f"spec.url: {redacted_source_url(url)}"
    try:
        return await session.get(
            url, headers=headers, max_redirects=MAX_REDIRECTS, ssl=system_tls()
        )
    except aiohttp.TooManyRedirects as error:
        text = f"{where}: more than {MAX_REDIRECTS} redirections"
        raise SourceError("Unavailable", text) from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        text = f"{where}: {NO_ANSWER}"
        raise SourceError("Unavailable", text, _cause(error)) from error


@contextlib.contextmanager
def _reading(where: str) -> Iterator[None]:
    """Raises: SourceError for the errors of a body"""
    try:
        yield
    except TimeoutError as error:
        raise SourceError("Unavailable", f"{where}: no answer in time") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise SourceError(
            "Unavailable", f"{where}: the connection closed before the end of the data"
        ) from error


def _check_status(status: int, where: str) -> None:
    """Raises: SourceError"""
    answer = f"{where}: the server answers {status}"
    if status in _ABSENT:
        raise SourceError("NotFound", f"{answer}, there is no such file")
    if status in _DENIED:
        raise SourceError("Forbidden", f"{answer}, this node has no right to it")
    if status != HTTPStatus.OK:
        raise SourceError("Unavailable", answer)


def _check_encoding(response: aiohttp.ClientResponse, where: str) -> None:
    """Raises: SourceError"""
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding.lower() not in ("", "identity"):
        text = f"{where}: the server compresses its answer ({encoding[:32]!r}) though not asked to"
        raise SourceError("Unavailable", text)


def _cause(error: Exception) -> str:
    """Why there is no answer. aiohttp's own text quotes the URL with its signature."""
    causes = error.__cause__, getattr(error, "os_error", None), error
    cause = next((one for one in causes if isinstance(one, OSError) and one.strerror), error)
    detail = getattr(cause, "strerror", None)
    return f"{type(error).__name__}: {detail}" if detail else type(error).__name__
