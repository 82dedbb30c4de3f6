"""Creates job resources at a fixed rate, in a process of its own; the load, not what is measured.

    python -m tests.bench.creator URL CA TOKEN_FILE COUNT RATE NODES

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
from tests.bench.pace import paced
from tests.bench.samples import MODEL, NAMESPACE, node_name, path_of, service

WATCHED_S: Final = 120.0


async def watch(session: aiohttp.ClientSession, count: int) -> dict[str, float]:
    """When each of `count` new objects was seen: uid -> seconds."""
    seen: dict[str, float] = {}
    async with aclosing(events(session, path_of())) as news:
        async for event, now_s in news:
            seen.setdefault(event.object.metadata.uid, now_s)
            if len(seen) == count:
                break
    return seen


async def create(
    session: aiohttp.ClientSession, number: int, node: str
) -> tuple[str, float, float]:
    asked_s = time.monotonic()
    body = service(number, NAMESPACE, node, model=MODEL)
    async with session.post(path_of(), json=body) as answer:
        answered_s = time.monotonic()
        answer.raise_for_status()
        created = await answer.json()
    return created["metadata"]["uid"], asked_s, answered_s


async def run(url: str, ca: str, token: str, count: int, rate: float, nodes: int) -> None:
    async with api_session(url, ca, token) as session:
        watching = asyncio.create_task(watch(session, count))
        asked = []
        async for number in paced(1 / rate, count / rate):
            node = node_name(number % nodes)
            asked.append(asyncio.create_task(create(session, number, node)))
        answers = await asyncio.gather(*asked)
        seen = await asyncio.wait_for(watching, WATCHED_S)
    print(json.dumps({uid: [*times, seen[uid]] for uid, *times in answers}))


if __name__ == "__main__":
    url, ca, token_file, count, rate, nodes = sys.argv[1:]
    token = Path(token_file).read_text().strip()
    uvloop.run(run(url, ca, token, int(count), float(rate), int(nodes)))
