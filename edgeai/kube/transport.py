"""Requests to the API server: with credentials, on a pool of connections.

`client` sees only ConnectionError and TimeoutError, never an error of aiohttp.
"""

import asyncio
import contextlib
import copy
import urllib.request
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

import aiohttp

from edgeai.errors import SettingsError
from edgeai.kube.credentials import (
    TOKEN_FILE_S,
    Credentials,
    CredentialSource,
    Kubeconfig,
    ServiceAccount,
    Unchanging,
)
from edgeai.kube.session import plain_session

USER_AGENT: Final = "edgeai-globalmanager"
_RENEW_INTERVAL_S: Final = 30.0

# A proxy between here and the API server closes a WebSocket on which nothing happens.
_PING_INTERVAL_S: Final = 20.0
_CLOSE_S: Final = 1.0  # longest wait for the server's answer to the close of a WebSocket
_MAX_REFUSAL_BYTES: Final = 64 * 1024


class Distrusted(ConnectionError):
    """The server's certificate is of another CA than the configuration names, or another name."""


class UnknownHost(ConnectionError):
    """The server's name has no address."""


class HandshakeRefused(Exception):
    """The server answered the handshake of a WebSocket with a failure."""

    def __init__(self, status: int, body: bytes, retry_after: str | None) -> None:
        self.status, self.body, self.retry_after = status, body, retry_after
        super().__init__(f"HTTP {status}")


