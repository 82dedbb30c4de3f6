"""A GlobalManager that is killed at each of its first writes to the API and messages to an edge.

One process after the other reconciles jobs on the same API, until the fault hits it at a later
point than the process before; its successor finds what the fault has left. The LocalController is a
real process and goes on. The promises (DESIGN: I1, I3, I6, I7) are checked at the end.
"""

import asyncio
import base64
import contextlib
import hashlib
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import aiohttp
import pytest
import yaml

from common.ids import Uid
from edgeai.api import Object
from globalmanager.contract import NODES, SECRETS, ObjectRef, ResourceType
from globalmanager.kinds.jointinferenceservice import KIND
from globalmanager.kube.client import KubeClient
from globalmanager.kube.errors import NotFound
from globalmanager.rules.secrets import worker_secret
from tests.cluster.programs import free_port
from tests.cluster.samples import model, service
from tests.globalmanager.cluster import CRDS, Cluster
from tests.localcontroller.test_process import Controller, running
from tests.system.faulty import HITS
from tests.waiting import PATIENCE_S, async_eventually

LIVES: Final = 4
NODE: Final = "edge-1"
TOKEN: Final = "token-of-edge-1"
DIRECTORY: Final = Path(__file__).parents[2] / "deploy" / "crds"
SERVICES, _ = KIND.types
MODELS: Final = ResourceType("edgeai.io", "v1alpha1", "models", "Model")
CHILDREN: Final = (
    ResourceType("apps", "v1", "deployments", "Deployment"),
    ResourceType("", "v1", "services", "Service"),
)
LEASES: Final = ResourceType("coordination.k8s.io", "v1", "leases", "Lease")
DAY_S: Final = 86_400
QUICK: Final = ("--session-beat-s", "0.5", "--session-silence-s", "2", "--contact-grace-s", "2")
# Point -> how many further ones pass in each life: jobs need many writes, and few messages.
POINTS: Final = {"before-write": 4, "after-write": 4, "before-send": 1, "after-send": 1}


class World:
    """The API, the node, and the GlobalManager's place: its ports and files stay over its lives."""

    def __init__(self, cluster: Cluster, client: KubeClient, directory: Path) -> None:
        self.client = client
        self.edge_port, self._http_port = free_port(), free_port()
        self._kubeconfig = cluster.kubeconfig
        self._token_file = directory / "edge-tokens"
        self._token_file.write_text(f"{NODE} {hashlib.sha256(TOKEN.encode()).hexdigest()}\n")
        self.jobs: dict[str, Object] = {}
        self.counted: dict[str, int] = {}  # by job: what its worker was told is kept
        self.children: dict[str, str] = {}  # plural/name -> uid, of all that was ever seen

    @contextlib.asynccontextmanager
    async def manager(self, *fault: str) -> AsyncIterator[Controller]:
        """Args: fault: FAULT, POINT and N of `tests.system.faulty`; nothing: no fault"""
        wrapped = ["tests.system.faulty", *fault] if fault else []
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", *wrapped, "globalmanager"),
            *("--kubeconfig", str(self._kubeconfig), "--system-namespace", "default"),
            *("--edge-token-file", str(self._token_file), "--edge-plaintext", "allow"),
            *("--edge-address", f"127.0.0.1:{self.edge_port}", "--replica-name", "east"),
            *("--http-address", f"127.0.0.1:{self._http_port}", "--http-auth", "none"),
            *QUICK,
            stderr=subprocess.PIPE,
        )
        manager = Controller(process)
        reader = asyncio.create_task(manager.read_log(), name="stderr")
        try:
            yield manager
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
            await reader

    async def work(self, node: Controller, manager: Controller) -> None:
        """Jobs come and report, and one of three goes, until the manager ends."""
        async with asyncio.timeout(PATIENCE_S):
            while manager.process.returncode is None:
                name = f"digits-{len(self.counted)}"
                await self.add_job(name)
                await self.report(node, name, manager)
                if len(self.counted) % 3 == 0:
                    await self.client.delete(ObjectRef(SERVICES, "default", name))
                    del self.jobs[name]
                await self.note_children()

    async def add_job(self, name: str) -> None:
        manifest = service("default", name=name, edge={"nodeName": NODE})
        self.jobs[name], self.counted[name] = await self.client.create(SERVICES, manifest), 0

    async def epoch(self) -> int:
        lease = await self.client.get(ObjectRef(LEASES, "default", "edgeai-globalmanager"))
        return int(lease["spec"]["leaseTransitions"])

    async def report(self, node: Controller, name: str, manager: Controller | None = None) -> None:
        """The worker of this job counts on, unless the manager ends before the node has the job."""
        seen = self.counted[name] + 1
        message = {
            "status": "running",
            "instance": "p1",
            "output": {"taskInfo": {"seen": seen, "uploaded": seen}, "counts": ["uploaded"]},
        }
        async with aiohttp.ClientSession() as session:
            while manager is None or manager.process.returncode is None:
                with contextlib.suppress(NotFound):  # the first manager makes the key
                    url = await node.worker_base(await self._secret(name), f"{name}-edge")
                    async with session.post(url, json=message) as response:
                        if response.status == 200:
                            self.counted[name] = seen
                            return
                await asyncio.sleep(0.05)

    async def _secret(self, name: str) -> str:
        key = await self.client.get(ObjectRef(SECRETS, "default", "edgeai-worker-key"))
        uid = Uid(self.jobs[name]["metadata"]["uid"])
        return worker_secret(base64.b64decode(key["data"]["key"]), uid, "edge")

    async def note_children(self) -> None:
        """Raises: AssertionError, where one was made twice (I6)"""
        for type_ in CHILDREN:
            for child in await items_of(self.client, type_):
                name = f"{type_.plural}/{child['metadata']['name']}"
                uid = child["metadata"]["uid"]
                assert self.children.setdefault(name, uid) == uid, f"{name} was made twice (I6)"

    async def is_settled(self, node: Controller) -> bool:
        """Raises: AssertionError, which says what is not as if no fault had been"""
        await self.note_children()
        for name, count in self.counted.items():
            if name not in self.jobs:
                continue
            job = await self.client.get(ObjectRef(SERVICES, "default", name))
            uploaded = (job.get("status") or {}).get("uploadCount") or 0
            assert uploaded == count, f"{name}: uploadCount {uploaded}, counted {count} (I3)"
        owned = [
            owner["uid"]
            for type_ in CHILDREN
            for child in await items_of(self.client, type_)
            for owner in child["metadata"].get("ownerReferences") or ()
        ]
        uids = {job["metadata"]["uid"] for job in self.jobs.values()}
        assert {uid: owned.count(uid) for uid in set(owned)} == dict.fromkeys(uids, 3), owned
        held = {task["uid"] for task in (await node.get("/api/v1/tasks"))["items"]}
        assert held == uids, f"the node holds {held}, bound to it are {uids} (I1)"
        return True


