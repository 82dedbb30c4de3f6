"""The pod watch against a real HTTP server that answers like a cluster's API."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from common.backoff import Backoff
from common.ids import NodeName
from localcontroller.ledger.ledger import Ledger
from localcontroller.workers.heartbeats import Heartbeats, watch_heartbeats
from localcontroller.workers.pod_watch import PodsSource, PodWatch
from tests.localcontroller.builders import UID, WORKER, Clock, assign, body, worker_message
from tests.waiting import PATIENCE_S, async_eventually

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
        end = start + self.page_size
        items = [pod for pod in self.pods.values() if self._is_selected(pod, request)]
        metadata = {"resourceVersion": "7", "continue": str(end) if end < len(items) else ""}
        return web.json_response({"metadata": metadata, "items": items[start:end]})

    def _is_selected(self, pod: Manifest, request: web.Request) -> bool:
        selector = request.query.get("fieldSelector", "")
        if self.forgets or (selector and not self.knows_selector):
            return False
        return not selector or selector == f"spec.nodeName={pod.get('spec', {}).get('nodeName')}"

    async def _on_get(self, request: web.Request) -> web.Response:
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


@pytest.fixture
async def api() -> AsyncIterator[ClusterApi]:
    api = ClusterApi()
    await api.start()
    yield api
    await api.stop()


@pytest.fixture
async def tasks(ledger: Ledger) -> Ledger:
    await ledger.apply([assign(body_=body(WORKER, "other"))])
    return ledger


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
    heartbeats = heartbeats or Heartbeats(silence_factor=3.0, now=Clock())
    backoff = limits.pop("backoff", None) or Backoff(base_s=0.01, max_s=0.02)
    watch = PodWatch(source, ledger, heartbeats, backoff, **limits)
    task = asyncio.create_task(watch.run(), name="pods")
    try:
        yield
        assert not task.done()  # the watch survived
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


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
    async with asyncio.timeout(PATIENCE_S):
        while True:
            seen = ledger.view
            for row in await ledger.workers():
                if row.name == worker and row.worker.status == status:
                    return row.worker.reason
            await ledger.change_since(seen)


# ---- verdicts ------------------------------------------------------------------------------------

DEATHS: dict[str, tuple[Manifest, str, str]] = {
    "evicted": (
        pod(phase="Failed", reason="Evicted", message="disk pressure"),
        "failed",
        "pod pod-a failed: Evicted: disk pressure",
    ),
    "failed by exit code": (
        pod(phase="Failed", containers=[TERMINATED]),
        "failed",
        "pod pod-a failed: container main exited with code 137 (OOMKilled)",
    ),
    "failed without a reason": (
        pod(phase="Failed"),
        "failed",
        "pod pod-a failed: no reason given",
    ),
    "succeeded": (
        pod(phase="Succeeded"),
        "completed",
        "pod pod-a succeeded without a final message",
    ),
    "container terminated": (
        pod(containers=[TERMINATED]),
        "lost",
        "pod pod-a: container main exited with code 137 (OOMKilled)",
    ),
    "container waits for its next start": (
        pod(containers=[CRASHED]),
        "lost",
        "pod pod-a: container main exited with code 1 (Error)",
    ),
    "one of two containers terminated": (
        pod(containers=[{**RUNNING, "name": "side"}, TERMINATED]),
        "lost",
        "pod pod-a: container main exited with code 137 (OOMKilled)",
    ),
}


@pytest.mark.parametrize("case", DEATHS)
async def test_a_pod_that_ended_without_a_message_is_reported(
    case: str, tasks: Ledger, api: ClusterApi
) -> None:
    manifest, status, reason = DEATHS[case]
    await tasks.record(UID, WORKER, [worker_message(3, heartbeat_s=10.0)])
    async with watching(tasks, api.url):
        await api.until_watched()
        api.send_event("MODIFIED", manifest)
        assert await until_state(tasks, status) == reason
    (row,) = await tasks.workers()
    assert (row.worker.totals, row.is_acked) == ({"seen": 3}, False)


async def test_a_pod_that_failed_before_the_first_message_is_found_in_the_list(
    tasks: Ledger, api: ClusterApi
) -> None:
    api.pods["a"] = pod(phase="Failed")
    async with watching(tasks, api.url):
        await until_state(tasks, "failed")


ALIVE = {
    "running": pod(containers=[RUNNING]),
    "image not pulled": pod(phase="Pending", containers=[PULLING]),
    "scheduled just now": pod(phase="Pending"),
}


@pytest.mark.parametrize("case", ALIVE)
async def test_a_pod_that_has_not_ended_changes_nothing(
    case: str, tasks: Ledger, api: ClusterApi
) -> None:
    await tasks.record(UID, WORKER, [worker_message(3)])
    revision = tasks.view.revision
    async with watching(tasks, api.url):
        await api.until_watched()
        api.send_event("ADDED", ALIVE[case])
        api.send_event("ADDED", pod("marker", worker="other", phase="Failed"))
        await until_state(tasks, "failed", "other")
    assert tasks.view.revision == revision + 1  # one report: the marker's


FOREIGN = {
    "of another operator": {"metadata": {"name": "x", "uid": "x", "labels": None}, "status": {}},
    "of a task that is not held": {
        **pod(phase="Failed"),
        "metadata": {
            **pod()["metadata"],
            "labels": {"edgeai.io/uid": "ghost", "edgeai.io/worker": WORKER},
        },
    },
    "in another namespace": pod(phase="Failed", namespace="stranger"),
    "on another node": pod(phase="Failed", node="edge-2"),
    "on no node": {**pod(phase="Failed"), "spec": {}},
    "without a controller": pod(phase="Failed", owner=None),
    "of a Job": pod(phase="Failed", owner={**REPLICA_SET, "kind": "Job"}),
    "of a ReplicaSet of another group": pod(
        phase="Failed", owner={**REPLICA_SET, "apiVersion": "stranger.io/v1"}
    ),
    "of an owner that is not the controller": pod(
        phase="Failed", owner={**REPLICA_SET, "controller": False}
    ),
}

OWNERS = {
    "a ReplicaSet": REPLICA_SET,
    "a Deployment, as in the local cluster": {**REPLICA_SET, "kind": "Deployment"},
    "the job itself": {
        "apiVersion": "edgeai.io/v1alpha1",
        "kind": "FederatedLearningJob",
        "name": "digits",
        "uid": UID,
        "controller": True,
    },
}


@pytest.mark.parametrize("case", OWNERS)
async def test_a_pod_whose_controller_may_belong_to_the_job_counts(
    case: str, tasks: Ledger, api: ClusterApi
) -> None:
    api.pods["a"] = pod(phase="Failed", owner=OWNERS[case])
    async with watching(tasks, api.url):
        await until_state(tasks, "failed")


@pytest.mark.parametrize("case", FOREIGN)
async def test_a_pod_of_no_worker_of_this_node_changes_nothing(
    case: str, tasks: Ledger, api: ClusterApi
) -> None:
    """Not when it appears and not when it goes, in a list and in a watch."""
    await tasks.record(UID, WORKER, [worker_message(3)])
    revision = tasks.view.revision
    api.pods["listed"] = FOREIGN[case]
    async with watching(tasks, api.url):
        await api.until_watched()
        api.send_event("ADDED", FOREIGN[case])
        api.send_event("DELETED", FOREIGN[case])
        api.send_event("ADDED", pod("marker", worker="other", phase="Failed"))
        await until_state(tasks, "failed", "other")
    assert tasks.view.revision == revision + 1  # one report: the marker's


async def test_a_final_state_that_the_worker_sent_stays(tasks: Ledger, api: ClusterApi) -> None:
    await tasks.record(UID, WORKER, [worker_message(3, status="completed")])
    api.pods["a"] = pod(phase="Failed")
    api.pods["b"] = pod("marker", worker="other", phase="Failed")
    async with watching(tasks, api.url):
        await until_state(tasks, "failed", "other")
    assert await until_state(tasks, "completed") == ""


async def test_a_worker_without_heartbeats_is_back_once_its_containers_run(
    tasks: Ledger, api: ClusterApi
) -> None:
    await tasks.record(UID, WORKER, [worker_message(3)])
    api.pods["uid of pod-a"] = pod(containers=[CRASHED])
    async with watching(tasks, api.url):
        await until_state(tasks, "lost")
        await api.until_watched()
        api.send_event("MODIFIED", pod(containers=[RUNNING]))
        await until_state(tasks, "running")


# ---- the worker's own messages -------------------------------------------------------------------


async def test_a_failed_pod_does_not_fail_a_worker_that_still_sends_messages(
    tasks: Ledger, api: ClusterApi
) -> None:
    """Everybody who may create pods in the namespace can create one like the worker's."""
    heartbeats = Heartbeats(silence_factor=3.0, now=Clock())
    await tasks.record(UID, WORKER, [worker_message(3, sequence=1, heartbeat_s=10.0)])
    heartbeats.expect(UID, WORKER, 10.0)
    async with watching(tasks, api.url, heartbeats=heartbeats):
        await api.until_watched()
        api.send_event("ADDED", pod("spoofed", phase="Failed"))
        assert await until_state(tasks, "lost") == "pod spoofed failed: no reason given"
        await tasks.record(UID, WORKER, [worker_message(4, sequence=2, heartbeat_s=10.0)])
        heartbeats.expect(UID, WORKER, 10.0)
        assert await until_state(tasks, "running") == ""
    assert (await tasks.workers())[0].worker.totals == {"seen": 4}


