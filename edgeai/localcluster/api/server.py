"""The HTTP server of the API, on loopback: authentication, discovery, routing, errors.

Controllers use the same store directly. A client gets every error as a `Status` object.
"""

import asyncio
import hmac
import ipaddress
from collections.abc import Mapping

import msgspec
from aiohttp import web

from common.logs import get_logger
from edgeai.localcluster.api import discovery, openapi
from edgeai.localcluster.api.handlers import API, json_response
from edgeai.localcluster.api.requests import decode
from edgeai.localcluster.errors import StateError
from edgeai.localcluster.objects import errors
from edgeai.localcluster.objects.resources import Object
from edgeai.localcluster.objects.store import Registry, Store
from edgeai.times import Clock, utc_now

log = get_logger(__name__)

MAX_BODY_BYTES = 3 << 20
SHUTDOWN_S = 1.0
_PUBLIC_PATHS = frozenset({"/healthz", "/livez", "/readyz", "/version"})
_VERSION: Object = {
    "major": "1",
    "minor": "32",
    "gitVersion": "v1.32.0+localcluster",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "none",
    "platform": "python",
}
_USER: Object = {
    "username": "local-admin",
    "groups": ["system:masters", "system:authenticated"],
}
# The cluster has one token, and no rules of rights (RBAC).
_REVIEWS: Mapping[str, Object] = {
    "/apis/authentication.k8s.io/v1/tokenreviews": {"authenticated": True, "user": _USER},
    "/apis/authorization.k8s.io/v1/subjectaccessreviews": {
        "allowed": True,
        "reason": "the local cluster has no RBAC",
    },
}


class ClientTimeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the server's waits for a client, in seconds.

    A watch has no limit, but one whose client does not read: streams.WRITE_TIMEOUT_S.
    """

    idle_s: float = 120.0
    """Wait for the next request of a connection. Clients keep an idle connection for a shorter time
    (Go: 90 s). So the client closes first and never sends a request into a closed connection."""
    body_s: float = 30.0
    """Wait for the body of a request, after the head has arrived."""
    linger_s: float = 1.0
    """Read the rest of a refused body for this long, so that the sender can read the answer."""


CLIENT_TIMEOUTS = ClientTimeouts()


class Server:
    """Checks the token of a request, finds its handler, answers errors as `Status`."""

    def __init__(self, api: API, registry: Registry, token: str, timeouts: ClientTimeouts) -> None:
        self.api = api
        self._registry = registry
        self._token = token.encode()
        self._timeouts = timeouts
        application = web.Application(client_max_size=MAX_BODY_BYTES)
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(
            application,
            access_log=None,
            handler_cancellation=True,
            keepalive_timeout=timeouts.idle_s,
            lingering_time=timeouts.linger_s,
            shutdown_timeout=SHUTDOWN_S,
        )

    async def listen(self, host: str, port: int) -> None:
        """Raises: StateError for a port that another process uses"""
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port).start()
        except OSError as error:
            await self._runner.cleanup()
            raise StateError(f"cannot listen on {host}:{port}: {error.strerror}") from error
        self.port = int(self._runner.addresses[0][1])
        self.url = f"http://{host}:{self.port}"

    async def close(self) -> None:
        """Stop listening and end the watches. Other requests have SHUTDOWN_S seconds to finish."""
        self.api.close()
        await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        path, is_known = self._authenticated(request)
        try:
            if not is_known and path not in _PUBLIC_PATHS:
                raise errors.Unauthorized("Unauthorized: use the kubeconfig of this cluster")
            await self._receive(request)
            if request.method == "POST" and path in _REVIEWS:
                return await self._reviewed(request, path)
            document = self._document(request, path.strip("/").split("/"))
            if document is None:
                return await self.api.handle(request, path)
            if request.method not in ("GET", "HEAD"):
                raise errors.MethodNotAllowed(f"{request.method} is not supported on {path}")
            return document
        except errors.APIError as error:
            refusal = error
        except web.HTTPRequestEntityTooLarge:
            refusal = errors.TooLarge(f"the body is limited to {MAX_BODY_BYTES} bytes")
        except (asyncio.CancelledError, ConnectionError):
            raise
        except Exception as error:  # an error in one request must not end the server
            log.exception("request failed", method=request.method, path=path)
            refusal = errors.InternalError(f"internal error: {type(error).__name__}")
        return json_response(refusal.status(), status=refusal.code)

    def _authenticated(self, request: web.Request) -> tuple[str, bool]:
        """The path without the token, and whether the client sent the token.

        kubectl never sends credentials over plain HTTP, but kubectl keeps the path of the server's
        URL. So the kubeconfig has the token in this path. Others send the usual header.
        """
        path = request.rel_url.raw_path
        first, slash, rest = path[1:].partition("/")
        if self._is_token(first):
            return slash + rest, True
        scheme, _, credential = request.headers.get("Authorization", "").partition(" ")
        return path, scheme == "Bearer" and self._is_token(credential)

    async def _reviewed(self, request: web.Request, path: str) -> web.Response:
        body = decode(await request.read(), request.headers.get("Content-Type", ""))
        return json_response(self._answered(path, body), status=201)

    def _answered(self, path: str, review: object) -> Object:
        """The review with its status. A review is never stored, as in Kubernetes."""
        spec = review.get("spec") if isinstance(review, dict) else None
        if not isinstance(review, dict) or not isinstance(spec, dict):
            raise errors.BadRequest("spec: required, and must be an object")
        status = _REVIEWS[path]
        if "user" in status and not self._is_token(str(spec.get("token", ""))):
            status = {"user": {}, "error": "the token is not that of this cluster"}
        return {**review, "status": status}

    async def _receive(self, request: web.Request) -> None:
        """Read the whole body of a request. Later calls of `request.read()` return at once.

        Raises: errors.RequestTimeout; web.HTTPRequestEntityTooLarge
        """
        try:
            async with asyncio.timeout(self._timeouts.body_s):
                await request.read()
        except TimeoutError as error:
            why = f"the body of the request did not arrive within {self._timeouts.body_s:g} s"
            raise errors.RequestTimeout(why) from error

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(errors="surrogateescape"), self._token)

    def _document(self, request: web.Request, steps: list[str]) -> web.Response | None:
        """The answer to a request for health, version, discovery or OpenAPI; else None."""
        content: Object | None
        match steps:
            case ["healthz" | "livez" | "readyz"]:
                return web.Response(text="ok")
            case ["version"]:
                content = _VERSION
            case ["api"]:
                content = {"kind": "APIVersions", "versions": ["v1"]}
            case ["apis"]:
                content = discovery.group_list(self._registry)
            case ["apis", group]:
                content = discovery.group(self._registry, group)
            case ["api", version]:
                content = discovery.resource_list(self._registry, version)
            case ["apis", group, version]:
                content = discovery.resource_list(self._registry, f"{group}/{version}")
            case ["openapi", "v2"] if "protobuf" in request.headers.get("Accept", ""):
                return web.Response(body=openapi.V2_DOCUMENT, content_type=openapi.V2_PROTOBUF)
            case ["openapi", "v3", *rest]:
                resources, document_path = self._registry, "/".join(rest)
                content = (
                    openapi.document(resources, document_path)
                    if document_path
                    else openapi.index(resources)
                )
            case _:
                return None
        if content is None:
            raise errors.NotFound("the server could not find the requested resource")
        return json_response(content)


async def serve(
    store: Store,
    *,
    token: str,
    host: str = "127.0.0.1",
    port: int = 0,
    now: Clock = utc_now,
    bookmark_interval_s: float = 60.0,
    timeouts: ClientTimeouts = CLIENT_TIMEOUTS,
) -> Server:
    """Start the server.

    Args:
        token: every request must have this token, because all users of a machine can reach a
            loopback address. Only health and version need no token. A client sends the token as
            a bearer token or as the first step of the path, so the token may have only letters,
            digits, "-" and "_".
        port: 0 takes a free port
        now: UTC clock, for the ages in tables
        timeouts: limits for clients that send nothing
    Raises: StateError for a host that is not loopback, or a port that another process uses
    """
    if not ipaddress.ip_address(host).is_loopback:
        raise StateError(f"{host} is not a loopback address: the API has no TLS")
    api = API(store, now=now, bookmark_interval_s=bookmark_interval_s)
    server = Server(api, store.registry, token, timeouts)
    await server.listen(host, port)
    return server