async def items_of(client: KubeClient, type_: ResourceType) -> list[Object]:
    return (await client.list(type_, namespace="default")).items


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    cluster = Cluster(tmp_path)
    await cluster.start()
    try:
        async with await KubeClient.from_kubeconfig(cluster.kubeconfig) as client:
            for file in DIRECTORY.glob("*.yaml"):
                await client.create(CRDS, yaml.safe_load(file.read_text()))
            for name in ("small", "big"):
                await client.create(MODELS, model(name, "default"))
            await client.create(NODES, {"metadata": {"name": NODE}})
            yield World(cluster, client, tmp_path)
    finally:
        await cluster.close()


@contextlib.asynccontextmanager
async def running_node(directory: Path, port: int) -> AsyncIterator[Controller]:
    """Args: port: where it finds its GlobalManager"""
    token = directory / "token"
    token.write_text(TOKEN)
    flags = ("--global-manager", f"ws://127.0.0.1:{port}", "--token-file", str(token))
    async with running(directory / "node", *flags, *QUICK[:4]) as node:
        yield node


@pytest.mark.timeout(300)  # five starts of a GlobalManager, on a machine that may be busy
@pytest.mark.parametrize(("point", "step"), POINTS.items(), ids=POINTS)
async def test_a_global_manager_that_is_killed_at_any_point_leaves_no_trace(
    point: str, step: int, world: World, tmp_path: Path
) -> None:
    async with running_node(tmp_path, world.edge_port) as node:
        for life in range(1, LIVES + 1):
            async with world.manager("kill", point, str(step * life)) as manager:
                await world.work(node, manager)
                await manager.process.wait()
            assert manager.process.returncode == -signal.SIGKILL, manager.log
            assert HITS in manager.log, "the fault did not reach the code"
        async with world.manager():
            await async_eventually("what no fault leaves", lambda: world.is_settled(node))
    assert world.jobs, "every job is gone, so the test shows little"


@pytest.mark.parametrize("jump_s", [DAY_S, -DAY_S], ids=["a day ahead", "a day back"])
async def test_a_clock_that_jumps_moves_neither_the_lead_nor_a_session(
    jump_s: int, world: World, tmp_path: Path
) -> None:
    async with (
        running_node(tmp_path, world.edge_port) as node,
        world.manager(f"clock:{jump_s}", "before-write", "8") as manager,
    ):
        await world.add_job("digits")
        await world.report(node, "digits", manager)
        epoch = await world.epoch()
        while HITS not in manager.log:
            await world.report(node, "digits", manager)
        await world.add_job("faces")
        for name in world.jobs:
            await world.report(node, name, manager)
        await async_eventually("what no fault leaves", lambda: world.is_settled(node))
        assert await world.epoch() == epoch, "the lead changed"
        assert len(node.logged("session open")) == 1, "the session was cut"
        assert manager.process.returncode is None