async def test_a_worker_that_becomes_silent_gets_the_verdict_of_its_pod(
    tasks: Ledger, api: ClusterApi
) -> None:
    clock = Clock()
    heartbeats = Heartbeats(silence_factor=3.0, now=clock)
    await tasks.record(UID, WORKER, [worker_message(3, sequence=1, heartbeat_s=10.0)])
    heartbeats.expect(UID, WORKER, 10.0)
    listening = asyncio.create_task(watch_heartbeats(tasks, heartbeats), name="heartbeats")
    async with watching(tasks, api.url, heartbeats=heartbeats):
        await api.until_watched()
        api.send_event("ADDED", pod(phase="Failed"))
        await until_state(tasks, "lost")
        clock.now += 31
        heartbeats.changed.set()
        assert await until_state(tasks, "failed") == "pod pod-a failed: no reason given"
    listening.cancel()


# ---- deletion and replacement --------------------------------------------------------------------


async def test_a_deleted_pod_leaves_its_worker_lost(tasks: Ledger, api: ClusterApi) -> None:
    api.pods["uid of pod-a"] = pod(containers=[RUNNING])
    async with watching(tasks, api.url):
        await api.until_watched()
        api.send_event("DELETED", pod())
        assert await until_state(tasks, "lost") == "pod pod-a was deleted"


