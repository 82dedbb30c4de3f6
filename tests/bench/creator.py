"""Creates job resources at a fixed rate, in a process of its own; the load, not what is measured.

    python -m tests.bench.creator URL CA TOKEN_FILE NAMESPACE COUNT RATE NODES

Each is sent at its time, whether the one before was answered or not. Meanwhile this process watches
the resource, as any controller would: that is how late the API server and the machine alone are.
Prints one JSON object: uid -> [request, answer, watch], seconds of the machine's monotonic clock.
"""

import asyncio
import json
import sys
import time
from contextlib import aclosing
from pathlib import Path
from typing import Final

import aiohttp
import uvloop

from tests.bench.onlooker import api_session, events
from tests.bench.samples import MODEL, node_name, service

PLURAL: Final = "jointinferenceservices"
WATCHED_S: Final = 120.0


async def watch(session: aiohttp.ClientSession, path: str, count: int) -> dict[str, float]:
    """When each of `count` new objects was seen: uid -> seconds."""
    seen: dict[str, float] = {}
    async with aclosing(events(session, path)) as news:
        async for event, now_s in news:
            seen.setdefault(event.object.metadata.uid, now_s)
            if len(seen) == count:
                break
    return seen


async def create(
    session: aiohttp.ClientSession, path: str, namespace: str, number: int, node: str
) -> tuple[str, float, float]:
    asked_s = time.monotonic()
    body = service(number, namespace, node, model=MODEL)
    async with session.post(path, json=body) as answer:
        answered_s = time.monotonic()
        answer.raise_for_status()
        created = await answer.json()
    return created["metadata"]["uid"], asked_s, answered_s


async def run(
    url: str, ca: str, token: str, namespace: str, count: int, rate: float, nodes: int
) -> None:
    async with api_session(url, ca, token) as session:
        path = f"/apis/edgeai.io/v1alpha1/namespaces/{namespace}/{PLURAL}"
        watching = asyncio.create_task(watch(session, path, count))
        begin_s = time.monotonic()
        asked = []
        for number in range(count):
            await asyncio.sleep(max(0.0, begin_s + number / rate - time.monotonic()))
            node = node_name(number % nodes)
            asked.append(asyncio.create_task(create(session, path, namespace, number, node)))
        answers = await asyncio.gather(*asked)
        seen = await asyncio.wait_for(watching, WATCHED_S)
    print(json.dumps({uid: [*times, seen[uid]] for uid, *times in answers}))


if __name__ == "__main__":
    url, ca, token_file, namespace, count, rate, nodes = sys.argv[1:]
    token = Path(token_file).read_text().strip()
    uvloop.run(run(url, ca, token, namespace, int(count), float(rate), int(nodes)))
