"""Authentication and authorization of REST callers, by the Kubernetes API.

A caller shows a token of the Kubernetes API. A TokenReview says who the caller is, and a
SubjectAccessReview says whether the caller may read exactly this. Both answers are remembered for a
short time under a hash. This module bounds the questions: each address has a rate for questions
about tokens, each known caller one for questions about rights, and all together have a rate, so
that a stranger with many false tokens costs the Kubernetes API little.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Collection, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, Final, Protocol

import msgspec
from aiohttp import web

from common.clock import SYSTEM_CLOCK, Clock
from edgeai.addresses import is_loopback
from edgeai.api.resources import Object, ResourceType
from edgeai.errors import Overloaded, Unavailable
from edgeai.ids import is_subdomain
from globalmanager.edge.door.admission import AddressBuckets
from globalmanager.edge.identity.handshake import Unauthenticated, bearer_token
from globalmanager.edge.identity.remembered import Answer, Remembered
from globalmanager.rest.errors import RequestError
from globalmanager.rest.fair_rate import FairRate, Rate
from globalmanager.tokenreviews import TokenReviews

MAX_TOKEN_CHARS: Final = 6 * 1024  # a projected token has 1-2 KiB


class Caller(msgspec.Struct, frozen=True):
    """The caller of a request, as the Kubernetes API reports it. `extra` is passed on unread."""

    username: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, Any] = {}

    @property
    def namespace(self) -> str:
        """Namespace of a ServiceAccount; "" for every other caller."""
        parts = self.username.split(":")
        return parts[2] if parts[:2] == ["system", "serviceaccount"] and len(parts) == 4 else ""

    @property
    def tenant(self) -> str:
        """Whose share of a common rate the caller uses. Whoever owns a namespace can make any
        number of ServiceAccounts there, so all of them are one.
        """
        return f"system:serviceaccount:{self.namespace}" if self.namespace else self.username


class Reading(msgspec.Struct, frozen=True):
    """What a request reads: objects of the Kubernetes API, or a path of this server."""

    verb: str
    type: ResourceType | None = None
    namespace: str = ""
    name: str = ""
    path: str = ""

    def __str__(self) -> str:
        if self.type is None:
            return f"{self.verb} path {self.path!r}"
        where = f" in the namespace {self.namespace!r}" if self.namespace else ""
        about = f"resource {self.type.plural!r} in API group {self.type.group!r}{where}"
        return f"{self.verb} {about}"

    def attributes(self) -> Object:
        """The attributes in the spec of a SubjectAccessReview."""
        if self.type is None:
            return {"nonResourceAttributes": {"path": self.path, "verb": self.verb}}
        attributes = {
            "verb": self.verb,
            "group": self.type.group,
            "version": self.type.version,
            "resource": self.type.plural,
            "namespace": self.namespace,
            "name": self.name,
        }
        return {"resourceAttributes": attributes}


class Access(Protocol):
    """Decides which requests are answered."""

    async def identify(self, request: web.Request, token: str | None = None) -> Caller:
        """Args: token: None: the header's. Raises: RequestError with 401, 429 or 503"""

    async def check(self, request: web.Request, caller: Caller, reading: Reading) -> None:
        """Raises: RequestError with 403, 429 or 503"""


async def is_allowed(
    access: Access, request: web.Request, caller: Caller, reading: Reading
) -> bool:
    """Raises: RequestError with 429 or 503"""
    try:
        await access.check(request, caller, reading)
    except RequestError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        return False
    return True


async def listable(
    access: Access,
    request: web.Request,
    caller: Caller,
    types: Collection[ResourceType],
    namespace: str = "",
) -> frozenset[ResourceType]:
    """Those of the types that the caller may list. Raises: RequestError with 429 or 503"""
    readings = (Reading("list", type_, namespace) for type_ in types)
    may = await asyncio.gather(
        *(is_allowed(access, request, caller, reading) for reading in readings)
    )
    return frozenset(type_ for type_, may_list in zip(types, may, strict=True) if may_list)


class OpenAccess:
    """Everybody who reaches the port may read everything: for an address on loopback.

    A web page of another site can let its own name lead to loopback (DNS rebinding), and then read
    the answers in the visitor's browser. So only requests to a name of loopback are answered.
    """

    async def identify(self, request: web.Request, _token: str | None = None) -> Caller:
        _check_host(request)
        return Caller("")

    async def check(self, request: web.Request, _caller: Caller, _reading: Reading) -> None:
        _check_host(request)


def _check_host(request: web.Request) -> None:
    """Raises: RequestError"""
    try:
        host = request.url.host or ""
    except ValueError:
        host = ""
    if not is_loopback(host):
        problem = (
            f"Host {request.host[:64]!r}: with --http-auth none only names of loopback are "
            "answered; use 127.0.0.1 or localhost"
        )
        raise RequestError(HTTPStatus.FORBIDDEN, problem)


class AccessLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits for the questions to the Kubernetes API, and for the remembered answers."""

    tokens: Rate = Rate(20.0, 100)
    """Questions about tokens, of all callers together."""
    tokens_of_address: Rate = Rate(5.0, 30)
    """Questions about tokens from one IP address (IPv6: one /64), a part of the whole rate,
    so that one stranger cannot use it up."""
    rights: Rate = Rate(60.0, 400)
    """Questions about rights, of all callers together. A page asks about each type of job,
    and who asks is known."""
    rights_of_caller: Rate = Rate(15.0, 90)
    """Questions about the rights of one user, so that nobody can use up the whole rate."""
    answer_s: float = 5.0
    """Longest time in seconds for an answer of the Kubernetes API."""
    good_s: float = 60.0
    """Seconds for which a good token is remembered. A revoked token is good for as long."""
    allowed_s: float = 30.0
    """Seconds for which a right is remembered."""
    refused_s: float = 10.0
    """Seconds for which a false token or a missing right is remembered."""
    answers: int = 10_000
    """Largest number of remembered answers of each kind."""


class KubernetesAccess:
    """Asks the Kubernetes API about callers and rights."""

    def __init__(
        self,
        cluster: TokenReviews,
        *,
        limits: AccessLimits = AccessLimits(),  # noqa: B008 - frozen
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._cluster = cluster
        self._limits = limits
        self._clock = clock
        self._callers: Remembered[Caller | Unauthenticated] = Remembered(limits.answers, clock)
        self._rights: Remembered[bool] = Remembered(limits.answers, clock)
        part = "check of REST callers"
        self._tokens_asked = FairRate(
            of_source=limits.tokens_of_address, total=limits.tokens, part=part, by=AddressBuckets
        )
        self._rights_asked = FairRate(
            of_source=limits.rights_of_caller, total=limits.rights, part=part
        )

    async def identify(self, request: web.Request, token: str | None = None) -> Caller:
        try:
            if token is None:
                token = bearer_token(request.headers.get("Authorization", ""))
            is_word = token.isascii() and token.isprintable() and " " not in token
            if not token or len(token) > MAX_TOKEN_CHARS or not is_word:
                raise Unauthenticated("the bearer token is not a token of the Kubernetes API")
            digest = hashlib.sha256(token.encode()).digest()
            review = await self._callers.answer(digest, partial(self._review, request, token))
        except Unauthenticated as error:
            raise _unauthorized(error.reason) from None
        except Unavailable as error:
            raise _unavailable(error) from error
        if isinstance(review, Unauthenticated):
            raise _unauthorized(review.reason)
        return review

    async def _review(self, request: web.Request, token: str) -> Answer[Caller | Unauthenticated]:
        self._tokens_asked.take(request.remote or "", self._clock.elapsed())
        async with _deadline(self._limits.answer_s):
            status = await self._cluster.review_token(token)
        user = status.get("user") or {}
        if not status.get("authenticated") or not user.get("username"):
            error = Unauthenticated("the Kubernetes API does not accept the token")
            return Answer(error, self._limits.refused_s)
        fields = {name: value for name, value in user.items() if value}
        return Answer(msgspec.convert(fields, Caller), self._limits.good_s)

    async def check(self, request: web.Request, caller: Caller, reading: Reading) -> None:
        spec = {
            "user": caller.username,
            "uid": caller.uid,
            "groups": list(caller.groups),
            "extra": dict(caller.extra),
            **reading.attributes(),
        }
        key = hashlib.sha256(msgspec.json.encode(spec)).digest()
        try:
            may_do = await self._rights.answer(key, partial(self._ask_right, caller, spec))
        except Unavailable as error:
            raise _unavailable(error) from error
        if not may_do:
            message = f"User {caller.username!r} cannot {reading}"
            raise RequestError(HTTPStatus.FORBIDDEN, message)

    async def _ask_right(self, caller: Caller, spec: Object) -> Answer[bool]:
        self._rights_asked.take(caller.username, self._clock.elapsed())
        async with _deadline(self._limits.answer_s):
            status = await self._cluster.review_access(spec)
        may_do = status.get("allowed") is True
        seconds = self._limits.allowed_s if may_do else self._limits.refused_s
        return Answer(may_do, seconds)


@contextlib.asynccontextmanager
async def _deadline(seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        problem = f"the Kubernetes API gave no answer within {seconds:g} s"
        raise Unavailable(problem) from error


def _unauthorized(reason: str) -> RequestError:
    message = f"{reason}: send a token of the Kubernetes API, `Authorization: Bearer <token>`"
    return RequestError(HTTPStatus.UNAUTHORIZED, message, headers={"WWW-Authenticate": "Bearer"})


def _unavailable(error: Unavailable) -> RequestError:
    if isinstance(error, Overloaded):
        message = "too many callers are being checked now"
        return RequestError(HTTPStatus.TOO_MANY_REQUESTS, message)
    return RequestError(HTTPStatus.SERVICE_UNAVAILABLE, f"callers cannot be checked: {error}")


def check_names(*names: str) -> None:
    """Raises: RequestError for a name that no object can have, before anybody is asked about it"""
    for name in names:
        if not is_subdomain(name):
            raise RequestError(HTTPStatus.NOT_FOUND, f"{name[:64]!r} is not a valid object name")
