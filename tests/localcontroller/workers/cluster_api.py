"""What tests of the pod watch use: a real HTTP server like a cluster's API, pods, and a watch."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from aiohttp import web

from edgeai.backoff import Backoff
from edgeai.ids import NodeName
from localcontroller.ledger.ledger import Ledger
from localcontroller.workers.heartbeats import Heartbeats
from localcontroller.workers.pod_watch import PodsSource, PodWatch
from tests.localcontroller.builders import UID, WORKER
from tests.support.clock import Clock
from tests.support.tasks import beside
from tests.support.waiting import async_eventually

Manifest = dict[str, Any]


class ClusterApi:
    """Serves lists and watches of `pods`. `port` stays the same over stop and start."""

    def __init__(self) -> None:
        self.pods: dict[str, Manifest] = {}
        self.requests: list[dict[str, str]] = []  # queries
        self.tokens: list[str] = []
        self.status = 200
        self.page_size = 100
        self.can_watch = True
        self.knows_selector = True  # False: like a MetaServer offline, it lists no pod by node
        self.forgets = False  # lists no pod, whatever `pods` holds
        self.status_by_name = 200  # of a request for one pod; 200: as `pods` says
        self.port = 0
        self._watchers: list[asyncio.Queue[bytes | None]] = []
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def lists(self) -> int:
        """How many lists were made: each begins with a request for the pods of the node."""
        return sum(
            "watch" not in query and "fieldSelector" in query and "continue" not in query
            for query in self.requests
        )

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/api/v1/pods", self._on_request)
        app.router.add_get("/api/v1/namespaces/{namespace}/pods/{name}", self._on_get)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        self.end_watches()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _on_request(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(dict(request.query))
        self.tokens.append(request.headers.get("Authorization", ""))
        if self.status != 200:
            return web.Response(status=self.status)
        if request.query.get("watch") == "true":
            return await self._watch(request)
        start = int(request.query.get("continue", 0))
        end = start + min(self.page_size, int(request.query.get("limit", self.page_size)))
        items = [pod for pod in self.pods.values() if self._is_selected(pod, request)]
        metadata = {"resourceVersion": "7", "continue": str(end) if end < len(items) else ""}
        return web.json_response({"metadata": metadata, "items": items[start:end]})

    def _is_selected(self, pod: Manifest, request: web.Request) -> bool:
        selector = request.query.get("fieldSelector", "")
        if self.forgets or (selector and not self.knows_selector):
            return False
        return not selector or selector == f"spec.nodeName={pod.get('spec', {}).get('nodeName')}"

    async def _on_get(self, request: web.Request) -> web.Response:
        if self.status_by_name != 200:
            return web.Response(status=self.status_by_name)
        wanted = (request.match_info["namespace"], request.match_info["name"])
        for pod in self.pods.values():
            if (pod["metadata"]["namespace"], pod["metadata"]["name"]) == wanted:
                return web.json_response(pod)
        return web.Response(status=404)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        events: asyncio.Queue[bytes | None] = asyncio.Queue()
        if self.can_watch:
            self._watchers.append(events)
        else:
            events.put_nowait(None)
        while (data := await events.get()) is not None:
            await response.write(data)
        return response

    # ---- for tests --------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        for watcher in self._watchers:
            watcher.put_nowait(data)

    def send_event(self, type_: str, pod: Manifest) -> None:
        uid = pod["metadata"]["uid"]
        if type_ == "DELETED":
            self.pods.pop(uid, None)
        else:
            self.pods[uid] = pod
        self.send(json.dumps({"type": type_, "object": pod}).encode() + b"\n")

    def end_watches(self) -> None:
        for watcher in self._watchers:
            watcher.put_nowait(None)
        self._watchers.clear()

    async def until_watched(self) -> None:
        await async_eventually("a watch", lambda: self._watchers)


@contextlib.asynccontextmanager
async def watching(
    ledger: Ledger,
    url: str,
    token_file: Path | None = None,
    heartbeats: Heartbeats | None = None,
    **limits: Any,
) -> AsyncIterator[None]:
    """Args: limits: keyword arguments of PodWatch and `backoff`"""
    source = PodsSource(url=url, node=NodeName("edge-1"), token_file=token_file)
    heartbeats = heartbeats or Heartbeats(silence_factor=3.0, clock=Clock())
    backoff = limits.pop("backoff", None) or Backoff(base_s=0.01, max_s=0.02)
    watch = PodWatch(source, ledger, heartbeats, backoff, **limits)
    async with beside(watch.run(), "pods") as task:
        yield
        assert not task.done()  # the watch survived


REPLICA_SET = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "digits-edge-5d",
    "uid": "uid of a ReplicaSet",
    "controller": True,
}


def pod(
    name: str = "pod-a",
    *,
    worker: str = WORKER,
    namespace: str = "default",
    node: str = "edge-1",
    owner: Manifest | None = REPLICA_SET,
    phase: str = "Running",
    containers: list[Manifest] | None = None,
    created: str = "2026-01-01T00:00:00Z",
    **status: Any,
) -> Manifest:
    return {
        "metadata": {
            "namespace": namespace,
            "name": name,
            "uid": f"uid of {name}",
            "ownerReferences": [owner] if owner else None,
            "creationTimestamp": created,
            "labels": {"edgeai.io/uid": UID, "edgeai.io/worker": worker},
        },
        "spec": {"nodeName": node},
        "status": {"phase": phase, "containerStatuses": containers, **status},
    }


RUNNING = {"name": "main", "state": {"running": {"startedAt": None}}}
TERMINATED = {"name": "main", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
CRASHED = {
    "name": "main",
    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
    "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}},
}
PULLING = {"name": "main", "state": {"waiting": {"reason": "ErrImagePull"}}}


async def until_state(ledger: Ledger, status: str, worker: str = WORKER) -> str:
    """Wait until the worker has this status. Returns: its reason"""

    async def check() -> tuple[str]:
        states = {str(row.name): row.worker for row in await ledger.workers()}
        found = {name: (state.status, state.reason) for name, state in states.items()}
        assert worker in states, found
        assert states[worker].status == status, found
        return (states[worker].reason,)

    (reason,) = await async_eventually(f"status {status} of worker {worker}", check)
    return reason