class Transport:
    """Sends requests with the credentials of one cluster. The owner must call `close` at the end.

    Args: source: of `credentials`, to read them again
    Raises: SettingsError when the TLS certificates of the credentials cannot be used
    """

    def __init__(self, credentials: Credentials, source: CredentialSource) -> None:
        self.source = source.name
        self._credentials = credentials
        self._credential_source = source
        # The kubeconfig's proxy-url has priority over HTTPS_PROXY and NO_PROXY.
        self._proxy = credentials.proxy or proxy_of_environment(credentials.server) or None
        tls = None
        try:
            if "https" in (urlsplit(credentials.server).scheme, urlsplit(self._proxy or "").scheme):
                tls = credentials.tls()
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            problem = f"its TLS certificates cannot be used: {error}"
            raise SettingsError(source.name, problem) from error
        self._session = plain_session(tls)
        self._read_at = asyncio.get_running_loop().time()
        self._renewed_at = -_RENEW_INTERVAL_S
        self._bearer = ""  # the token of a caller; "": the credentials of the configuration
        self._under_way: set[asyncio.Timeout] = set()  # one time limit for each request under way
        self.replacement = asyncio.Event()
        """Set when `take_over` has replaced the present connections."""

    @asynccontextmanager
    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer with any status. The body is not read yet. The caller sets a time limit.

        Raises: ConnectionError, also when the body of `with` cannot read the answer, and when
            `take_over` closes the connection meanwhile
        """
        headers = {"Accept": accept, **await self._headers()}
        if body is not None:
            headers["Content-Type"] = content_type
        async with (
            self._connected(),
            self._session.request(
                method,
                self._credentials.server + path,
                params=query,
                data=body,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=None),
                # A redirect would carry the request, and its body, to another server.
                allow_redirects=False,
                proxy=self._proxy,
                server_hostname=self._credentials.server_name or None,
            ) as response,
        ):
            yield response

    @asynccontextmanager
    async def websocket(
        self, path: str, *, query: Sequence[tuple[str, str]], protocol: str
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """A WebSocket with this subprotocol. The caller sets a time limit. The request accepts any
        media type, because a kubelet does not offer JSON.

        Raises: HandshakeRefused; ConnectionError as `request`
        """
        headers = await self._headers()
        async with (
            self._connected(),
            # The session of `request` would follow a redirect and lose the body of a refusal.
            aiohttp.ClientSession(
                connector=self._session.connector,
                connector_owner=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                middlewares=(_check_handshake,),
            ) as session,
            session.ws_connect(
                self._credentials.server + path,
                params=query,
                headers=headers,
                protocols=(protocol,),
                heartbeat=_PING_INTERVAL_S,
                timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_S),
                proxy=self._proxy,
                server_hostname=self._credentials.server_name or None,
            ) as socket,
        ):
            if socket.protocol != protocol:
                raise ConnectionError(f"the server does not speak {protocol}")
            yield socket

    async def token(self) -> str:
        """The bearer token that requests show; "" where there is none."""
        scheme, _, token = (await self._headers()).get("Authorization", "").partition(" ")
        return token if scheme == "Bearer" else ""

    async def _headers(self) -> dict[str, str]:
        headers = {"User-Agent": USER_AGENT}
        if self._bearer:
            return headers | {"Authorization": f"Bearer {self._bearer}"}
        if self._credentials.is_renewed:
            await self._read_again()
        if self._credentials.authorization:
            headers["Authorization"] = self._credentials.authorization
        return headers

    async def _read_again(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._read_at < TOKEN_FILE_S:
            return
        self._read_at = now
        with contextlib.suppress(SettingsError):  # the present token may still be good
            await self._load_again()

    async def _load_again(self) -> None:
        """Raises: SettingsError, also when another context has become the current one"""
        loaded = await self._credential_source.load()
        if loaded.server != self._credentials.server:
            raise SettingsError(self.source, f"names another server now: {loaded.server}; restart")
        self._credentials = loaded

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[None]:
        """Translates the errors of aiohttp in the `with` body, and ends the body when `take_over`
        replaces the connections. Raises: ConnectionError
        """
        end = asyncio.timeout(None)
        try:
            async with end:
                self._under_way.add(end)
                try:
                    yield
                finally:
                    self._under_way.discard(end)
        except aiohttp.ClientConnectorCertificateError as error:
            problem = f"is not trusted ({error.certificate_error})"
            raise Distrusted(f"the certificate of {self._credentials.server} {problem}") from error
        except aiohttp.ClientConnectorDNSError as error:
            raise UnknownHost(str(error)) from error
        # aiohttp raises a RuntimeError for a connection that it closed
        except (aiohttp.ClientError, OSError, RuntimeError) as error:
            if not isinstance(error, TimeoutError | RuntimeError):
                raise ConnectionError(str(error) or type(error).__name__) from error
            if end.when() is None:
                raise
            raise ConnectionError("its connection was given up for a new one") from error

    def anew(self) -> Self:
        """A transport with the same server and credentials, but connections of its own, which the
        caller must close. Raises: SettingsError
        """
        return type(self)(self._credentials, self._credential_source)

    def without_credentials(self) -> Self:
        """A transport to the same server that proves nothing of this process, for `bearing`: a
        client certificate would count more than a token. As `anew` otherwise.
        """
        bare = self._credentials.anonymous()
        return type(self)(bare, Unchanging(self.source, bare))

    def bearing(self, token: str) -> Self:
        """A transport with the same connections, whose requests show this token."""
        bearer = copy.copy(self)
        bearer._bearer = token
        return bearer

    async def take_over(self, other: Self) -> None:
        """Use the connections of `other`. Close the present connections and end the requests on
        them: on a dead connection they would hang until their deadline.
        """
        old, self._session = self._session, other._session
        now = asyncio.get_running_loop().time()
        for end in self._under_way:
            if not end.expired():
                end.reschedule(now)
        replacement, self.replacement = self.replacement, asyncio.Event()
        replacement.set()
        await old.close()

    async def renew(self) -> None:
        """Read the credentials again, at most twice a minute, because short-lived tokens expire."""
        now = asyncio.get_running_loop().time()
        if now - self._renewed_at < _RENEW_INTERVAL_S:
            return
        self._renewed_at = now
        await self._load_again()

    async def close(self) -> None:
        await self._session.close()


async def _check_handshake(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Raises HandshakeRefused also for a redirect, which aiohttp would follow."""
    response = await handler(request)
    if response.status == HTTPStatus.SWITCHING_PROTOCOLS:
        return response
    async with response:
        body = await response.content.read(_MAX_REFUSAL_BYTES)
        raise HandshakeRefused(response.status, body, response.headers.get("Retry-After"))


def proxy_of_environment(server: str) -> str:
    """URL of the proxy; "" when the environment names no proxy for the server."""
    url = urlsplit(server)
    proxy = urllib.request.getproxies().get(url.scheme, "")
    # An entry of NO_PROXY may be a host, an IPv6 address without brackets, or host:port.
    hosts = (url.hostname or "", url.netloc)
    is_direct = any(urllib.request.proxy_bypass(host) for host in hosts)
    is_supported = proxy.startswith("http://")  # aiohttp speaks plain HTTP to proxies
    return proxy if is_supported and not is_direct else ""


async def open_transport(kubeconfig: Path | None, context: str = "") -> Transport:
    """Args and raises: as `KubeClient.from_kubeconfig`"""
    source = ServiceAccount() if kubeconfig is None else Kubeconfig(kubeconfig, context)
    return Transport(await source.load(), source)
