"""Creates job resources at a fixed rate, in a process of its own; the load, not what is measured.

    python -m tests.bench.creator URL CA TOKEN_FILE NAMESPACE COUNT RATE NODES

Each is sent at its time, whether the one before was answered or not. Prints one JSON object:
uid -> [request, answer], seconds of the machine's monotonic clock.
"""

import asyncio
import json
import ssl
import sys
import time
from pathlib import Path
from typing import Final

import aiohttp
import uvloop

from tests.bench.edges import node_name
from tests.bench.samples import MODEL, service

PLURAL: Final = "jointinferenceservices"


async def create(
    session: aiohttp.ClientSession, url: str, namespace: str, number: int, node: str
) -> tuple[str, float, float]:
    path = f"{url}/apis/edgeai.io/v1alpha1/namespaces/{namespace}/{PLURAL}"
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
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=ca), limit=32)
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
        begin_s = time.monotonic()
        asked = []
        for number in range(count):
            await asyncio.sleep(max(0.0, begin_s + number / rate - time.monotonic()))
            node = node_name(number % nodes)
            asked.append(asyncio.create_task(create(session, url, namespace, number, node)))
        answers = await asyncio.gather(*asked)
    print(json.dumps({uid: times for uid, *times in answers}))


if __name__ == "__main__":
    url, ca, token_file, namespace, count, rate, nodes = sys.argv[1:]
    token = Path(token_file).read_text().strip()
    uvloop.run(run(url, ca, token, namespace, int(count), float(rate), int(nodes)))
