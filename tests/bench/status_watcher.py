"""Watches .status of the job resources, in a process of its own: what a reader sees, and when.

    python -m tests.bench.status_watcher URL CA TOKEN_FILE NAMESPACE SECONDS

Prints one JSON object: uid -> [[S, value, is ended], …] for each new status.uploadCount of a job,
and for the end of its worker. S is in seconds of the machine's monotonic clock.
"""

import asyncio
import json
import ssl
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import uvloop

from tests.bench.creator import PLURAL
from tests.bench.watcher import LINE_BYTES


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    uid: str = ""
    resource_version: str = ""


class _Worker(msgspec.Struct, frozen=True):
    status: str = ""


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    upload_count: int = -1
    workers: dict[str, _Worker] = {}


class _Object(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    status: _Status = _Status()


class _Event(msgspec.Struct):
    type: str
    object: _Object


Seen = dict[str, list[tuple[float, int, bool]]]


async def watch(url: str, ca: str, token: str, namespace: str, seen: Seen) -> None:
    decoder = msgspec.json.Decoder(_Event)
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=ca))
    headers = {"Authorization": f"Bearer {token}"}
    path = f"{url}/apis/edgeai.io/v1alpha1/namespaces/{namespace}/{PLURAL}"
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(
        connector=connector, headers=headers, timeout=timeout, read_bufsize=LINE_BYTES
    ) as session:
        async with session.get(path, params={"limit": "1"}) as answer:
            version = (await answer.json())["metadata"]["resourceVersion"]
        while True:  # a server that is behind may end a watch
            query: dict[str, Any] = {"watch": "true", "resourceVersion": version}
            async with session.get(path, params=query) as answer:
                async for line in answer.content:
                    event = decoder.decode(line)
                    if event.type == "ERROR":
                        sys.exit(f"the watch of the statuses is refused: {line.decode()}")
                    version = event.object.metadata.resource_version
                    note(seen, event.object, time.monotonic())


def note(seen: Seen, job: _Object, now_s: float) -> None:
    is_ended = any(worker.status == "completed" for worker in job.status.workers.values())
    told = seen.setdefault(job.metadata.uid, [])
    if not told or told[-1][1:] != (job.status.upload_count, is_ended):
        told.append((now_s, job.status.upload_count, is_ended))


async def run(url: str, ca: str, token: str, namespace: str, seconds: float) -> None:
    seen: Seen = {}
    watching = asyncio.create_task(watch(url, ca, token, namespace, seen))
    done, _ = await asyncio.wait([watching], timeout=seconds)
    if done:
        watching.result()
        sys.exit("the watch has ended")
    watching.cancel()
    print(json.dumps(seen))


if __name__ == "__main__":
    url, ca, token_file, namespace, seconds = sys.argv[1:]
    token = Path(token_file).read_text().strip()
    uvloop.run(run(url, ca, token, namespace, float(seconds)))
