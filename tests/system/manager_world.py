"""A GlobalManager and a node, both real processes, around one API; tests put faults into them.

The test is the worker of every job, and knows what it was told is kept.
`ManagerAndNode.is_settled` checks the promises (oracle: I1, I3, I6, I7).
"""

import asyncio
import base64
import contextlib
import hashlib
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import pytest

from edgeai.api.resources import NODES, SECRETS, ObjectRef, ResourceType
from edgeai.cli.api import Object
from edgeai.ids import Uid
from edgeai.kube.client import KubeClient
from edgeai.kube.errors import NotFound
from globalmanager.kinds.edge.jointinferenceservice import KIND
from globalmanager.kinds.shared.secrets import worker_secret
from tests.cluster.samples import model, service
from tests.globalmanager.cluster import LocalApi
from tests.localcontroller.test_process import Controller, command, started
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S, async_eventually
from tests.system.bad_line import BadLine
from tests.system.faulty import wrapped
from tests.system.next_release import THIS, Release

NODE: Final = "edge-1"
TOKEN: Final = "token-of-edge-1"
SERVICES, _ = KIND.definition.types
MODELS: Final = ResourceType("edgeai.io", "v1alpha1", "models", "Model")
CHILDREN: Final = (
    ResourceType("apps", "v1", "deployments", "Deployment"),
    ResourceType("", "v1", "services", "Service"),
)
CHILDREN_OF_A_JOB: Final = 3
LEASES: Final = ResourceType("coordination.k8s.io", "v1", "leases", "Lease")
QUICK: Final = ("--session-beat-s", "0.5", "--session-silence-s", "2", "--contact-grace-s", "2")


class Place(NamedTuple):
    """What a replica of the GlobalManager keeps over its lives."""

    name: str
    edge_port: int
    http_port: int
    kubeconfig: Path

    @classmethod
    def of(cls, name: str, kubeconfig: Path) -> "Place":
        return cls(name, free_port(), free_port(), kubeconfig)


