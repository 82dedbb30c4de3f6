"""The content of Models comes through the relay from Services of their namespace."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from common import wire
from common.relay import frames
from edgeai.ids import TaskKey, Uid, WorkerName
from globalmanager.contract import Assignment, ServicePort
from tests.globalmanager.edge.world import A, dial, token
from tests.localcontroller.hooks.model_world import FileServer, content, part_bytes, sha256
from tests.localcontroller.hooks.server import Answer, Server, serving
from tests.relay.world import RelayWorld
from tests.support.waiting import async_eventually

DATA = content(1_500_000)
HOST = "store.default.svc"
KEY, UID = TaskKey("models.edgeai.io/default/small"), Uid("uid-small")
WORKER = WorkerName(f"small-{A}")


class ModelWorld:
    """A server of the cluster, and a node that reaches it through the relay alone: no address has
    the name of the Service.
    """

    def __init__(self, world: RelayWorld, server: Server, directory: Path) -> None:
        self.world, self.server = world, server
        self.store_dir = directory / "state" / "content"
        self.url = f"http://{HOST}:{server.port}/small.onnx"
        self.targets = frozenset({ServicePort("store", server.port, is_child=False)})
        world.cloud.services[UID, "default", "store"] = "127.0.0.1"

    def assign(self, **spec: Any) -> None:
        self.world.cloud.statuses.by_uid.setdefault(UID, {})
        workers = {WORKER: wire.THE_NODE_ITSELF}
        body = wire.AssignmentBody("default", "small", {"url": self.url, **spec}, workers)
        assignment = Assignment(KEY, UID, 1, body, targets=self.targets)
        self.world.cloud.desired.assign(KEY, {A: assignment})

    def report(self) -> dict[str, Any]:
        return dict(self.world.cloud.statuses.by_uid[UID].get(WORKER, {}))

    async def until_delivered(self, data: bytes = DATA) -> None:
        file = self.store_dir / sha256(data)
        await async_eventually("the content", file.exists, timeout_s=60)
        assert file.read_bytes() == data

    async def until_problem(self) -> str:
        def has_problem() -> bool:
            assert self.report().get("details", {}).get("problem"), f"{self.report()}"
            return True

        await async_eventually("a problem", has_problem, timeout_s=30)
        return f"{self.report()['details']['problem']}: {self.report()['reason']}"


@contextlib.asynccontextmanager
async def cluster_with(answer: Answer, directory: Path) -> AsyncIterator[ModelWorld]:
    async with serving(answer) as server, RelayWorld(directory).running() as world:
        yield ModelWorld(world, server, directory)


async def test_content_comes_byte_for_byte(tmp_path: Path) -> None:
    async with cluster_with(FileServer(DATA), tmp_path) as models:
        models.assign(sha256=sha256(DATA))
        await models.until_delivered()
        assert models.server.requests[0].host == f"{HOST}:{models.server.port}"
        info = models.world.cloud.relays.info(A)
        assert info is not None
        assert info.sent_bytes > len(DATA)


@pytest.mark.parametrize("cut", ["server", "relay"])
async def test_a_cut_download_goes_on_where_it_ended(tmp_path: Path, cut: str) -> None:
    files = FileServer(DATA)
    files.store_dir = tmp_path / "state" / "content"
    released = asyncio.Event()

    async def slowly(request: web.Request) -> web.StreamResponse:
        if cut == "server" or files.ranges:
            return await files(request)
        files.ranges.append("")
        response = web.StreamResponse(headers={"ETag": files.etag})
        response.content_length = len(DATA)
        await response.prepare(request)
        await response.write(DATA[:500_000])
        await released.wait()
        return response

    if cut == "server":
        files.cut_after = 500_000
    async with cluster_with(slowly, tmp_path) as models:
        models.assign()
        await async_eventually("a part", lambda: part_bytes(models.store_dir) >= 500_000)
        if cut == "relay":
            url = models.world.cloud.url
            async with dial(url, token(A), subprotocol=frames.SUBPROTOCOL):
                pass  # it takes the place of the relay
        released.set()
        await models.until_delivered()
        assert files.ranges[0] == ""
        assert all(int(each.removeprefix("bytes=").rstrip("-")) > 0 for each in files.ranges[1:])
        assert len(files.ranges) >= 2


async def test_an_object_of_a_bucket_in_the_cluster(tmp_path: Path) -> None:
    keys = tmp_path / "keys" / "default" / "s3-key"
    keys.mkdir(parents=True)
    async with cluster_with(FileServer(DATA), tmp_path) as models:
        given = {"ACCESS_KEY_ID": "AKID", "SECRET_ACCESS_KEY": "secret"}
        given["S3_ENDPOINT_URL"] = models.url.removesuffix("/small.onnx")
        for name, value in given.items():
            (keys / name).write_text(value)
        models.assign(url="s3://b/small.onnx", credentialName="s3-key")
        await models.until_delivered()
        request = models.server.requests[0]
        assert request.path == "/b/small.onnx"
        assert "AKID" in request.headers["Authorization"]


async def test_a_redirection_leads_nowhere_else(tmp_path: Path) -> None:
    async with serving(FileServer(DATA)) as other:

        async def away(_request: web.Request) -> web.StreamResponse:
            raise web.HTTPFound(f"{other.url}/small.onnx")

        async with cluster_with(away, tmp_path) as models:
            models.assign()
            assert "names 127.0.0.1" in await models.until_problem()
            assert other.requests == []


@pytest.mark.parametrize("case", ["other port", "no target", "no Service", "other namespace"])
async def test_what_the_assignment_does_not_name_is_not_reached(tmp_path: Path, case: str) -> None:
    async with cluster_with(FileServer(DATA), tmp_path) as models:
        port = models.server.port
        match case:
            case "other port":
                models.targets = frozenset({ServicePort("store", port + 1, is_child=False)})
            case "no target":
                models.targets = frozenset()
            case "no Service":
                models.world.cloud.services.clear()
            case "other namespace":
                models.url = models.url.replace(".default.", ".other.")
        models.assign()
        said = {
            "no Service": "Service store of namespace default has no cluster IP, or no selector",
            "other namespace": "no answer over HTTP",
        }.get(case, f"no assignment of worker {WORKER} names {HOST}:{port}")
        problem = await models.until_problem()
        assert problem.startswith("Unavailable: spec.url: ")
        assert said in problem
        assert models.server.requests == []
