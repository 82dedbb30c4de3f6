"""A file behind an http or https URL as the source of a Dataset.

One conditional GET for each look. A server that ignores the condition is told apart by the
headers of its answer, whose body is then not read.
"""

import ssl
from collections.abc import AsyncIterator
from functools import cache
from http import HTTPStatus
from typing import Final, NamedTuple

import aiohttp

from localcontroller.hooks.samples import CHUNK_BYTES
from localcontroller.hooks.sources import (
    CONNECT_S,
    SILENCE_S,
    TOTAL_S,
    SourceError,
    Threads,
    counter_for,
    shown,
)

MAX_REDIRECTS: Final = 5
_GONE: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)
_DENIED: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class Mark(NamedTuple):
    """What the server says of a content; empty where it says nothing."""

    etag: str
    modified: str
    length: str


NOTHING_SAID: Final = Mark("", "", "")


def new_session() -> aiohttp.ClientSession:
    """For all sources of this process; bounded in every wait."""
    return aiohttp.ClientSession(
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=TOTAL_S, sock_connect=CONNECT_S, sock_read=SILENCE_S),
        trust_env=True,  # proxies
        # What is sent as it is stored has a length by which a cut is noticed.
        headers={"Accept-Encoding": "identity"},
    )


@cache
def _tls() -> ssl.SSLContext:
    """With the CAs of the system, which take 1 MiB and so are loaded once they are needed.

    aiohttp's own context has none of them in this process: see localcontroller.__main__.
    """
    context = ssl.create_default_context()
    context.set_alpn_protocols(("http/1.1",))
    return context


class WebSource:
    def __init__(
        self, url: str, format_: str, session: aiohttp.ClientSession, threads: Threads
    ) -> None:
        self._url = url
        self._format = format_
        self._session = session
        self._threads = threads
        self._mark = NOTHING_SAID

    async def look(self) -> int | None:
        """See Source"""
        where = f"spec.url: {shown(self._url)}"
        try:
            return await self._get(where)
        except TimeoutError as error:
            raise SourceError("Unavailable", f"{where}: no answer in time") from error
        except aiohttp.ClientPayloadError as error:
            raise SourceError("Unavailable", f"{where}: ended before its end") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # Texts of aiohttp quote the URL, and so what signs it.
            raise SourceError("Unavailable", f"{where}: {_problem(error)}") from error

    async def _get(self, where: str) -> int | None:
        counter, conditions = counter_for(self._format, self._url), self._conditions()
        async with self._session.get(
            self._url, headers=conditions, max_redirects=MAX_REDIRECTS, ssl=_tls()
        ) as response:
            mark = _mark(response)
            if response.status == HTTPStatus.NOT_MODIFIED and conditions:
                return None
            _check(response.status, where)
            if mark == self._mark != NOTHING_SAID:
                response.close()
                return None
            chunks = _chunks(response.content)
            samples = await self._threads.count(self._url, chunks, counter)
        self._mark = mark
        return samples

    def _conditions(self) -> dict[str, str]:
        if self._mark.etag:
            return {"If-None-Match": self._mark.etag}
        return {"If-Modified-Since": self._mark.modified} if self._mark.modified else {}


async def _chunks(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    async for chunk in stream.iter_chunked(CHUNK_BYTES):
        yield chunk


def _mark(response: aiohttp.ClientResponse) -> Mark:
    headers = response.headers
    etag, modified = headers.get("ETag", ""), headers.get("Last-Modified", "")
    return Mark(etag, modified, headers.get("Content-Length", ""))


def _check(status: int, where: str) -> None:
    """Raises: SourceError"""
    answer = f"{where}: the server answers {status}"
    if status in _GONE:
        raise SourceError("NotFound", f"{answer}, there is no such file")
    if status in _DENIED:
        raise SourceError("Forbidden", f"{answer}, this node has no right to it")
    if status != HTTPStatus.OK:
        raise SourceError("Unavailable", answer)


def _problem(error: Exception) -> str:
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
