"""Watches the pods of this node, if a cluster API or KubeEdge's MetaServer is configured.

`app` starts the watch. The watch reports a worker whose pod ended without a last message of the
worker. Only a pod's state is evidence. An API that cannot be reached, or lists no pod at all,
proves nothing about any worker. Plain HTTP: the Kubernetes client would triple the memory.

A pod counts for a worker only if it is on this node, in the namespace of the worker's job, and its
controller belongs to the job. The messages that a worker sends with its secret count more than any
pod, because every user who may create pods in the namespace can imitate the worker's pod. A worker
that has no secret never speaks: its pod alone tells its state, from the first run on.
"""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import msgspec

from common.logs import get_logger
from common.tasks import TaskGroup
from common.wire import TaskVersion
from edgeai.backoff import Backoff
from edgeai.errors import EdgeAIError, Unavailable
from edgeai.ids import NodeName, TaskKey, Uid, parse_task_key
from edgeai.labels import LABEL_UID, LABEL_WORKER
from localcontroller.ledger.ledger import Ledger
from localcontroller.ledger.outbox import WorkerKey
from localcontroller.ledger.tables import NotGranted
from localcontroller.workers.heartbeats import Heartbeats
from localcontroller.workers.pods import Verdict, WorkerPod, age, facts, judge

log = get_logger(__name__)

_WORKERS: Final = {"labelSelector": f"{LABEL_UID},{LABEL_WORKER}"}
WATCH_S: Final = 300  # duration of a watch; the next list finds what the watch missed
MIN_ROUND_S: Final = 5.0
CONNECT_S: Final = 10.0
LIST_S: Final = 30.0
PAGE: Final = 100
MAX_BYTES: Final = 8 * 1024 * 1024
_HEAD_BYTES: Final = 64 * 1024
_LIST_METADATA: Final = re.compile(rb'"metadata"\s*:\s*(\{[^{}]*\})')


class _ListMetadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class _PodList(msgspec.Struct, frozen=True):
    metadata: _ListMetadata
    items: list[WorkerPod] | None = None


class _Pods(NamedTuple):
    by_uid: dict[str, WorkerPod]
    resource_version: str
    """From which to watch."""
    is_complete: bool
    """False: a pod was left out, because it is too large."""


class _WatchEvent(msgspec.Struct, frozen=True):
    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: msgspec.Raw


class PodsSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where to read the pods of `node`."""

    url: str
    node: NodeName
    token_file: Path | None = None
    ca_file: Path | None = None


class PodWatch:
    """
    Args:
        min_round_s: least time from the start of one list to the start of the next
        max_bytes: limit of one page of a list, and of one line of a watch
    """

    def __init__(
        self,
        source: PodsSource,
        ledger: Ledger,
        heartbeats: Heartbeats,
        backoff: Backoff,
        *,
        min_round_s: float = MIN_ROUND_S,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._source = source
        self._ledger = ledger
        self._heartbeats = heartbeats
        self._backoff = backoff
        self._min_round_s = min_round_s
        self._max_bytes = max_bytes
        self._pods: dict[str, WorkerPod] = {}  # this node's pods, by uid
        self._params: dict[str, str] = {}  # selectors of the last list; the watch uses them, too
        self._task_versions: Mapping[TaskKey, TaskVersion] = {}  # the source of _namespaces
        self._namespaces: dict[Uid, str] = {}  # namespace of each job that this node holds

    async def run(self) -> None:
        """List and watch the pods again and again, until cancelled."""
        async with TaskGroup() as tasks:
            tasks.create_task(self._follow_tasks(), name="pods of new tasks")
            while True:
                delay_s = await self._round()
                await asyncio.sleep(delay_s)

    async def _round(self) -> float:
        """List once and watch until the watch ends. Returns: seconds until the next round."""
        began_s = asyncio.get_running_loop().time()
        try:
            await self._list_and_watch()
            # An API that cannot watch ends the watch at once; then run() polls by lists.
            return max(0.0, began_s + self._min_round_s - asyncio.get_running_loop().time())
        except (aiohttp.ClientError, OSError, EdgeAIError, msgspec.MsgspecError) as error:
            problem = str(error) or type(error).__name__
        except Exception as error:  # an unexpected error must not end the task
            log.exception("pod watch failed")
            problem = repr(error)
        delay_s = self._backoff.next_s()
        log.warning("cannot watch pods", reason=problem, retry_in_s=round(delay_s, 1))
        return delay_s

    async def _list_and_watch(self) -> None:
        connector = aiohttp.TCPConnector(ssl=_tls(self._source), limit=1)
        async with aiohttp.ClientSession(connector=connector, headers=_headers(self._source)) as s:
            resource_version = await self._list(s)
            async for event in self._watch(s, resource_version):
                await self._on_event(event)

    # ---- pods and verdicts ----------------------------------------------------------------------

    async def _follow_tasks(self) -> None:
        """Judge the pods of each new task or version: a pod is often here before its task."""
        previous_view = self._ledger.view
        while True:
            view = await self._ledger.change_since(previous_view)
            if view.task_versions is not previous_view.task_versions:
                uids = {
                    task.uid
                    for key, task in view.task_versions.items()
                    if previous_view.task_versions.get(key) != task
                }
                await self._judge_again(uids)
            previous_view = view

    async def _judge_again(self, jobs: Collection[str]) -> None:
        """Args: jobs: uids"""
        pods = [
            pod
            for pod in self._pods.values()
            if (key := pod.worker_key) is not None and key.uid in jobs
        ]
        try:
            await self._judge(pods)
        except EdgeAIError as error:  # the next list judges the pods again
            log.warning("cannot record pod states, retrying", reason=str(error))
        except Exception:  # an unexpected error must not end the task; the next list judges again
            log.exception("pods of new tasks not evaluated")

    async def _on_event(self, event: _WatchEvent) -> None:
        if event.type == "BOOKMARK":
            return
        if event.type == "ERROR":
            raise Unavailable(f"watch ended: {bytes(event.object)[:200].decode(errors='replace')}")
        pod = msgspec.json.decode(event.object, type=WorkerPod)
        if pod.spec.node_name != self._source.node:
            return
        if event.type == "DELETED":
            await self._forget(pod)
        else:
            self._pods[pod.metadata.uid] = pod
            await self._judge([pod])

    async def _forget(self, pod: WorkerPod) -> None:
        self._pods.pop(pod.metadata.uid, None)
        key = self._worker_of(pod)
        if key is not None and self._newest(key) is None:
            await self._observe(key, pod, Verdict("lost", f"pod {pod.metadata.name} was deleted"))

    async def _judge(self, pods: Iterable[WorkerPod]) -> None:
        """Record for each worker of `pods` the verdict on its newest pod."""
        for key in {self._worker_of(pod) for pod in pods} - {None}:
            assert key is not None
            newest = self._newest(key)
            verdict = None if newest is None else judge(newest)
            if newest is not None and verdict is not None:
                await self._observe(key, newest, verdict)

    def _newest(self, key: WorkerKey) -> WorkerPod | None:
        """The worker's youngest pod. A worker has two pods while one pod replaces the other."""
        pods = [pod for pod in self._pods.values() if self._worker_of(pod) == key]
        return max(pods, key=age, default=None)

    def _worker_of(self, pod: WorkerPod) -> WorkerKey | None:
        """The worker that runs in the pod; None: the pod belongs to no task of this node."""
        key = pod.worker_key
        if key is None or not pod.may_be_controlled_by(key.uid):
            return None
        return key if self._namespace_of(key.uid) == pod.metadata.namespace else None

    def _namespace_of(self, job: Uid) -> str | None:
        """The namespace of the job; None: this node holds no task of the job."""
        versions = self._ledger.view.task_versions
        if versions is not self._task_versions:
            self._task_versions = versions
            self._namespaces = {
                Uid(task.uid): parse_task_key(key).namespace for key, task in versions.items()
            }
        return self._namespaces.get(job)

    async def _observe(self, key: WorkerKey, pod: WorkerPod, verdict: Verdict) -> None:
        """Record the verdict. A worker with a heartbeat deadline gets "lost", never a final status.

        After a missed deadline, Heartbeats records the final status.
        """
        status, is_dead = verdict.status, verdict.status != "running"
        if is_dead and self._heartbeats.suspect(*key, verdict.status, verdict.reason):
            status = "lost"
        try:
            worker = await self._ledger.observe(*key, status, verdict.reason, pod=facts(pod))
        except NotGranted:
            return  # this node does not have the worker yet; the next list shows the pod again
        if is_dead and worker.reason == verdict.reason:
            log.warning("worker seen dead", uid=key.uid, worker=key.worker, reason=verdict.reason)

    # ---- the API --------------------------------------------------------------------------------

    async def _list(self, session: aiohttp.ClientSession) -> str:
        """List the pods, and judge them. Returns: the resourceVersion from which to watch."""
        self._params = {**_WORKERS, "fieldSelector": f"spec.nodeName={self._source.node}"}
        pods, version, is_complete = await self._read_all(session)
        if not pods and self._ledger.view.grants:
            # KubeEdge's MetaServer lists no pods for this selector while the cloud is offline.
            self._params = {**_WORKERS}
            pods, version, is_complete = await self._read_all(session)
        absent = [pod for uid, pod in self._pods.items() if uid not in pods]
        deleted = absent
        if not pods or not is_complete:
            # An empty list does not prove that the pods are gone, because an API that lost its data
            # lists no pods. A pod that was left out is not gone either. So ask for each by name.
            deleted = [pod for pod in absent if await self._is_gone(session, pod)]
        for pod in absent:
            if pod not in deleted:
                pods[pod.metadata.uid] = pod
        self._pods = pods
        for pod in deleted:
            await self._forget(pod)
        await self._judge(pods.values())
        return version

    async def _read_all(self, session: aiohttp.ClientSession) -> "_Pods":
        """This node's pods, a large page in smaller ones. A pod that is too large is left out.

        Raises: Unavailable, ClientError
        """
        url = self._url("/api/v1/pods")
        timeout = aiohttp.ClientTimeout(total=LIST_S, sock_connect=CONNECT_S)
        pods: dict[str, WorkerPod] = {}
        page = _ListMetadata()
        limit, is_complete = PAGE, True
        while True:
            params = {**self._params, "limit": str(limit)}
            if page.continue_:
                params["continue"] = page.continue_
            async with session.get(url, params=params, timeout=timeout) as response:
                _check(response)
                body = await _read_body(response, self._max_bytes)
            if not body.is_whole and limit > 1:
                limit //= 2
                continue
            if body.is_whole:
                result = msgspec.json.decode(body.content, type=_PodList)
            else:
                result = _PodList(_metadata_at_the_head(body.content))
                log.warning("pod left out of the list, too large", limit_bytes=self._max_bytes)
                is_complete = False
            pods.update(
                (pod.metadata.uid, pod)
                for pod in result.items or []
                if pod.spec.node_name == self._source.node
            )
            page = result.metadata
            if not page.continue_:
                return _Pods(pods, page.resource_version, is_complete)

    async def _is_gone(self, session: aiohttp.ClientSession, pod: WorkerPod) -> bool:
        """Whether the API answers that the pod does not exist. Other answers prove nothing."""
        path = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"
        timeout = aiohttp.ClientTimeout(total=LIST_S, sock_connect=CONNECT_S)
        async with session.get(self._url(path), timeout=timeout) as response:
            if response.status != 200:
                return response.status == 404
            body = await _read_body(response, self._max_bytes)
        if not body.is_whole:
            return False
        return msgspec.json.decode(body.content, type=WorkerPod).metadata.uid != pod.metadata.uid

    async def _watch(
        self, session: aiohttp.ClientSession, resource_version: str
    ) -> AsyncIterator[_WatchEvent]:
        params = {
            **self._params,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(WATCH_S),
        }
        timeout = aiohttp.ClientTimeout(total=2 * WATCH_S, sock_connect=CONNECT_S)
        url = self._url("/api/v1/pods")
        async with session.get(url, params=params, timeout=timeout) as response:
            _check(response)
            self._backoff.reset()
            async for line in _lines(response.content, self._max_bytes):
                yield msgspec.json.decode(line, type=_WatchEvent)

    def _url(self, path: str) -> str:
        return self._source.url.rstrip("/") + path


