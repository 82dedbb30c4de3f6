"""Credentials, TLS and the connection pool, built on the parts that `library` loads.

kubernetes_asyncio reads kubeconfig and in-cluster credentials and builds the HTTP session. This
module does not use the typed API, the watch and the leader election of kubernetes_asyncio
(docs/decisions). `client` sees only ConnectionError and TimeoutError, never an error of aiohttp or
kubernetes_asyncio.
"""

import asyncio
import copy
import http
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

import aiohttp

from edgeai.errors import SettingsError
from edgeai.kube.kubeconfig import check
from edgeai.kube.library import ApiClient, Configuration, config
from edgeai.kube.session import plain_session

USER_AGENT: Final = "edgeai-globalmanager"
_IN_CLUSTER: Final = "in-cluster configuration"
# Largest number of connections. Every watch occupies one connection. All other requests share the
# rest.
_MAX_CONNECTIONS: Final = 256
_RENEW_INTERVAL_S: Final = 30.0

# A proxy between here and the API server closes a WebSocket on which nothing happens.
_PING_INTERVAL_S: Final = 20.0
_CLOSE_S: Final = 1.0  # longest wait for the server's answer to the close of a WebSocket
_MAX_REFUSAL_BYTES: Final = 64 * 1024

Load = Callable[[Configuration], Awaitable[None]]

_OF_THE_SERVER: Final = (
    *("host", "verify_ssl", "ssl_ca_cert", "tls_server_name", "assert_hostname"),
    *("disable_strict_ssl_verification", "proxy", "proxy_headers", "connection_pool_maxsize"),
)
"""What a configuration says of the server, and nothing of who asks."""


async def _keep(_configuration: Configuration) -> None:
    """There are no credentials to read again."""


class Distrusted(ConnectionError):
    """The server's certificate is of another CA than the configuration names, or for another
    name.
    """


class UnknownHost(ConnectionError):
    """The server's name has no address."""


class HandshakeRefused(Exception):
    """The server answered the handshake of a WebSocket with a failure.

    Args:
        status: the HTTP status
        retry_after: the header Retry-After
    """

    def __init__(self, status: int, body: bytes, retry_after: str | None) -> None:
        self.status, self.body, self.retry_after = status, body, retry_after
        super().__init__(f"HTTP {status}")


