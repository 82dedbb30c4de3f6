"""A cluster's API over HTTP as far as node tokens go: TokenReviews, scripted."""

import base64
import json
from typing import Any

import msgspec
from aiohttp import web

from common.wire import AUDIENCE
from globalmanager.edge.identity.service_accounts import ServiceAccount
from tests.globalmanager.scripted_api import ScriptedApi

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
    """What the API says; tests change it."""

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