async def test_a_deletion_that_the_watch_missed_is_found_by_the_next_list(
    tasks: Ledger, api: ClusterApi
) -> None:
    api.pods["uid of pod-a"] = pod(containers=[RUNNING])
    async with watching(tasks, api.url, min_round_s=0.01):
        await api.until_watched()
        api.pods.clear()
        api.end_watches()
        assert await until_state(tasks, "lost") == "pod pod-a was deleted"


async def test_an_api_without_the_field_selector_makes_no_running_worker_lost(
    tasks: Ledger, api: ClusterApi
) -> None:
    """While KubeEdge's MetaServer is offline, a list by spec.nodeName is empty."""
    api.pods["uid of pod-a"] = pod(containers=[RUNNING])
    api.pods["uid of elsewhere"] = pod("elsewhere", node="edge-2", phase="Failed")
    await tasks.record(UID, WORKER, [worker_message(3)])
    revision = tasks.view.revision
    async with watching(tasks, api.url, min_round_s=0.01):
        await api.until_watched()
        api.knows_selector = False
        lists = api.lists
        api.end_watches()
        await async_eventually("another list", lambda: api.lists > lists)
        await api.until_watched()
        assert tasks.view.revision == revision
        api.send_event("MODIFIED", pod(containers=[TERMINATED]))
        await until_state(tasks, "lost")
        assert "fieldSelector" not in api.requests[-1]


