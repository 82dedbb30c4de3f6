"""ServiceAccount tokens: who is let in, what is remembered, and what the cluster is asked."""

import asyncio
import base64
import contextlib
import json
import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from common import clock as clocks
from common import wire
from common.wire import AUDIENCE
from edgeai.errors import Unavailable
from edgeai.kube.client import KubeClient
from globalmanager.edge.identity.handshake import Handshake, Unauthenticated
from globalmanager.edge.identity.service_accounts import (
    MAX_TOKEN_CHARS,
    ReviewLimits,
    ServiceAccount,
    ServiceAccountAuthenticator,
)
from globalmanager.tokenreviews import TokenReviews
from tests.globalmanager.edge.world import A, EdgeSide, dial
from tests.globalmanager.scripted_api import ScriptedApi
from tests.support.clock import Clock
from tests.support.waiting import async_eventually

ACCOUNT = ServiceAccount("edgeai-system", "localcontroller")
EXTRA = "authentication.kubernetes.io/"


def segment(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def jwt(n: int = 0, **claims: Any) -> str:
    """A token that says of itself what a good one does; its signature is for the cluster."""
    said = {"aud": [AUDIENCE], "sub": ACCOUNT.username, "n": n, **claims}
    payload = segment(json.dumps(said).encode())
    return f"{segment(b'{}')}.{payload}.{segment(b'signature of s3cr3t-token')}"


class TokenApi:
    """What the API says of node tokens; tests change it."""

    def __init__(self, api: ScriptedApi) -> None:
        self._api = api
        api.others = [self._answer]
        self.authenticated = True
        self.error = ""
        self.audiences: list[str] | None = [AUDIENCE]
        self.username = ACCOUNT.username
        self.extra = {
            "pod-name": ["lc-1"],
            "pod-uid": ["pod-uid-1"],
            "node-name": ["node-0"],
        }
        self.fails_with = 0  # HTTP status of every answer
        self.hangs = False

    @property
    def reviews(self) -> list[dict[str, Any]]:
        """The TokenReviews that were asked for."""
        pairs = zip(self._api.seen, self._api.bodies, strict=True)
        return [json.loads(body) for request, body in pairs if request.method == "POST"]

    @property
    def requests(self) -> int:
        return len(self._api.seen)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if self.hangs:
            await self._api.released.wait()
        if self.fails_with:
            return _json({"kind": "Status", "code": self.fails_with}, self.fails_with)
        if request.path == "/apis/authentication.k8s.io/v1/tokenreviews":
            return _json({"kind": "TokenReview", "status": self._status()}, 201)
        return _json({"kind": "Status", "code": 404, "reason": "NotFound"}, 404)

    def _status(self) -> dict[str, Any]:
        if not self.authenticated:
            return {"user": {}, "error": self.error}
        extra = {EXTRA + name: values for name, values in self.extra.items()}
        user = {"username": self.username, "extra": extra}
        status = {"authenticated": True, "user": user}
        return status if self.audiences is None else {**status, "audiences": self.audiences}


def _json(body: object, status: int) -> web.Response:
    return web.Response(
        status=status, body=msgspec.json.encode(body), content_type="application/json"
    )


QUICKLY_S = 0.05  # between two reviews of a session


@pytest.fixture
def cluster(scripted: ScriptedApi) -> TokenApi:
    return TokenApi(scripted)


@pytest.fixture
def authenticator(
    cluster: TokenApi, scripted_client: KubeClient, clock: Clock
) -> ServiceAccountAuthenticator:
    del cluster  # it answers
    return authenticator_of(scripted_client, clock)


def authenticator_of(
    client: KubeClient, clock: clocks.Clock = clocks.SYSTEM_CLOCK, **limits: Any
) -> ServiceAccountAuthenticator:
    return ServiceAccountAuthenticator(
        TokenReviews(client), ACCOUNT, limits=ReviewLimits(**limits), clock=clock
    )


def shown(token: str, claimed: str = "") -> Handshake:
    return Handshake(f"Bearer {token}", claimed, "127.0.0.1")


async def test_a_token_gives_the_node_of_its_pod(
    authenticator: ServiceAccountAuthenticator, cluster: TokenApi
) -> None:
    assert await authenticator.authenticate(shown(jwt(), A)) == "node-0"
    (review,) = cluster.reviews
    assert review["kind"] == "TokenReview"
    assert review["spec"] == {"token": jwt(), "audiences": [AUDIENCE]}
    assert cluster.requests == 1


IMPLAUSIBLE = {
    "nothing": "",
    "garbage": "garbage",
    "two segments": jwt().rpartition(".")[0],
    "four segments": jwt() + ".x",
    "an empty segment": "a..b",
    "claims that are no base64": "a.b.c",
    "claims that are no JSON": f"a.{segment(b'no json')}.c",
    "claims that are a list": f"a.{segment(b'[]')}.c",
    "claims without end": f"a.{segment(b'[' * 5000)}.c",
    "claims within claims": f"a.{segment(b'{' + b'%s' % (b'[' * 2000) + b'}')}.c",
    "bytes that are no text": "a.\udcff.c",
    "huge": jwt(more="x" * MAX_TOKEN_CHARS),
    "for the API server": jwt(aud=["https://kubernetes.default.svc"]),
    "for nobody": jwt(aud=[]),
    "for an audience that begins alike": jwt(aud=AUDIENCE + "s"),
    "of another ServiceAccount": jwt(sub="system:serviceaccount:edgeai-system:default"),
    "of another namespace": jwt(sub="system:serviceaccount:default:localcontroller"),
    "of a person": jwt(sub="admin"),
}


@pytest.mark.parametrize("token", IMPLAUSIBLE.values(), ids=IMPLAUSIBLE.keys())
async def test_what_cannot_be_good_is_refused_without_a_request(
    authenticator: ServiceAccountAuthenticator, cluster: TokenApi, token: str
) -> None:
    with pytest.raises(Unauthenticated):
        await authenticator.authenticate(shown(token))
    assert cluster.requests == 0


NOT_GOOD: dict[str, Callable[[TokenApi], object]] = {
    "expired": lambda c: vars(c).update(authenticated=False, error="token has expired"),
    "no reason": lambda c: vars(c).update(authenticated=False),
    "another audience": lambda c: vars(c).update(audiences=["https://kubernetes.default.svc"]),
    "a server without audiences": lambda c: vars(c).update(audiences=None),
    "another ServiceAccount": lambda c: vars(c).update(username="system:serviceaccount:a:b"),
    "bound to no pod": lambda c: c.extra.clear(),
    "a pod without uid": lambda c: c.extra.pop("pod-uid"),
    "two pods": lambda c: c.extra.update({"pod-name": ["lc-1", "lc-2"]}),
    "no node": lambda c: c.extra.pop("node-name"),
    "two nodes": lambda c: c.extra.update({"node-name": ["node-0", "node-1"]}),
    "a node that is a path": lambda c: c.extra.update({"node-name": ["../pods/x"]}),
}


@pytest.mark.parametrize("change", NOT_GOOD.values(), ids=NOT_GOOD.keys())
async def test_no_other_token_is_good(
    authenticator: ServiceAccountAuthenticator,
    cluster: TokenApi,
    change: Callable[[TokenApi], object],
) -> None:
    change(cluster)
    with pytest.raises(Unauthenticated):
        await authenticator.authenticate(shown(jwt()))


async def test_a_node_cannot_claim_to_be_another(
    authenticator: ServiceAccountAuthenticator,
) -> None:
    with pytest.raises(Unauthenticated):
        await authenticator.authenticate(shown(jwt(), "node-1"))
    assert await authenticator.authenticate(shown(jwt(), "node-0")) == "node-0"


@pytest.mark.parametrize("status", [401, 403, 404, 409, 422, 429, 500, 503])
async def test_an_api_that_does_not_answer_is_no_verdict(
    authenticator: ServiceAccountAuthenticator, cluster: TokenApi, status: int
) -> None:
    """401 and 403 are about the GlobalManager's rights, not about the token it asks for."""
    cluster.fails_with = status
    with pytest.raises(Unavailable):
        await authenticator.authenticate(shown(jwt()))


async def test_an_api_that_hangs_is_no_verdict_within_the_handshake(
    cluster: TokenApi, scripted_client: KubeClient
) -> None:
    cluster.hangs = True
    authenticator = authenticator_of(scripted_client, answer_s=0.1)
    with pytest.raises(Unavailable, match=r"0\.1 s"):
        await authenticator.authenticate(shown(jwt()))


# ---- what is remembered ------------------------------------------------------------------------


async def test_a_good_token_is_remembered_for_a_while(
    authenticator: ServiceAccountAuthenticator, cluster: TokenApi, clock: Clock
) -> None:
    await authenticator.authenticate(shown(jwt()))
    cluster.authenticated = False
    clock.now_s += 59
    assert await authenticator.authenticate(shown(jwt())) == "node-0"
    assert len(cluster.reviews) == 1
    clock.now_s += 2
    with pytest.raises(Unauthenticated):
        await authenticator.authenticate(shown(jwt()))


async def test_a_bad_token_is_remembered_shortly(
    authenticator: ServiceAccountAuthenticator, cluster: TokenApi, clock: Clock
) -> None:
    cluster.authenticated = False
    for _ in range(3):
        with pytest.raises(Unauthenticated):
            await authenticator.authenticate(shown(jwt()))
    assert len(cluster.reviews) == 1
    cluster.authenticated = True
    clock.now_s += 6
    assert await authenticator.authenticate(shown(jwt())) == "node-0"


async def test_an_api_that_is_away_is_asked_again_soon(
    authenticator: ServiceAccountAuthenticator, cluster: TokenApi, clock: Clock
) -> None:
    cluster.fails_with = 500
    with pytest.raises(Unavailable):
        await authenticator.authenticate(shown(jwt()))
    cluster.fails_with = 0
    clock.now_s += 1.1
    assert await authenticator.authenticate(shown(jwt())) == "node-0"


async def test_memory_is_bounded_and_holds_no_token(
    cluster: TokenApi, scripted_client: KubeClient, clock: Clock
) -> None:
    authenticator = authenticator_of(scripted_client, clock, max_tokens=3)
    for n in range(5):
        await authenticator.authenticate(shown(jwt(n)))
    assert len(authenticator._verdicts) == 3
    assert jwt(4) not in repr(authenticator._verdicts._answers)
    await authenticator.authenticate(shown(jwt(4)))
    assert len(cluster.reviews) == 5
    await authenticator.authenticate(shown(jwt(0)))
    assert len(cluster.reviews) == 6


async def test_handshakes_with_one_token_share_a_review(
    authenticator: ServiceAccountAuthenticator, cluster: TokenApi
) -> None:
    many = [authenticator.authenticate(shown(jwt())) for _ in range(20)]
    assert await asyncio.gather(*many) == ["node-0"] * 20
    assert len(cluster.reviews) == 1


async def test_a_peer_that_hangs_up_takes_nobody_along(
    authenticator: ServiceAccountAuthenticator, cluster: TokenApi
) -> None:
    cluster.hangs = True
    first, *others = [
        asyncio.create_task(authenticator.authenticate(shown(jwt()))) for _ in range(5)
    ]
    await async_eventually("cluster.requests", lambda: cluster.requests)
    cluster.hangs = False
    first.cancel()
    assert await asyncio.gather(*others) == ["node-0"] * 4
    assert len(cluster.reviews) == 2


async def test_a_flood_of_unknown_tokens_costs_the_api_little(
    cluster: TokenApi, scripted_client: KubeClient, clock: Clock
) -> None:
    """And what is known, or a live session, gets through meanwhile."""
    cluster.authenticated = False
    authenticator = authenticator_of(scripted_client, clock, per_s=1.0, burst=5)
    outcomes = []
    for n in range(30):
        try:
            await authenticator.authenticate(shown(jwt(n)))
        except (Unauthenticated, Unavailable) as error:
            outcomes.append(type(error).__name__)
    assert outcomes == ["Unauthenticated"] * 5 + ["Overloaded"] * 25
    assert cluster.requests == 5
    with pytest.raises(Unauthenticated):
        await authenticator.authenticate(shown(jwt(0)))
    with pytest.raises(Unauthenticated):
        await authenticator.review(shown(jwt(100)))


async def test_a_review_is_not_from_memory_and_is_remembered(
    authenticator: ServiceAccountAuthenticator, cluster: TokenApi
) -> None:
    await authenticator.authenticate(shown(jwt()))
    cluster.authenticated = False
    with pytest.raises(Unauthenticated):
        await authenticator.review(shown(jwt()))
    with pytest.raises(Unauthenticated):
        await authenticator.authenticate(shown(jwt()))
    assert len(cluster.reviews) == 2


async def test_a_review_that_gets_no_answer_changes_nothing(
    authenticator: ServiceAccountAuthenticator, cluster: TokenApi
) -> None:
    await authenticator.authenticate(shown(jwt()))
    cluster.fails_with = 500
    with pytest.raises(Unavailable):
        await authenticator.review(shown(jwt()))
    assert await authenticator.authenticate(shown(jwt())) == "node-0"


# ---- on the port -------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def world_of(tmp_path: Path, client: KubeClient) -> Any:
    world = EdgeSide(
        tmp_path / "tokens", authenticator=authenticator_of(client), review_s=QUICKLY_S
    )
    async with world.running():
        yield world


async def status_of(world: EdgeSide, token: str) -> tuple[int, str]:
    """Status of a refused handshake, and its Retry-After."""
    reader, writer = await asyncio.open_connection(*world.server.address)
    writer.write(
        f"GET / HTTP/1.1\r\nHost: gm\r\nAuthorization: Bearer {token}\r\nUpgrade: websocket\r\n"
        f"Connection: Upgrade\r\nSec-WebSocket-Protocol: {wire.SUBPROTOCOL}\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
    )
    answer = (await asyncio.wait_for(reader.read(), 5)).decode()
    writer.close()
    retry_after = [line for line in answer.splitlines() if line.startswith("Retry-After: ")]
    return int(answer.split()[1]), "".join(retry_after).removeprefix("Retry-After: ")


async def test_what_the_peer_is_told(
    tmp_path: Path, cluster: TokenApi, scripted_client: KubeClient
) -> None:
    async with world_of(tmp_path, scripted_client) as world:
        assert await status_of(world, "garbage") == (401, "")
        cluster.fails_with = 500
        status, retry_after = await status_of(world, jwt(1))
        assert (status, int(retry_after) >= 1) == (503, True)
        cluster.fails_with, cluster.authenticated = 0, False
        assert await status_of(world, jwt(2)) == (401, "")


def reviews(world: EdgeSide, outcome: str) -> float:
    return world.sample("edgeai_edge_reviews_total", outcome=outcome)


async def more_reviews(world: EdgeSide, outcome: str) -> None:
    """Two, from now on: the second began after now."""
    wanted = reviews(world, outcome) + 2
    await async_eventually(
        "reviews(world, outcome) >= wanted", lambda: reviews(world, outcome) >= wanted
    )


REVOKED: dict[str, Callable[[TokenApi], object]] = {
    name: NOT_GOOD[name] for name in ("another ServiceAccount", "bound to no pod", "expired")
}


@pytest.mark.parametrize("change", REVOKED.values(), ids=REVOKED.keys())
async def test_a_session_whose_token_is_no_longer_good_is_closed(
    tmp_path: Path,
    cluster: TokenApi,
    scripted_client: KubeClient,
    change: Callable[[TokenApi], object],
) -> None:
    async with world_of(tmp_path, scripted_client) as world:
        async with dial(world.url, jwt()) as websocket:
            await more_reviews(world, "good")
            change(cluster)
            await asyncio.wait_for(websocket.wait_closed(), 5)
            assert websocket.close_code == wire.Close.REVOKED
        assert await status_of(world, jwt()) == (401, "")
        assert reviews(world, "revoked") == 1


async def test_an_api_that_is_away_closes_no_session(
    tmp_path: Path,
    cluster: TokenApi,
    scripted_client: KubeClient,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with (
        world_of(tmp_path, scripted_client) as world,
        dial(world.url, jwt()) as websocket,
    ):
        for status in (500, 403, 401):
            cluster.fails_with = status
            await more_reviews(world, "unavailable")
        cluster.fails_with = 0
        await more_reviews(world, "good")
        assert websocket.close_code is None
    assert capsys.readouterr().out.count("cannot be reviewed now") == 1


async def test_a_token_is_in_no_log_and_in_no_error(
    tmp_path: Path,
    cluster: TokenApi,
    scripted_client: KubeClient,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Not even where the cluster repeats it."""
    caplog.set_level(logging.DEBUG, "globalmanager")  # others never log below WARNING
    cluster.authenticated, cluster.error = False, f"bad token {jwt(1)}"
    authenticator = authenticator_of(scripted_client)
    for n, fails_with in enumerate((0, 403, 500), start=1):
        cluster.fails_with = fails_with
        with pytest.raises((Unauthenticated, Unavailable)) as raised:
            await authenticator.authenticate(shown(jwt(n)))
        assert jwt(n) not in "".join(traceback.format_exception(raised.value))
    async with world_of(tmp_path, scripted_client) as world:
        for token in (jwt(1), jwt(aud="x"), *IMPLAUSIBLE.values()):
            if token.isascii():
                await status_of(world, token)
    logged = capsys.readouterr().out + caplog.text
    assert "peer not authenticated" in logged
    assert segment(b"signature of s3cr3t-token") not in logged
    assert jwt().split(".")[1] not in logged