class Transport:
    """Sends requests with the credentials of one cluster. The owner must call `close` at the end.

    Args:
        source: the file or place of the configuration, for error messages

    Raises: SettingsError when the TLS certificates that the configuration names cannot be used
    """

    def __init__(self, configuration: Configuration, load: Load, source: str) -> None:
        self.source = source
        self._configuration = configuration
        self._server = (configuration.host or "").rstrip("/")
        self._load = load  # `load` reads the credentials into the same configuration again
        try:
            self._api = ApiClient(configuration)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            problem = f"its TLS certificates cannot be used: {error}"
            raise SettingsError(source, problem) from error
        self._proxy_options = _proxy_options(self._api, self._server)
        self._session = plain_session(self._api)
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
                self._server + path,
                params=query,
                data=body,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=None),
                # A redirect would carry the request, and its body, to another server.
                allow_redirects=False,
                **self._proxy_options,
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
                self._server + path,
                params=query,
                headers=headers,
                protocols=(protocol,),
                heartbeat=_PING_INTERVAL_S,
                timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_S),
                **self._proxy_options,
            ) as socket,
        ):
            if socket.protocol != protocol:
                raise ConnectionError(f"the server does not speak {protocol}")
            yield socket

    async def token(self) -> str:
        """The bearer token that requests show; "" where there is none."""
        headers = {name.lower(): value for name, value in (await self._headers()).items()}
        scheme, _, token = headers.get("authorization", "").partition(" ")
        return token if scheme == "Bearer" else ""

    async def _headers(self) -> dict[str, str]:
        headers = {"User-Agent": USER_AGENT}
        if self._bearer:
            return headers | {"Authorization": f"Bearer {self._bearer}"}
        await self._api.update_params_for_auth(headers, [], ["BearerToken"])
        return headers

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[None]:
        """Translates the errors of aiohttp in the `with` body, and ends the body when `take_over`
        replaces the connections. Raises: ConnectionError
        """
        try:
            async with self._until_replaced():
                yield
        except aiohttp.ClientConnectorCertificateError as error:
            problem = f"is not trusted ({error.certificate_error})"
            raise Distrusted(f"the certificate of {self._server} {problem}") from error
        except aiohttp.ClientConnectorDNSError as error:
            raise UnknownHost(str(error)) from error
        except (aiohttp.ClientError, OSError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise ConnectionError(str(error) or type(error).__name__) from error

    @asynccontextmanager
    async def _until_replaced(self) -> AsyncIterator[None]:
        """Ends the `with` body when `take_over` replaces the connections. Raises:
        ConnectionError
        """
        end = asyncio.timeout(None)
        try:
            async with end:
                self._under_way.add(end)
                try:
                    yield
                finally:
                    self._under_way.discard(end)
        # aiohttp raises these for a connection that it closed
        except (TimeoutError, RuntimeError) as error:
            if end.when() is not None:
                raise ConnectionError("its connection was given up for a new one") from error
            raise

    def anew(self) -> Self:
        """A transport with the same server and credentials, but with connections of its own. The
        caller must close it too.

        Raises: SettingsError
        """
        return type(self)(self._configuration, self._load, self.source)

    def without_credentials(self) -> Self:
        """A transport to the same server that proves nothing of this process, for `bearing`. The
        caller must close it too.

        A client certificate of this process would count more than the token of a request.

        Raises: SettingsError
        """
        bare = Configuration()
        for name in _OF_THE_SERVER:
            setattr(bare, name, getattr(self._configuration, name))
        return type(self)(bare, _keep, self.source)

    def bearing(self, token: str) -> Self:
        """A transport with the same connections, whose requests show this token."""
        bearer = copy.copy(self)
        bearer._bearer = token
        return bearer

    async def take_over(self, other: Self) -> None:
        """Use the connections of `other`. Close the present connections and end the requests on
        them.

        A request on a dead connection would otherwise hang until its deadline.
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
        await self._load(self._configuration)

    async def close(self) -> None:
        await self._session.close()


async def _check_handshake(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Raises HandshakeRefused also for a redirect, which aiohttp would follow."""
    response = await handler(request)
    if response.status == http.HTTPStatus.SWITCHING_PROTOCOLS:
        return response
    async with response:
        body = await response.content.read(_MAX_REFUSAL_BYTES)
        raise HandshakeRefused(response.status, body, response.headers.get("Retry-After"))


def _proxy_options(api: ApiClient, server: str) -> dict[str, Any]:
    """Options of each request. The kubeconfig's proxy-url has priority over HTTPS_PROXY and
    NO_PROXY.
    """
    rest = api.rest_client
    options = {
        "proxy": rest.proxy or proxy_of_environment(server),
        "proxy_headers": rest.proxy_headers,
        "server_hostname": rest.server_hostname,
    }
    return {name: value for name, value in options.items() if value}


def proxy_of_environment(server: str) -> str:
    """URL of the proxy; "" when the environment names no proxy for the server."""
    url = urlsplit(server)
    proxy = urllib.request.getproxies().get(url.scheme, "")
    # An entry of NO_PROXY may be a host, an IPv6 address without brackets, or host:port.
    hosts = (url.hostname or "", url.netloc)
    is_direct = any(urllib.request.proxy_bypass(host) for host in hosts)
    is_supported = proxy.startswith("http://")  # aiohttp speaks plain HTTP to proxies
    return proxy if is_supported and not is_direct else ""


async def open_transport(kubeconfig: Path | None) -> Transport:
    """A transport for the current context of a kubeconfig. When `kubeconfig` is None, the transport
    is for the cluster around this pod.

    Raises: SettingsError that names the file and the file's fault
    """
    source = f"kubeconfig {kubeconfig}" if kubeconfig else _IN_CLUSTER
    configuration = Configuration()
    configuration.connection_pool_maxsize = _MAX_CONNECTIONS

    async def load(target: Configuration) -> None:
        try:
            await _load(kubeconfig, target)
        except SettingsError:
            raise
        except Exception as error:  # the loader may raise any exception for a malformed file
            raise SettingsError(source, f"cannot be used: {_explain(error)}") from error
        if not all(str(value).isprintable() for value in target.api_key.values()):
            raise SettingsError(source, "its token has a line break or another control character")

    await load(configuration)
    return Transport(configuration, load, source)


async def _load(kubeconfig: Path | None, target: Configuration) -> None:
    if kubeconfig is None:
        _load_in_cluster(target)
        return
    check(kubeconfig)
    await config.load_kube_config(
        config_file=str(kubeconfig), client_configuration=target, persist_config=False
    )


def _load_in_cluster(target: Configuration) -> None:
    try:
        config.load_incluster_config(client_configuration=target)  # type: ignore[no-untyped-call]
    except config.ConfigException as error:
        raise SettingsError(
            _IN_CLUSTER,
            f"{error} Outside of a pod, name a kubeconfig file.",
        ) from error


def _explain(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
