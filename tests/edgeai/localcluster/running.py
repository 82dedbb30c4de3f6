"""A real cluster within the test's own loop, and builders of what runs in it."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from edgeai.localcluster.cluster import Cluster, ClusterSettings
from edgeai.localcluster.kubelet.container import ContainerSettings
from edgeai.localcluster.objects import errors
from edgeai.localcluster.objects.patches import merge
from edgeai.localcluster.objects.resources import PODS, Object, Resource
from edgeai.localcluster.objects.store import Store
from edgeai.localcluster.state import ClusterProcess
from tests.edgeai.localcluster.conftest import until

T = TypeVar("T")

FAST_RESTARTS = ContainerSettings(restart_first_s=0.05, restart_max_s=0.2)


class RunningCluster:
    """A cluster as a test sees it: its store, and waiting for what is written there."""

    def __init__(self, store: Store, running: ClusterProcess) -> None:
        self.store = store
        self.running = running

    def find(self, resource: Resource, name: str) -> Object | None:
        with contextlib.suppress(errors.NotFound):
            return self.store.get(resource, "default", name)
        return None

    def pod(self, name: str) -> Object | None:
        return self.find(PODS, name)

    async def until(self, check: Callable[[], T | None]) -> T:
        return await until(self.store, check)

    async def until_pod(self, name: str, check: Callable[[Object], object]) -> Object:
        def look() -> Object | None:
            pod = self.pod(name)
            return pod if pod and check(pod) else None

        return await self.until(look)

    async def until_phase(self, name: str, phase: str) -> Object:
        return await self.until_pod(name, lambda pod: pod["status"].get("phase") == phase)

    async def until_gone(self, name: str) -> None:
        await self.until(lambda: self.pod(name) is None)


def patch(
    store: Store, resource: Resource, namespace: str, name: str, content: Object, **options: Any
) -> Object:
    """Apply a JSON merge patch to a stored object. Args: options: of `Store.update`"""
    merged = merge(store.get(resource, namespace, name), content)
    return store.update(resource, merged, **options)


@contextlib.asynccontextmanager
async def running_cluster(tmp_path: Path, **settings: Any) -> AsyncIterator[RunningCluster]:
    given: dict[str, Any] = {"nodes": ("edge0",)} | settings
    given_settings = ClusterSettings(state_dir=tmp_path / "state", **given)
    cluster = Cluster(given_settings, containers=FAST_RESTARTS)
    ready: asyncio.Future[RunningCluster] = asyncio.get_running_loop().create_future()
    life = asyncio.create_task(
        cluster.run(lambda store, running: ready.set_result(RunningCluster(store, running)))
    )
    life.add_done_callback(lambda _: ready.cancel())
    try:
        await ready
    except asyncio.CancelledError:
        await life  # says why it never became ready
        raise
    try:
        yield ready.result()
    finally:
        cluster.stop()
        await life


def is_gone(pid: int) -> bool:
    """No process has that pid, or only a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return True
    return text.rpartition(")")[2].split()[0] == "Z"


def container(script: str, **fields: Any) -> Object:
    return {"name": "main", "image": "none", "command": ["/bin/sh", "-c", script]} | fields


def python(script: str, **fields: Any) -> Object:
    """A container of the interpreter that runs the tests: no shim, so it starts sooner."""
    command = {"command": [sys.executable, "-I", "-S", "-u", "-c", script]}
    return container("") | command | fields


def new_pod(name: str, *containers: Object, **spec: Any) -> Object:
    return {
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {"nodeName": "edge0", "containers": list(containers)} | spec,
    }


POD_IP: Object = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
"""A container's variable with its pod's address."""

SERVER = """
import os, socket
server = socket.create_server((os.environ["POD_IP"], 5000))
while True:
    connection, _ = server.accept()
    request = b""
    while data := connection.recv(65536):
        request += data
    connection.sendall(os.environ["HOSTNAME"].encode() + b" " + request)
    connection.close()
"""
"""Reads to the end of the request, then answers with its pod's name and the request."""


def server(**fields: Any) -> Object:
    ports = [{"name": "tcp", "containerPort": 5000}]
    probe = {"tcpSocket": {"port": "tcp"}, "periodSeconds": 0.05}
    # Probing connects, so the answer to it meets a closed connection.
    script = SERVER.replace("    connection.sendall", "    if request: connection.sendall")
    return python(script, env=[POD_IP], ports=ports, readinessProbe=probe) | fields


async def collected(pieces: AsyncIterator[bytes]) -> bytes:
    return b"".join([piece async for piece in pieces])


async def log_of(cluster: RunningCluster, tmp_path: Path, name: str, **query: str) -> str:
    """The log of the pod's container, as the API serves it."""
    token = (tmp_path / "state" / "token").read_text().strip()
    url = f"{cluster.running.api}/{token}/api/v1/namespaces/default/pods/{name}/log"
    async with aiohttp.ClientSession() as session, session.get(url, params=query) as answer:
        return await answer.text()
