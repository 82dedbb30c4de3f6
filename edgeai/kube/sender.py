"""Sends the requests of `client`, each at the right moment, with the right permission, in time.

A request waits for a slot of its share and for the rate, asks the guard, and has a deadline. Every
failure becomes an ApiError. This module decodes no object, retries nothing and logs nothing but
the warnings of the API server.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from http import HTTPStatus
from typing import Any, Final, NamedTuple, Protocol

import aiohttp
import msgspec

from edgeai.api.resources import ObjectRef
from edgeai.errors import SettingsError, Unavailable
from edgeai.kube import errors
from edgeai.kube.rate import Share, SharedRate
from edgeai.kube.remedies import OF_A_PROCESS, Remedies
from edgeai.kube.slots import Slots
from edgeai.kube.transport import Distrusted, HandshakeRefused, Transport, UnknownHost
from edgeai.kube.warnings import Warnings

_CONTAINER_NOT_FOUND: Final = b"container not found"
RequestHook = Callable[[str, str, float], None]
"""Called with (verb, HTTP code or "none", seconds) after a request, for metrics."""
Check = Callable[[], None]
"""Called immediately before a request is sent, after the wait for the rate. When it raises an
exception, the request is not sent."""


class Shut(Exception):
    """The guard permits no write now."""


class Guard(Protocol):
    """Decides for each write whether the client may send the write, and how long it may take."""

    def passage(self) -> AbstractAsyncContextManager[None]:
        """Entered immediately before a write is sent, left after the answer. Raises: Shut, at the
        start, or during a write when the guard withdraws the permission
        """


def no_check() -> None:
    pass


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    qps: float = 500.0
    """Average requests per second. A server with priority and fairness limits how many requests it
    executes at the same time, and not their rate. This client has fewer requests under way than a
    ServiceAccount may have. So this rate only spares the processors of server and etcd
    (docs/architecture.md)."""
    burst: int = 1000
    """Requests that the client may send at the same moment after a quiet time."""
    plan_requests: int = 1
    """Largest number of plans' requests that are under way at the same time while assignments
    change or reports wait, and of plans' status writes; see `slots`."""
    calm_plan_requests: int = 16
    """The same number while no assignment changes and no report waits."""
    report_requests: int = 4
    """Largest number of status writes for edges' reports that are under way at the same time."""
    slot_hold_s: float = 0.1
    """Seconds after which a request of a plan or a report no longer counts as under way."""
    remedies: Remedies = OF_A_PROCESS
    """What a person can do when a request fails, for the text of the error."""
    deadline_s: float = 10.0
    """Longest time in seconds for one request and its answer. A watch may also end this much too
    late."""
    list_deadline_s: float = 30.0
    """Longest time in seconds for one page of a list, as in Kubernetes' own service level
    objective."""
    page_size: int = 500
    """Largest number of objects in one page of a list."""
    page_bytes: int = 16 * 1024 * 1024
    """Largest size of one page in bytes. The client asks for fewer objects when a page would be
    larger. 500 objects of the largest size that etcd accepts would have 750 MiB."""


class ApiRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request. `verb` and `target` appear in errors. The client sends the other fields."""

    verb: str
    target: str
    method: str
    path: str
    namespace: str = ""
    query: dict[str, str] = {}
    body: Any = None
    content_type: str = "application/json"
    accept: str = "application/json"

    def failed(self, class_: type[errors.ApiError], message: str) -> errors.ApiError:
        return class_(self.verb, self.target, message=message)


def request_for(
    verb: str, method: str, ref: ObjectRef, *, subresource: str = "", **fields: Any
) -> ApiRequest:
    """A request about one object. Args: fields: further ones of ApiRequest"""
    return ApiRequest(
        verb=verb,
        target=str(ref),
        method=method,
        path=ref.type.path(ref.namespace, ref.name, subresource),
        namespace=ref.namespace,
        **fields,
    )


class Policy(NamedTuple):
    """How a client sends requests. Its policies share connections, and all but `apart` the rate."""

    transport: Transport
    settings: ClientSettings
    on_request: RequestHook
    rate: SharedRate
    warnings: Warnings
    slots: Mapping[Share, Slots]
    """A share without slots waits for the rate alone."""
    share: Share = Share.OTHER
    guard: Guard | None = None
    """Decides on writes; without a guard all are sent."""


def new_policy(transport: Transport, settings: ClientSettings, on_request: RequestHook) -> Policy:
    """A policy with a rate and slots of its own."""
    reports = Slots(settings.report_requests, hold_s=settings.slot_hold_s)
    slots = {Share.REPORTS: reports}
    for share in (Share.PLANS, Share.STATUSES):
        slots[share] = Slots(
            settings.plan_requests,
            calm=settings.calm_plan_requests,
            before=reports,
            hold_s=settings.slot_hold_s,
        )
    return Policy(transport, settings, on_request, rate_of(settings), Warnings(), slots)


def rate_of(settings: ClientSettings) -> SharedRate:
    return SharedRate(qps=settings.qps, burst=settings.burst)


class Sender:
    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    async def redial(self, *, deadline_s: float) -> None:
        """As KubeClient.redial."""
        fresh = Sender(self.policy._replace(transport=self.policy.transport.anew()))
        # Every authenticated client may read the version, and the answer needs no storage.
        request = ApiRequest(verb="get", target="version", method="GET", path="/version")
        try:
            await fresh._ask(request, deadline_s)
        except BaseException:
            await fresh.policy.transport.close()
            raise
        await self.policy.transport.take_over(fresh.policy.transport)

    async def _ask(self, request: ApiRequest, deadline_s: float) -> None:
        """Wait for an answer. A refusal is an answer too. Raises: ApiError, Overloaded"""
        try:
            async with self.answered(request, deadline_s):
                pass
        except errors.ApiError as error:
            if isinstance(error, Unavailable) or not error.code:
                raise

    @asynccontextmanager
    async def socket(
        self, request: ApiRequest, query: Sequence[tuple[str, str]], *, protocol: str
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """A WebSocket. The deadline covers only the handshake.

        Raises: ApiError, also when the connection breaks in the `with` body
        """
        async with (
            self._admitted(request),
            self._connected(request, self.policy.settings.deadline_s) as deadline,
        ):
            with self._measured(request) as report:
                try:
                    async with self.policy.transport.websocket(
                        request.path, query=query, protocol=protocol
                    ) as socket:
                        report(HTTPStatus.SWITCHING_PROTOCOLS)
                        deadline.reschedule(None)
                        yield socket
                except HandshakeRefused as refused:
                    report(refused.status)
                    if _CONTAINER_NOT_FOUND in refused.body:  # a kubelet's answer has no Status
                        problem = f"container not found: {dict(query).get('container', '')}"
                        raise request.failed(errors.NotFound, problem) from None
                    raise await self._refusal(
                        request, refused.status, refused.body, refused.retry_after
                    ) from None

    @asynccontextmanager
    async def answered(
        self,
        request: ApiRequest,
        deadline_s: float,
        *,
        is_stream: bool = False,
        check: Check = no_check,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A successful answer. The body is not read yet.

        Args:
            is_stream: True when the deadline covers only the headers. Otherwise the deadline covers
                the whole body of the `with` statement
        Raises: ApiError
        """
        async with self._admitted(request):
            check()
            async with (
                self._connected(request, deadline_s) as deadline,
                self._send(request) as response,
            ):
                if not 200 <= response.status < 300:
                    body, retry_after = await response.read(), response.headers.get("Retry-After")
                    raise await self._refusal(request, response.status, body, retry_after)
                if is_stream:
                    deadline.reschedule(None)
                yield response

    @asynccontextmanager
    async def _admitted(self, request: ApiRequest) -> AsyncIterator[None]:
        """Wait for a slot of the share, and then for the rate: a Retry-After of the server thus
        also holds the requests that wait for a slot.
        """
        slots = self.policy.slots.get(self.policy.share)
        if slots is None:
            await self.policy.rate.acquire(self.policy.share)
            yield
            return
        async with slots.taken(request.namespace) as start:
            await self.policy.rate.acquire(self.policy.share)
            start()
            yield

    @asynccontextmanager
    async def _connected(
        self, request: ApiRequest, deadline_s: float
    ) -> AsyncIterator[asyncio.Timeout]:
        """The deadline of a request that has the guard's permission. Errors of the `with` body
        become errors of the request. Raises: ApiError
        """
        try:
            async with self._passage(request), asyncio.timeout(deadline_s) as deadline:
                yield deadline
        except Shut as error:
            raise request.failed(errors.NotLeading, "this replica is not the leader") from error
        except TimeoutError as error:
            problem = f"no answer within {deadline_s:g} s"
            remedy = self.policy.settings.remedies.silent
            raise self._failed(request, errors.Silent, problem, remedy) from error
        except ConnectionError as error:
            remedy = self._remedy_of(error)
            raise self._failed(request, errors.Unreachable, str(error), remedy) from error

    def malformed(self, request: ApiRequest, problem: str) -> errors.ApiError:
        """The error for an answer that no Kubernetes API gives."""
        remedy = self.policy.settings.remedies.no_api
        return self._failed(request, errors.Malformed, problem, remedy)

    def _failed(
        self, request: ApiRequest, class_: type[errors.ApiError], problem: str, remedy: str
    ) -> errors.ApiError:
        advice = remedy.format(source=self.policy.transport.source)
        return class_(request.verb, request.target, message=problem, remedy=advice)

    def _remedy_of(self, error: ConnectionError) -> str:
        remedies = self.policy.settings.remedies
        if isinstance(error, Distrusted):
            return remedies.distrusted
        return remedies.unknown_host if isinstance(error, UnknownHost) else remedies.unreachable

    def _passage(self, request: ApiRequest) -> AbstractAsyncContextManager[None]:
        is_read = request.verb in ("get", "list", "watch")
        guard = self.policy.guard
        return nullcontext() if guard is None or is_read else guard.passage()

    @asynccontextmanager
    async def _send(self, request: ApiRequest) -> AsyncIterator[aiohttp.ClientResponse]:
        with self._measured(request) as report:
            async with self.policy.transport.request(
                request.method,
                request.path,
                query={name: value for name, value in request.query.items() if value},
                body=None if request.body is None else msgspec.json.encode(request.body),
                content_type=request.content_type,
                accept=request.accept,
            ) as response:
                report(response.status)
                self.policy.warnings.hear(request.target, response.headers.getall("Warning", ()))
                yield response

    @contextmanager
    def _measured(self, request: ApiRequest) -> Iterator[Callable[[int | str], None]]:
        """Reports the request to the hook: when the caller calls the function with the HTTP status,
        or at the end when there was no answer.
        """
        start_s = asyncio.get_running_loop().time()
        is_reported = False

        def report(code: int | str) -> None:
            nonlocal is_reported
            if not is_reported:
                is_reported = True
                seconds = asyncio.get_running_loop().time() - start_s
                self.policy.on_request(request.verb, str(code), seconds)

        try:
            yield report
        finally:
            report("none")

    async def _refusal(
        self, request: ApiRequest, status: int, body: bytes, retry_after: str | None
    ) -> errors.ApiError:
        error = errors.from_answer(
            request.verb,
            request.target,
            status,
            body,
            retry_after,
            source=self.policy.transport.source,
            remedies=self.policy.settings.remedies,
        )
        if isinstance(error, errors.TooManyRequests):
            # slow down all requests with this client's rate
            now = asyncio.get_running_loop().time()
            self.policy.rate.hold(now, error.retry_after_s)
        if isinstance(error, errors.Unauthorized):
            try:
                await self.policy.transport.renew()  # the caller's next try uses the new token
            except SettingsError as problem:  # an administrator may still correct the file
                remedy = self.policy.settings.remedies.unauthorized
                return self._failed(request, errors.Unauthorized, str(problem), remedy)
        return error
