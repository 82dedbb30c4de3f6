"""A console in front of rights, and browsers that keep cookies."""

import re
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import aiohttp
import pytest

from edgeai.kube.client import KubeClient
from globalmanager.rest.access import KubernetesAccess
from globalmanager.tokenreviews import TokenReviews
from tests.globalmanager.rest.authority import Authority
from tests.globalmanager.rest.cluster import TYPES, RestSide, object_of
from tests.globalmanager.scripted_api import ScriptedApi

BEN = {"username": "system:serviceaccount:b:ben"}


class Answer(NamedTuple):
    status: int
    text: str
    headers: Any

    @property
    def form_key(self) -> str:
        found = re.search(r'name="form_key" value="([0-9a-f]+)"', self.text)
        assert found is not None, self.text
        return found[1]


class Browser:
    """Keeps cookies, and follows no redirect."""

    def __init__(self, world: RestSide, *, local_address: str = "127.0.0.1") -> None:
        self.world = world
        self.client = aiohttp.ClientSession(
            cookie_jar=aiohttp.CookieJar(unsafe=True),
            connector=aiohttp.TCPConnector(local_addr=(local_address, 0)),
        )

    async def get(self, path: str, **headers: str) -> Answer:
        return await self._request("GET", path, headers=headers)

    async def post(
        self, path: str, headers: dict[str, str] | None = None, /, **form: str
    ) -> Answer:
        return await self._request("POST", path, data=form, headers=headers or {})

    async def log_in(self, token: str) -> Answer:
        return await self.post("/login", token=token)

    async def _request(self, method: str, path: str, **options: Any) -> Answer:
        async with self.client.request(
            method, self.world.url + path, allow_redirects=False, **options
        ) as response:
            return Answer(response.status, await response.text(), response.headers)


@pytest.fixture
def authority(scripted: ScriptedApi) -> Authority:
    """Ann lists everything in all namespaces; Ben jobs in the namespace b."""
    authority = Authority(scripted)
    authority.users["ben's"] = BEN
    authority.users["nobody's"] = {"username": "nobody"}
    authority.rights_of["ann"] = [{"verb": "list"}]
    authority.rights_of[BEN["username"]] = [
        {"verb": "list", "namespace": "b", "resource": type_.plural, "group": type_.group}
        for type_ in TYPES
    ]
    return authority


@pytest.fixture
async def guarded(authority: Authority, scripted_client: KubeClient) -> AsyncIterator[RestSide]:
    del authority  # it answers
    async with RestSide(KubernetesAccess(TokenReviews(scripted_client))).running() as world:
        world.cluster.objects = [
            object_of("digits", namespace="a"),
            object_of("faces", namespace="b"),
            object_of("small", namespace="a", plural="models"),
        ]
        yield world


@pytest.fixture
async def browser(guarded: RestSide) -> AsyncIterator[Browser]:
    browser = Browser(guarded)
    async with browser.client:
        yield browser