async def test_a_failed_pod_is_found_through_an_api_without_the_field_selector(
    tasks: Ledger, api: ClusterApi
) -> None:
    api.knows_selector = False
    api.pods["a"] = pod(phase="Failed")
    async with watching(tasks, api.url):
        await until_state(tasks, "failed")


async def test_an_empty_list_alone_makes_no_worker_lost(tasks: Ledger, api: ClusterApi) -> None:
    api.pods["uid of pod-a"] = pod(containers=[RUNNING])
    await tasks.record(UID, WORKER, [worker_message(3)])
    revision = tasks.view.revision
    async with watching(tasks, api.url, min_round_s=0.01):
        await api.until_watched()
        api.forgets = True
        lists = api.lists
        api.end_watches()
        await async_eventually("another list", lambda: api.lists > lists)
        await api.until_watched()
        assert tasks.view.revision == revision
        api.pods.clear()
        api.end_watches()
        assert await until_state(tasks, "lost") == "pod pod-a was deleted"


async def test_the_youngest_pod_of_a_worker_counts(tasks: Ledger, api: ClusterApi) -> None:
    await tasks.record(UID, WORKER, [worker_message(3)])
    young = pod("pod-b", containers=[RUNNING], created="2026-01-01T00:05:00Z")
    api.pods["uid of pod-b"] = young
    api.pods["uid of pod-a"] = pod(containers=[RUNNING])
    revision = tasks.view.revision
    async with watching(tasks, api.url):
        await api.until_watched()
        api.send_event("MODIFIED", pod(phase="Failed"))
        api.send_event("DELETED", pod(phase="Failed"))
        api.send_event("ADDED", pod("marker", worker="other", phase="Failed"))
        await until_state(tasks, "failed", "other")
        assert tasks.view.revision == revision + 1  # one report: the marker's
        api.send_event("MODIFIED", {**young, "status": pod(containers=[TERMINATED])["status"]})
        await until_state(tasks, "lost")


# ---- faults of the API ---------------------------------------------------------------------------


async def test_only_worker_pods_of_this_node_are_requested(tasks: Ledger, api: ClusterApi) -> None:
    api.pods["uid of pod-a"] = pod(containers=[RUNNING])
    async with watching(tasks, api.url):
        await api.until_watched()
    for query in api.requests:
        assert query["fieldSelector"] == "spec.nodeName=edge-1"
        assert query["labelSelector"] == "edgeai.io/uid,edgeai.io/worker"
    assert api.requests[1]["resourceVersion"] == "7"


async def test_a_list_of_many_pages_is_read_to_its_end(tasks: Ledger, api: ClusterApi) -> None:
    api.page_size = 2
    for n in range(4):
        api.pods[str(n)] = pod(f"pod-{n}", worker=f"nobody-{n}")
    api.pods["last"] = pod(phase="Failed")
    async with watching(tasks, api.url):
        await until_state(tasks, "failed")


@pytest.mark.parametrize("status", [401, 403, 404, 410, 500, 503])
async def test_an_api_that_refuses_changes_nothing_and_is_asked_again(
    status: int, tasks: Ledger, api: ClusterApi
) -> None:
    await tasks.record(UID, WORKER, [worker_message(3)])
    revision = tasks.view.revision
    api.status = status
    async with watching(tasks, api.url):
        await async_eventually("a second list", lambda: api.lists >= 2)
        assert tasks.view.revision == revision
        api.status = 200
        await api.until_watched()


async def test_an_api_that_is_down_changes_nothing(tasks: Ledger, api: ClusterApi) -> None:
    await tasks.record(UID, WORKER, [worker_message(3)])
    api.pods["uid of pod-a"] = pod(containers=[RUNNING])
    backoff = Backoff(base_s=0.01, max_s=0.02)
    async with watching(tasks, api.url, min_round_s=0.01, backoff=backoff):
        await api.until_watched()
        revision = tasks.view.revision
        await api.stop()
        await async_eventually("three failures", lambda: backoff.failures >= 3)
        assert tasks.view.revision == revision
        await api.start()
        await api.until_watched()
    assert await until_state(tasks, "running") == ""


