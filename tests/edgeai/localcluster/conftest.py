"""Fixtures: a real API server on a socket and a SQLite file, one for each test."""

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import msgspec
import pytest

from edgeai.localcluster.api.server import Server, serve
from edgeai.localcluster.controllers.garbage_collector import GarbageCollector
from edgeai.localcluster.objects.resources import Object
from edgeai.localcluster.objects.store import Store
from tests.support import widgets
from tests.support.clock import Clock
from tests.support.manifests import manifest
from tests.support.waiting import PATIENCE_S

T = TypeVar("T")

TOKEN = "token-of-a-test"


class Answer(msgspec.Struct, frozen=True):
    """What the API said: HTTP status, decoded body, headers."""

    status: int
    body: Any
    headers: Any


class Client:
    """Speaks to the API with the right token, unless other headers are given."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session = session
        self.url = url

    async def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        **headers: str,
    ) -> Answer:
        sent = {"Authorization": f"Bearer {TOKEN}"} | headers
        data = None
        if body is not None:
            data = io.BytesIO(body if isinstance(body, bytes) else msgspec.json.encode(body))
            sent["Content-Type"] = content_type
        async with self.session.request(
            method, self.url + path, data=data, headers=sent
        ) as response:
            raw = await response.read()
            is_json = response.content_type == "application/json"
            content = msgspec.json.decode(raw) if is_json else raw.decode()
            return Answer(response.status, content, response.headers)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[Store]:
    store = Store(tmp_path / "state.db", now=clock.utcnow)
    yield store
    store.close()


@pytest.fixture
async def api(store: Store, clock: Clock) -> AsyncIterator[Server]:
    """The server, with the garbage collector beside it."""
    server = await serve(store, token=TOKEN, now=clock.utcnow, bookmark_interval_s=0.05)
    collector = asyncio.create_task(GarbageCollector(store).run(), name="collector")
    yield server
    collector.cancel()
    await asyncio.gather(collector, return_exceptions=True)
    await server.close()


@pytest.fixture
async def client(api: Server) -> AsyncIterator[Client]:
    async with aiohttp.ClientSession() as session:
        yield Client(session, api.url)


def widget_crd(group: str = "edgeai.io", **version: Any) -> Object:
    return widgets.widget_crd(group, **version)


def widget(name: str = "one", *, group: str = "edgeai.io", **spec: Any) -> Object:
    return manifest(f"{group}/v1alpha1 Widget", name, "default", spec={"size": 3, **spec})


def pod(name: str = "one", **spec: Any) -> Object:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "main", "image": "busybox:1"}], **spec},
    }


def configmap(name: str = "one", *, namespace: str = "default", **metadata: Any) -> Object:
    return {"metadata": {"name": name, "namespace": namespace, **metadata}, "data": {"a": "1"}}


async def until(store: Store, check: Callable[[], T | None]) -> T:
    """What `check` returns, as soon as that is true; looks again at every change of the store."""
    changed = asyncio.Event()
    unlisten = store.listen(lambda _: changed.set())
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not (found := check()):
                changed.clear()
                await changed.wait()
            return found
    finally:
        unlisten()
