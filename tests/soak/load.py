"""Jobs that come, report and go, as watches of the API saw them and what was made for them."""

import asyncio
import contextlib
import json
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from typing import Any, Final

import aiohttp

from edgeai.cli.api import Object, collection_of, path_of
from edgeai.ids import Uid
from globalmanager.kinds.shared.secrets import worker_secret
from tests.bench.pace import paced
from tests.bench.samples import node_name
from tests.cluster.samples import service

NAMESPACE: Final = "default"
JOBS: Final = f"/apis/edgeai.io/v1alpha1/namespaces/{NAMESPACE}/jointinferenceservices"
CHILDREN: Final = (
    f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments",
    f"/api/v1/namespaces/{NAMESPACE}/services",
    f"/api/v1/namespaces/{NAMESPACE}/secrets",
)
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
LIFE_S: Final = 20.0
REPORT_EVERY_S: Final = 1.0
PROCESSES: Final = {
    "p1": 3,
    "p2": 2,
}  # processes of the worker, one after the other -> counted last
TOTAL: Final = sum(PROCESSES.values())
EXACT_S: Final = 90.0  # a takeover, a session that begins again, and much patience
LATE_S: Final = 5.0  # what is made so long after its job was gone is made for a job that is gone
RETRY_S: Final = 0.5
WATCH_S: Final = 240
WRONG: Final = (
    "counters_not_exact",
    "counters_went_back",
    "counters_too_large",
    "made_for_a_job_that_is_gone",
)


class Counts:
    """What went wrong is named, at most MAX_NAMED of each."""

    MAX_NAMED: Final = 10

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.wrong: defaultdict[str, list[str]] = defaultdict(list)
        self.wrong_count: Counter[str] = Counter()

    def blame(self, what: str, text: str) -> None:
        self.wrong_count[what] += 1
        if len(self.wrong[what]) < self.MAX_NAMED:
            self.wrong[what].append(text)

    def figures(self) -> dict[str, Any]:
        wrong = {name: self.wrong_count[name] for name in WRONG}
        return {**self.done, **wrong, "examples": dict(self.wrong)}


class SoakJob:
    def __init__(self, job: Object, number: int, ports: list[int]) -> None:
        metadata = job["metadata"]
        self.name: str = metadata["name"]
        self.uid: str = metadata["uid"]
        self.path = path_of(job)
        self.worker = f"{self.name}-edge"
        self.port = ports[number % len(ports)]
        self.seen = 0  # the newest count of the status
        self.is_exact = asyncio.Event()
        self.is_gone = asyncio.Event()