class ManagerAndNode:
    """The API, the node, and the GlobalManager to which the node's `line` leads."""

    def __init__(self, cluster: LocalApi, client: KubeClient, directory: Path) -> None:
        self.cluster, self.client = cluster, client
        self.east = self.faced = Place.of("east", cluster.kubeconfig)
        self.line = BadLine(self.edge_address)
        self._token_file = directory / "edge-tokens"
        self._token_file.write_text(f"{NODE} {hashlib.sha256(TOKEN.encode()).hexdigest()}\n")
        self.jobs: dict[str, Object] = {}
        self.counted: dict[str, int] = {}  # by job: what its worker was told is kept
        self.children: dict[str, set[str]] = {}  # by uid of the job: all uids that were ever seen

    def edge_address(self) -> tuple[str, int]:
        return "127.0.0.1", self.faced.edge_port

    def api_address(self) -> tuple[str, int]:
        return "127.0.0.1", urlsplit(self.cluster.url).port or 0

    @contextlib.asynccontextmanager
    async def manager(
        self,
        *fault: str,
        release: Release = THIS,
        at: Place | None = None,
        lease_s: int = 15,
        is_awaited: bool = True,
        flags: Sequence[str] = (),
    ) -> AsyncIterator[Controller]:
        """From its readiness on, or after its end; the node faces it.

        Args:
            fault: FAULT, POINT and N of `tests.system.faulty`; nothing: no fault
            is_awaited: until it is ready `line` is cut, so that the node does not wait some seconds
                after a 503; False: from its start on the node can reach it
            flags: take the place of those that it gets in any case
        """
        if is_awaited:
            self.line.cut("loudly")
        place = self.faced = at or self.east
        async with started(
            *(sys.executable, *wrapped("globalmanager", fault, release)),
            *("--kubeconfig", str(place.kubeconfig), "--system-namespace", "default"),
            *("--edge-token-file", str(self._token_file), "--edge-plaintext", "allow"),
            *("--edge-address", f"127.0.0.1:{place.edge_port}", "--replica-name", place.name),
            *("--http-address", f"127.0.0.1:{place.http_port}", "--http-auth", "none"),
            *("--lease-duration-s", str(lease_s), "--lease-renew-deadline-s", str(lease_s * 0.7)),
            *("--lease-retry-s", str(lease_s / 10)),
            *QUICK,
            *flags,
        ) as manager:
            if is_awaited:
                await async_eventually("readiness", lambda: _is_ready_or_over(manager, place))
                self.line.mend()
            yield manager

    async def work(self, node: Controller, manager: Controller) -> None:
        """Jobs come and report, and one of three goes, until the manager ends."""
        async with asyncio.timeout(PATIENCE_S):
            while manager.process.returncode is None:
                name = f"digits-{len(self.counted)}"
                await self.add_job(name)
                await self.report(node, name, manager)
                if len(self.counted) % 3 == 0:
                    await self.delete_job(name)
                await self.note_children()

    async def add_job(self, name: str) -> None:
        manifest = service("default", name=name, edge={"nodeName": NODE})
        self.jobs[name], self.counted[name] = await self.client.create(SERVICES, manifest), 0

    async def delete_job(self, name: str) -> None:
        await self.client.delete(ObjectRef(SERVICES, "default", name))
        del self.jobs[name]

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
                    url = await node.worker_base(await self.secret(name), f"{name}-edge")
                    async with session.post(url, json=message) as response:
                        if response.status == 200:
                            self.counted[name] = seen
                            return
                await asyncio.sleep(0.05)

    async def secret(self, name: str) -> str:
        key = await self.client.get(ObjectRef(SECRETS, "default", "edgeai-worker-key"))
        uid = Uid(self.jobs[name]["metadata"]["uid"])
        return worker_secret(base64.b64decode(key["data"]["key"]), uid, "edge")

    async def note_children(self) -> None:
        """Raises: AssertionError, where one was made twice (I6)"""
        for type_ in CHILDREN:
            for child in await items_of(self.client, type_):
                for owner in child["metadata"].get("ownerReferences") or ():
                    made = self.children.setdefault(owner["uid"], set())
                    made.add(child["metadata"]["uid"])
                    name = f"{type_.plural}/{child['metadata']['name']}"
                    assert len(made) <= CHILDREN_OF_A_JOB, f"{name} was made twice (I6)"

    async def check_kept(self, node: Controller) -> None:
        """While no GlobalManager runs, the node holds what it has held and is not told to drop.

        Raises: AssertionError
        """

        async def is_alone() -> bool:
            return not (await node.get("/api/v1/link"))["connected"]

        await async_eventually("the end of the session", is_alone)
        held = {task["name"] for task in (await node.get("/api/v1/tasks"))["items"]}
        lost = {name for name in self.jobs if self.counted[name]} - held
        assert not lost, f"the node has dropped {lost}, which are bound to it (I11)"

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
        assert {uid: owned.count(uid) for uid in set(owned)} == dict.fromkeys(
            uids, CHILDREN_OF_A_JOB
        ), owned
        held = {task["uid"] for task in (await node.get("/api/v1/tasks"))["items"]}
        assert held == uids, f"the node holds {held}, bound to it are {uids} (I1)"
        return True


async def _is_ready_or_over(manager: Controller, place: Place) -> bool:
    if manager.process.returncode is not None:
        return True
    with contextlib.suppress(aiohttp.ClientError):
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{place.http_port}/readyz") as answer,
        ):
            return answer.status == 200
    return False


async def items_of(client: KubeClient, type_: ResourceType) -> list[Object]:
    return (await client.list(type_, namespace="default")).items


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[ManagerAndNode]:
    async with (
        LocalApi(tmp_path, is_installed=True) as cluster,
        await KubeClient.from_kubeconfig(cluster.kubeconfig) as client,
    ):
        for name in ("small", "big"):
            await client.create(MODELS, model(name, "default"))
        await client.create(NODES, {"metadata": {"name": NODE}})
        world = ManagerAndNode(cluster, client, tmp_path)
        with world.line:
            yield world


@contextlib.asynccontextmanager
async def running_node(
    directory: Path,
    port: int,
    *fault: str,
    release: Release = THIS,
    flags: Sequence[str] = (),
) -> AsyncIterator[Controller]:
    """Args: port: where it finds its GlobalManager; flags: further ones"""
    token = directory / "token"
    token.write_text(TOKEN)
    python, _, module, *usual = command(directory / "node", *QUICK[:4])
    usual += ("--global-manager", f"ws://127.0.0.1:{port}", "--token-file", str(token))
    async with started(python, *wrapped(module, fault, release), *usual, *flags) as node:
        await node.until_listening("worker")
        yield node
