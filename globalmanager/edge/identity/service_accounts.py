"""Identity by a pod's projected ServiceAccount token: a TokenReview names the node of the pod.

A verdict is remembered for a short time under the hash of the token. The questions about unknown
tokens have a rate, so a flood of tokens cannot use up the request rate of the Kubernetes API.
"""

import asyncio
import base64
import binascii
import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec

from common.clock import SYSTEM_CLOCK, Clock
from common.ratelimit import TokenBucket
from common.wire import AUDIENCE
from edgeai.errors import Unavailable
from edgeai.ids import NodeName, is_subdomain
from globalmanager.edge.identity.handshake import (
    Handshake,
    Unauthenticated,
    bearer_token,
    check_claim,
)
from globalmanager.edge.identity.remembered import Answer, Remembered

MAX_TOKEN_CHARS: Final = 8 * 1024  # a projected token has 1-2 KiB
_JWT: Final = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+", re.ASCII)
_EXTRA: Final = "authentication.kubernetes.io/"
_MAX_SAID_CHARS: Final = 200

Object = Mapping[str, Any]


class Cluster(Protocol):
    """The question to the Kubernetes API. Only its answer can refuse a node."""

    async def review_token(self, token: str, audience: str) -> Object:
        """The `status` of the TokenReview for this token. Raises: Unavailable"""


class ServiceAccount(msgspec.Struct, frozen=True):
    namespace: str
    name: str

    @property
    def username(self) -> str:
        return f"system:serviceaccount:{self.namespace}:{self.name}"


class ReviewLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits for the questions to the cluster, and for the number of remembered answers."""

    per_s: float = 50.0
    """Checks of unknown tokens per second. Each takes one request."""
    burst: int = 100
    """Unknown tokens that may arrive at the same moment after a pause."""
    reviews_per_s: float = 20.0
    """Reviews of the tokens of live sessions per second."""
    answer_s: float = 4.0
    """Longest time for the cluster's answer, in seconds, shorter than that for a handshake."""
    good_s: float = 60.0
    """Seconds for which a good token is remembered."""
    bad_s: float = 5.0
    """The same of a bad token. A LocalController waits longer before it comes with a new one."""
    away_s: float = 1.0
    """The same of a token about which the cluster gave no answer."""
    max_tokens: int = 20_000
    """Largest number of remembered tokens."""


Verdict = NodeName | Unauthenticated | Unavailable
"""The answer about one token: the token's node, or the reason why there is no node."""


