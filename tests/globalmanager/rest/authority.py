"""What the Kubernetes API says of tokens and rights, as a scripted answer."""

import asyncio
from typing import Any

import msgspec
from aiohttp import web

from tests.globalmanager.rest.cluster import JI
from tests.globalmanager.scripted_api import ScriptedApi

ANN = {"username": "ann", "uid": "1", "groups": ["readers"], "extra": {"scopes": ["all"]}}


class Authority:
    """What the Kubernetes API says of tokens and rights, and what it was asked."""

    def __init__(self, api: ScriptedApi) -> None:
        self.users: dict[str, dict[str, Any]] = {"ann's": ANN}
        self.rights: list[dict[str, Any]] = []  # of everybody
        self.rights_of: dict[str, list[dict[str, Any]]] = {}  # by user
        self.tokens: list[str] = []
        self.asked: list[dict[str, Any]] = []
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.others = api.failure(404, "NotFound")  # answers whatever is no review
        api.others = [self._answer]
        self._api = api

    def may(self, verb: str, resource: str = JI, group: str = "edgeai.io", **more: str) -> None:
        self.rights.append({"verb": verb, "resource": resource, "group": group, **more})

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        await self.is_open.wait()
        if "reviews" not in request.path:
            return await self.others(request)
        spec = msgspec.json.decode(await request.read())["spec"]
        if "tokenreviews" in request.path:
            self.tokens.append(spec["token"])
            user = self.users.get(spec["token"])
            status = {"authenticated": user is not None, "user": user or {}}
            return await self._api.json({"status": status})(request)
        self.asked.append(spec)
        attributes = spec.get("resourceAttributes") or spec.get("nonResourceAttributes")
        rights = [*self.rights, *self.rights_of.get(spec["user"], ())]
        allowed = any(right.items() <= attributes.items() for right in rights)
        return await self._api.json({"status": {"allowed": allowed}})(request)