class Load:
    """
    Args:
        api: session with the API server, as admin
        workers: session with the worker APIs
        root_key: from which the GlobalManager derives the secrets of workers
        ports: of the worker APIs, by the number of the node
    """

    def __init__(
        self,
        api: aiohttp.ClientSession,
        workers: aiohttp.ClientSession,
        *,
        root_key: bytes,
        ports: list[int],
    ) -> None:
        self.counts = Counts()
        self._api, self._workers = api, workers
        self._root_key = root_key
        self._ports = ports
        self._jobs: dict[str, SoakJob] = {}  # by uid
        self._gone_at: dict[str, float] = {}
        self._living: set[str] = set()  # uids of jobs, children and pods

    @property
    def living(self) -> int:
        """Number of jobs, children and pods that the watches know."""
        return len(self._living)

    async def run(self, seconds: float, *, per_s: float) -> None:
        """Create jobs for so long, and wait for the end of the last one."""
        async with asyncio.TaskGroup() as watches:
            tasks = [
                watches.create_task(self._watch(path, on_event))
                for path, on_event in (
                    (JOBS, self._on_job),
                    (PODS, self._on_pod),
                    *((path, self._on_child) for path in CHILDREN),
                )
            ]
            async with asyncio.TaskGroup() as group:
                async for number in paced(1 / per_s, seconds):
                    group.create_task(self._live(number))
            for task in tasks:
                task.cancel()

    async def children_left(self) -> int:
        """Children whose job is gone, once the garbage collector had its time."""
        uids = {
            item["metadata"]["uid"]
            for path in CHILDREN
            for item in (await self._request("GET", path))["items"]
            if any(owner["uid"] in self._gone_at for owner in _owners(item))
        }
        return len(uids)

    # ---- one job --------------------------------------------------------------------------------

    async def _live(self, number: int) -> None:
        manifest = service(
            NAMESPACE,
            name=f"soak-{number}",
            edge={"nodeName": node_name(number % len(self._ports))},
        )
        job = SoakJob(
            await self._request("POST", collection_of(manifest), manifest), number, self._ports
        )
        self._jobs[job.uid] = job
        self.counts.done["created"] += 1
        created_s = time.monotonic()
        await self._report(job)
        try:
            await asyncio.wait_for(job.is_exact.wait(), EXACT_S)
            self.counts.done["exact"] += 1
        except TimeoutError:
            self.counts.blame("counters_not_exact", f"{job.name}: {job.seen} of {TOTAL}")
        await asyncio.sleep(max(0.0, created_s + LIFE_S - time.monotonic()))
        await self._request("DELETE", job.path)
        await job.is_gone.wait()
        self.counts.done["deleted"] += 1
        del self._jobs[job.uid]

    async def _report(self, job: SoakJob) -> None:
        secret = worker_secret(self._root_key, Uid(job.uid), "edge")
        url = f"http://127.0.0.1:{job.port}/w/{secret}/v1/workers/{job.worker}/status"
        for instance, count in PROCESSES.items():
            for seen in range(1, count + 1):
                counted = {"seen": seen, "uploaded": seen}
                message = {
                    "phase": "inference",
                    "status": "running",
                    "instance": instance,
                    "sequence": seen,
                    "output": {"taskInfo": counted, "counts": list(counted)},
                }
                await self._post(url, message)
                self.counts.done["reports"] += 1
                await asyncio.sleep(REPORT_EVERY_S)

    async def _post(self, url: str, message: Object) -> None:
        """Until it is taken: 403 before the node holds the task."""
        while True:
            with contextlib.suppress(aiohttp.ClientConnectionError, TimeoutError):
                async with self._workers.post(url, json=message) as response:
                    if response.status == 200:
                        return
            await asyncio.sleep(RETRY_S)

    # ---- what the watches say -------------------------------------------------------------------

    async def _on_job(self, type_: str, object_: Object) -> None:
        uid = object_["metadata"]["uid"]
        job = self._jobs.get(uid)
        if type_ == "DELETED":
            self._gone_at[uid] = time.monotonic()
            if job is not None:
                job.is_gone.set()
        elif job is not None:
            self._check_status(job, object_.get("status") or {})

    def _check_status(self, job: SoakJob, status: Object) -> None:
        worker = (status.get("workers") or {}).get(job.worker) or {}
        seen = int((worker.get("taskInfo") or {}).get("seen", 0))
        if seen < job.seen:
            self.counts.blame("counters_went_back", f"{job.name}: {job.seen}, then {seen}")
        if seen > TOTAL:
            self.counts.blame("counters_too_large", f"{job.name}: {seen}")
        job.seen = seen
        if seen == status.get("uploadCount") == TOTAL:
            job.is_exact.set()

    async def _on_child(self, type_: str, object_: Object) -> None:
        if type_ != "ADDED":
            return
        for owner in _owners(object_):
            self.counts.done["children"] += 1
            gone_at = self._gone_at.get(owner["uid"])
            late_s = 0.0 if gone_at is None else time.monotonic() - gone_at
            if late_s > LATE_S:
                text = f"{object_['metadata']['name']}, {late_s:.1f} s after"
                self.counts.blame("made_for_a_job_that_is_gone", text)

    async def _on_pod(self, type_: str, object_: Object) -> None:
        """End a pod that is to end, as the kubelet of its node would: there is none."""
        if type_ == "MODIFIED" and "deletionTimestamp" in object_["metadata"]:
            path = f"{PODS}/{object_['metadata']['name']}"
            with contextlib.suppress(aiohttp.ClientResponseError):
                await self._request("DELETE", path, {"gracePeriodSeconds": 0})

    async def _watch(self, path: str, on_event: Callable[[str, Object], Awaitable[None]]) -> None:
        version = (await self._request("GET", path))["metadata"]["resourceVersion"]
        timeout = aiohttp.ClientTimeout(total=None, sock_read=WATCH_S + 30)
        while True:
            query = {
                "watch": "true",
                "resourceVersion": version,
                "timeoutSeconds": str(WATCH_S),
                "allowWatchBookmarks": "true",
            }
            async with self._api.get(
                path, params=query, timeout=timeout, raise_for_status=True
            ) as answer:
                async for line in answer.content:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise RuntimeError(f"watch of {path}: {event['object']}")
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        self._count(event["type"], event["object"]["metadata"]["uid"])
                        await on_event(event["type"], event["object"])

    def _count(self, type_: str, uid: str) -> None:
        if type_ == "DELETED":
            self._living.discard(uid)
        else:
            self._living.add(uid)

    async def _request(self, method: str, path: str, body: Any = None) -> Object:
        async with self._api.request(method, path, json=body, raise_for_status=True) as answer:
            object_: Object = await answer.json()
            return object_


def _owners(object_: Object) -> list[Object]:
    owners: list[Object] = object_["metadata"].get("ownerReferences") or []
    return owners
