"""A file behind an http or https URL as the source of a Dataset.

Each check is one conditional GET. If the server ignores the condition, the headers of the answer
show whether the content has changed; the body of unchanged content is not read.
"""

import ssl
from collections.abc import AsyncIterator
from functools import cache
from http import HTTPStatus
from typing import Final, NamedTuple

import aiohttp

from localcontroller.hooks.samples import CHUNK_BYTES
from localcontroller.hooks.sources import (
    DatasetTimeouts,
    SourceError,
    SourceThreads,
    file_sample_counter,
    redacted_source_url,
)

MAX_REDIRECTS: Final = 5
_GONE: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)
_DENIED: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class HttpFingerprint(NamedTuple):
    """The headers that change with the content of the file; "": the server sent no such header."""

    etag: str
    modified: str
    length: str


NO_FINGERPRINT: Final = HttpFingerprint("", "", "")


def new_http_session(timeouts: DatasetTimeouts) -> aiohttp.ClientSession:
    """Create the HTTP session that all WebSources share."""
    return aiohttp.ClientSession(
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(
            total=timeouts.total_s, sock_connect=timeouts.connect_s, sock_read=timeouts.silence_s
        ),
        trust_env=True,  # use the proxies of the environment
        # Uncompressed content has a Content-Length, which reveals a body that was cut off.
        headers={"Accept-Encoding": "identity"},
    )


@cache
def _tls() -> ssl.SSLContext:
    """A TLS context with the CAs of the system. Loaded on first use, because they take 1 MiB.

    aiohttp's own context has no CAs in this process: see localcontroller.__main__.
    """
    context = ssl.create_default_context()
    context.set_alpn_protocols(("http/1.1",))
    return context


class WebSource:
    """A Dataset behind an http or https URL."""

    def __init__(
        self, url: str, format_: str, session: aiohttp.ClientSession, threads: SourceThreads
    ) -> None:
        self._url = url
        self._format = format_
        self._session = session
        self._threads = threads
        self._fingerprint = NO_FINGERPRINT

    async def count_if_changed(self) -> int | None:
        """See DatasetSource."""
        where = f"spec.url: {redacted_source_url(self._url)}"
        try:
            return await self._get_if_changed(where)
        except TimeoutError as error:
            raise SourceError("Unavailable", f"{where}: no answer in time") from error
        except aiohttp.ClientPayloadError as error:
            raise SourceError("Unavailable", f"{where}: ended before its end") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # Not the text of aiohttp's error, which quotes the URL with its signature.
            raise SourceError("Unavailable", f"{where}: {_problem_text(error)}") from error

    async def _get_if_changed(self, where: str) -> int | None:
        counter, conditions = file_sample_counter(self._format, self._url), self._conditions()
        async with self._session.get(
            self._url, headers=conditions, max_redirects=MAX_REDIRECTS, ssl=_tls()
        ) as response:
            fingerprint = _fingerprint(response)
            if response.status == HTTPStatus.NOT_MODIFIED and conditions:
                return None
            _check_status(response.status, where)
            if fingerprint == self._fingerprint != NO_FINGERPRINT:
                response.close()
                return None
            chunks = _chunks(response.content)
            samples = await self._threads.count(self._url, chunks, counter)
        self._fingerprint = fingerprint
        return samples

    def _conditions(self) -> dict[str, str]:
        etag, modified, _ = self._fingerprint
        if etag:
            return {"If-None-Match": etag}
        return {"If-Modified-Since": modified} if modified else {}


async def _chunks(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    async for chunk in stream.iter_chunked(CHUNK_BYTES):
        yield chunk


def _fingerprint(response: aiohttp.ClientResponse) -> HttpFingerprint:
    headers = response.headers
    etag, modified = headers.get("ETag", ""), headers.get("Last-Modified", "")
    return HttpFingerprint(etag, modified, headers.get("Content-Length", ""))


def _check_status(status: int, where: str) -> None:
    """Raises: SourceError"""
    answer = f"{where}: the server answers {status}"
    if status in _GONE:
        raise SourceError("NotFound", f"{answer}, there is no such file")
    if status in _DENIED:
        raise SourceError("Forbidden", f"{answer}, this node has no right to it")
    if status != HTTPStatus.OK:
        raise SourceError("Unavailable", answer)


def _problem_text(error: Exception) -> str:
    """The text of an error, without the URL."""
    match error:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            return "no TLS with its server that this node trusts"
        case aiohttp.TooManyRedirects():
            return f"more than {MAX_REDIRECTS} redirections"
        case aiohttp.InvalidURL():
            return "it, or where it redirects to, is no URL"
        case OSError():
            return f"no connection: {error.strerror or type(error).__name__}"
        case _:
            return f"the server breaks HTTP ({type(error).__name__})"
