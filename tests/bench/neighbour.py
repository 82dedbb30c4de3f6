"""The honest neighbour of the section `hostile`: makes jobs and reports, and measures both.

    python -m tests.bench.neighbour URL CA TOKEN_FILE NAMESPACE NODE STATUS_URL SECONDS
        WORKER_URL...

Creates JointInferenceServices on NODE and asks the LocalController at STATUS_URL when it holds
each. Also watches them, as any client may: so late are the API server and the machine. Reports as
the workers of WORKER_URLs, and watches until each report stands in the status.
Everything is done at its time, whether what came before is done or not. A sample that takes longer
than PATIENCE_S counts PATIENCE_S and is named in `unseen`. Prints one JSON object.
"""

import asyncio
import contextlib
import json
import sys
import time
from pathlib import Path
from typing import Any, Final

import aiohttp
import uvloop

from tests.bench.onlooker import Status, api_session, events
from tests.bench.pace import paced
from tests.bench.samples import MODEL, path_of, service

JOB_EVERY_S: Final = 0.25
REPORT_EVERY_S: Final = 0.5  # of one worker
HEARTBEAT_S: Final = 5.0  # what each worker promises; after three times as long it counts as lost
POLL_S: Final = 0.002  # between two questions for the tasks of the LocalController
AGAIN_S: Final = 0.2  # between two attempts at one report
PATIENCE_S: Final = 30.0


class Jobs:
    """Jobs that come and go, and when the LocalController holds each."""

    def __init__(self, api: aiohttp.ClientSession, path: str, node: str, status_url: str) -> None:
        self._api, self._path, self._node = api, path, node
        self._tasks_url = f"{status_url}/api/v1/tasks"
        self._waiting: dict[str, asyncio.Future[float]] = {}  # by uid
        self._watched: dict[str, asyncio.Future[float]] = {}  # by uid
        self.took_ms: list[float] = []
        self.watched_ms: list[float] = []
        self.unseen = 0

    async def run(self, seconds: float) -> None:
        async with aiohttp.ClientSession() as edge, asyncio.TaskGroup() as tasks:
            watch = tasks.create_task(self._watch())
            poll = tasks.create_task(self._poll(edge))
            async with asyncio.TaskGroup() as samples:
                async for number in paced(JOB_EVERY_S, seconds):
                    samples.create_task(self._sample(number))
            poll.cancel()
            watch.cancel()

    async def _watch(self) -> None:
        async for event, now_s in events(self._api, self._path):
            watched = self._watched_at(event.object.metadata.uid)
            if not watched.done():
                watched.set_result(now_s)

    def _watched_at(self, uid: str) -> asyncio.Future[float]:
        """When the watch tells of the job, which may be before the answer to `create`."""
        return self._watched.setdefault(uid, asyncio.get_running_loop().create_future())

    async def _sample(self, number: int) -> None:
        wanted = service(number, "", self._node, model=MODEL)
        wanted["metadata"] = {"generateName": "neighbour-"}
        async with self._api.post(self._path, json=wanted) as answer:
            told_s = time.monotonic()
            answer.raise_for_status()
            metadata = (await answer.json())["metadata"]
        held = self._waiting[metadata["uid"]] = asyncio.get_running_loop().create_future()
        watched = self._watched_at(metadata["uid"])
        try:
            async with asyncio.timeout(PATIENCE_S):
                self.took_ms.append((await held - told_s) * 1000)
                self.watched_ms.append((await watched - told_s) * 1000)
        except TimeoutError:
            self.took_ms.append(PATIENCE_S * 1000)
            self.unseen += 1
        del self._waiting[metadata["uid"]]
        async with self._api.delete(f"{self._path}/{metadata['name']}") as answer:
            answer.raise_for_status()

    async def _poll(self, edge: aiohttp.ClientSession) -> None:
        """Ask the LocalController for what it holds, while anything is awaited."""
        while True:
            await asyncio.sleep(POLL_S)
            if not self._waiting:
                continue
            async with edge.get(self._tasks_url) as answer:
                held = {task["uid"] for task in (await answer.json())["items"]}
            now_s = time.monotonic()
            for uid in held & self._waiting.keys():
                if not self._waiting[uid].done():
                    self._waiting[uid].set_result(now_s)


class Reports:
    """Reports of several workers, and when each stands in the status of its job."""

    def __init__(self, api: aiohttp.ClientSession, path: str, urls: list[str]) -> None:
        self._api, self._path = api, path
        self._urls = {url.rsplit("/", 2)[1]: url for url in urls}  # by name of the worker
        self._waiting: dict[str, dict[int, asyncio.Future[float]]] = {
            each: {} for each in self._urls
        }
        # The counts of a job never fall, so those of this run begin after those before.
        self._first = int(time.time() * 1000)
        self.took_ms: list[float] = []
        self.unseen = 0

    async def run(self, seconds: float) -> None:
        async with aiohttp.ClientSession() as edge, asyncio.TaskGroup() as tasks:
            watch = tasks.create_task(self._watch())
            async with asyncio.TaskGroup() as samples:
                async for number in paced(REPORT_EVERY_S, seconds):
                    for worker in self._urls:
                        samples.create_task(self._sample(edge, worker, self._first + number))
            watch.cancel()

    async def _sample(self, edge: aiohttp.ClientSession, worker: str, value: int) -> None:
        seen = self._waiting[worker][value] = asyncio.get_running_loop().create_future()
        began_s = time.monotonic()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._post(edge, worker, value)
                self.took_ms.append((await seen - began_s) * 1000)
        except TimeoutError:
            self.took_ms.append(PATIENCE_S * 1000)
            self.unseen += 1
        del self._waiting[worker][value]

    async def _post(self, edge: aiohttp.ClientSession, worker: str, value: int) -> None:
        """As the worker SDK: again, until it is taken."""
        message = {
            "phase": "inference",
            "status": "running",
            "heartbeatSeconds": HEARTBEAT_S,
            "output": {"taskInfo": {"seen": value}},
        }
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with edge.post(self._urls[worker], json=message) as answer:
                    if answer.ok:
                        return
            await asyncio.sleep(AGAIN_S)

    async def _watch(self) -> None:
        async for event, now_s in events(self._api, self._path):
            self._on_status(event.object.status, now_s)

    def _on_status(self, status: Status, now_s: float) -> None:
        for name in status.workers.keys() & self._urls.keys():
            value = status.workers[name].task_info.get("seen", 0)
            for awaited, future in self._waiting[name].items():
                if awaited <= value and not future.done():
                    future.set_result(now_s)


async def run(
    url: str, ca: str, token: str, *where: str, seconds: float, urls: list[str]
) -> dict[str, Any]:
    namespace, node, status_url = where
    path = path_of(namespace)
    async with api_session(url, ca, token) as api:
        jobs, reports = Jobs(api, path, node, status_url), Reports(api, path, urls)
        await asyncio.gather(jobs.run(seconds), reports.run(seconds))
    return {
        "cr_to_edge_ms": jobs.took_ms,
        "cr_to_watch_ms": jobs.watched_ms,
        "report_ms": reports.took_ms,
        "unseen": jobs.unseen + reports.unseen,
    }


if __name__ == "__main__":
    url, ca, token_file, namespace, node, status_url, seconds, *urls = sys.argv[1:]
    where = (url, ca, Path(token_file).read_text().strip(), namespace, node, status_url)
    print(json.dumps(uvloop.run(run(*where, seconds=float(seconds), urls=urls))))