class ServiceAccountAuthenticator:
    """Finds the node of a connection by a projected token of the LocalController's pod.

    Args: account: the LocalControllers' ServiceAccount. A token of another account is refused
    """

    def __init__(
        self,
        cluster: Cluster,
        account: ServiceAccount,
        *,
        limits: ReviewLimits = ReviewLimits(),  # noqa: B008 - frozen
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._cluster = cluster
        self._account = account
        self._limits = limits
        self._clock = clock
        self._verdicts: Remembered[Verdict] = Remembered(limits.max_tokens, clock)
        self._new_tokens = TokenBucket(
            qps=limits.per_s, burst=limits.burst, max_wait_s=0.0, part="review of node tokens"
        )
        self._live_sessions = TokenBucket(
            qps=limits.reviews_per_s,
            burst=max(1, round(limits.reviews_per_s)),
            part="review of live sessions",
        )

    async def authenticate(self, handshake: Handshake) -> NodeName:
        """Raises: Overloaded also when there are too many unknown tokens"""
        token = self._plausible_token(handshake)

        async def ask() -> Answer[Verdict]:
            self._new_tokens.reserve(self._clock.elapsed())
            return self._kept(await self._ask(token))

        verdict = await self._verdicts.answer(_digest_of(token), ask)
        return _node_of_verdict(verdict, handshake)

    async def review(self, handshake: Handshake) -> NodeName:
        token = self._plausible_token(handshake)
        await self._live_sessions.acquire()
        verdict = await self._ask(token)
        if not isinstance(verdict, Unavailable):
            self._verdicts.put(_digest_of(token), self._kept(verdict))
        return _node_of_verdict(verdict, handshake)

    def _plausible_token(self, handshake: Handshake) -> str:
        token = bearer_token(handshake.authorization)
        check_shape(token, self._account)
        return token

    def _kept(self, verdict: Verdict) -> Answer[Verdict]:
        limits = self._limits
        seconds = {Unauthenticated: limits.bad_s, Unavailable: limits.away_s}
        return Answer(verdict, seconds.get(type(verdict), limits.good_s))

    async def _ask(self, token: str) -> Verdict:
        try:
            async with asyncio.timeout(self._limits.answer_s):
                status = await self._cluster.review_token(token, AUDIENCE)
                return node_of_review(status, token, self._account)
        except Unauthenticated as error:
            return Unauthenticated(error.reason)
        except Unavailable as error:
            return Unavailable(str(error))
        except TimeoutError:
            return Unavailable(
                f"the Kubernetes API gave no answer within {self._limits.answer_s:g} s"
            )


def _digest_of(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _node_of_verdict(verdict: Verdict, handshake: Handshake) -> NodeName:
    """The node of a remembered verdict. Raises: Unauthenticated, Unavailable"""
    if isinstance(verdict, Unauthenticated):
        # a new exception, because a shared one would collect all tracebacks
        raise Unauthenticated(verdict.reason)
    if isinstance(verdict, Unavailable):
        raise Unavailable(str(verdict))
    check_claim(handshake, verdict)
    return verdict


def node_of_review(status: Object, token: str, account: ServiceAccount) -> NodeName:
    """The node of the pod that a token is bound to. The API server puts it into the token, and
    knows whether the pod is still there.

    Raises: Unauthenticated
    """
    if not status.get("authenticated"):
        reason = str(status.get("error") or "it gives no reason").replace(token, "…")
        raise Unauthenticated(f"the cluster rejects the token: {reason[:_MAX_SAID_CHARS]}")
    # One that does not know audiences accepts tokens for each of them, and names none.
    if AUDIENCE not in (status.get("audiences") or ()):
        raise Unauthenticated(f"the token is not for the audience {AUDIENCE}")
    user = status.get("user") or {}
    if user.get("username") != account.username:
        raise Unauthenticated(f"the token is not of {account.username}")
    extra = {
        name.removeprefix(_EXTRA): values[0]
        for name, values in (user.get("extra") or {}).items()
        if name.startswith(_EXTRA) and len(values) == 1
    }
    if not extra.get("pod-name") or not extra.get("pod-uid"):
        raise Unauthenticated("the token is bound to no pod; it must be a projected one")
    node = extra.get("node-name", "")
    if not is_subdomain(node):
        raise Unauthenticated("the token names no node: its pod was on none when it was issued")
    return NodeName(node)


class Claims(msgspec.Struct, frozen=True):
    """Unverified claims of a token: perhaps a reason to refuse it, but never to accept it."""

    aud: str | list[str] = ""
    sub: str = ""


def check_shape(token: str, account: ServiceAccount) -> None:
    """Raises: Unauthenticated when the cluster would certainly refuse the token, for its form"""
    if len(token) > MAX_TOKEN_CHARS or not _JWT.fullmatch(token):
        raise Unauthenticated("the token is no JSON web token of a ServiceAccount")
    claims = _claims(token.split(".")[1])
    audiences = [claims.aud] if isinstance(claims.aud, str) else claims.aud
    if AUDIENCE not in audiences:
        raise Unauthenticated(f"the token is not for the audience {AUDIENCE}")
    if claims.sub != account.username:
        raise Unauthenticated(f"the token is not of {account.username}")


def _claims(segment: str) -> Claims:
    try:
        raw = base64.b64decode(segment + "=" * (-len(segment) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(raw, type=Claims)
    except (binascii.Error, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # `from None` hides the original error, because the original error quotes the token.
        raise Unauthenticated("the token's claims cannot be read") from None