class _Body(NamedTuple):
    content: bytes
    is_whole: bool


async def _read_body(response: aiohttp.ClientResponse, max_bytes: int) -> _Body:
    """The body, or its beginning where it has more than `max_bytes`. Raises: ClientError"""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > max_bytes:
            return _Body(bytes(body), is_whole=False)
    return _Body(bytes(body), is_whole=True)


def _metadata_at_the_head(body: bytes) -> _ListMetadata:
    """The metadata of a list of which only the beginning is known. Raises: Unavailable"""
    match = _LIST_METADATA.search(body[:_HEAD_BYTES])
    if match is None:
        raise Unavailable("a list of pods is too large, and its metadata are not at its head")
    return msgspec.json.decode(match[1], type=_ListMetadata)


def _check(response: aiohttp.ClientResponse) -> None:
    if response.status != 200:
        raise Unavailable(f"{response.url.path} answered with {response.status}")


async def _lines(stream: aiohttp.StreamReader, max_bytes: int) -> AsyncIterator[bytes]:
    """The lines of a watch, but those of more than `max_bytes`: a huge pod must not hide others."""
    parts: list[bytes] = []
    size_bytes = 0
    async for chunk in stream.iter_any():
        for number, piece in enumerate(chunk.split(b"\n")):
            if number:  # the end of a line was before this piece
                if 0 < size_bytes <= max_bytes:
                    yield b"".join(parts)
                elif size_bytes:
                    log.warning("pod left out of the watch, too large", size_bytes=size_bytes)
                parts, size_bytes = [], 0
            size_bytes += len(piece)
            if size_bytes <= max_bytes:
                parts.append(piece)
            else:
                parts.clear()


def _tls(source: PodsSource) -> ssl.SSLContext | bool:
    """Raises: OSError, ssl.SSLError"""
    if urlsplit(source.url).scheme != "https":
        return True
    return ssl.create_default_context(cafile=source.ca_file)


def _headers(source: PodsSource) -> dict[str, str]:
    """Read the token again for each list: it may have been replaced. Raises: Unavailable"""
    headers = {"Accept": "application/json"}
    if source.token_file is not None:
        headers["Authorization"] = f"Bearer {_read_token(source.token_file)}"
    return headers


def _read_token(file: Path) -> str:
    """Raises: Unavailable; its text has no content of the file"""
    try:
        token = file.read_text("ascii").strip()
    except OSError as error:
        raise Unavailable(f"token file {file}: {error.strerror}") from error
    except UnicodeDecodeError:
        token = ""
    if not token or any(character <= " " or character > "~" for character in token):
        raise Unavailable(f"token file {file}: it is not one word of printable ASCII")
    return token