BROKEN_EVENTS = {
    "no JSON": b"<html>\n",
    "expired": b'{"type": "ERROR", "object": {"kind": "Status", "code": 410}}\n',
    "another object": b'{"type": "ADDED", "object": {"metadata": 5}}\n',
    "unknown type": b'{"type": "MOVED", "object": {}}\n',
}


@pytest.mark.parametrize("case", BROKEN_EVENTS)
async def test_a_broken_watch_begins_again(case: str, tasks: Ledger, api: ClusterApi) -> None:
    async with watching(tasks, api.url):
        await api.until_watched()
        api.pods["a"] = pod(phase="Failed")  # the watch misses this pod
        api.send(BROKEN_EVENTS[case])
        await until_state(tasks, "failed")


async def test_an_event_in_pieces_is_read_and_bookmarks_are_passed_over(
    tasks: Ledger, api: ClusterApi
) -> None:
    event = json.dumps({"type": "MODIFIED", "object": pod(phase="Failed")}).encode()
    async with watching(tasks, api.url):
        await api.until_watched()
        api.send(b'{"type": "BOOKMARK", "object": {"metadata": {}}}\n\n' + event[:40])
        api.send(event[40:])
        api.send(b"\n")
        await until_state(tasks, "failed")
    assert api.lists == 1


async def test_a_watch_with_an_endless_line_is_ended(tasks: Ledger, api: ClusterApi) -> None:
    async with watching(tasks, api.url, max_bytes=10_000):
        await api.until_watched()
        api.send(b"x" * 20_000)
        await async_eventually("a second list", lambda: api.lists == 2)


async def test_an_endless_list_is_ended(tasks: Ledger, api: ClusterApi) -> None:
    api.pods["a"] = pod(phase="Failed", message="x" * 20_000)
    async with watching(tasks, api.url, max_bytes=10_000):
        await async_eventually("a second list", lambda: api.lists >= 2)
    assert await tasks.workers() == []


async def test_an_api_that_cannot_watch_is_polled_slowly(tasks: Ledger, api: ClusterApi) -> None:
    api.can_watch = False
    async with watching(tasks, api.url, min_round_s=0.1):
        await async_eventually("the first list", lambda: api.lists == 1)
        api.pods["a"] = pod(phase="Failed")
        began_s = asyncio.get_running_loop().time()
        await until_state(tasks, "failed")
        assert api.lists <= 2 + (asyncio.get_running_loop().time() - began_s) / 0.1


# ---- token ---------------------------------------------------------------------------------------


async def test_a_rotated_token_is_used(tasks: Ledger, api: ClusterApi, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old\n")
    async with watching(tasks, api.url, file):
        await api.until_watched()
        file.write_text("new\n")
        api.status = 401
        api.send(b"?\n")
        await async_eventually("the new token", lambda: "Bearer new" in api.tokens)
    assert api.tokens[0] == "Bearer old"


BAD_TOKENS = {
    "none": None,
    "empty": b"",
    "two lines": b"hush-hush\nX-Other: 1",
    "no ASCII": b"hush-hush\xff",
    "control character": b"hush-hush\x00",
}


@pytest.mark.parametrize("case", BAD_TOKENS)
async def test_a_bad_token_file_is_named_not_quoted_and_read_again(
    case: str,
    tasks: Ledger,
    api: ClusterApi,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "token"
    content = BAD_TOKENS[case]
    if content is not None:
        file.write_bytes(content)

    async with watching(tasks, api.url, file):
        logged = ""

        def is_named() -> bool:
            nonlocal logged
            logged += capsys.readouterr().out + caplog.text
            return str(file) in logged

        await async_eventually("a log line with the name of the file", is_named)
        assert api.requests == []
        file.write_bytes(b"good")
        await api.until_watched()
    assert "hush-hush" not in logged
