"""Sends many requests to the API server, in a process of its own: a bare client.

    python -m tests.bench.sender URL CA TOKEN_FILE REQUESTS CONCURRENCY RATE

REQUESTS is a file whose lines are [method, path, body] as JSON. CONCURRENCY requests are under way
at a time; with a RATE other than 0 so many are sent a second, each at its time, whether the one
before was answered or not. Prints one JSON object: {"began", "ended", "answered": {UID: time}}, in
seconds of the machine's monotonic clock; the uids are those of objects that were sent at a RATE.
"""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Final

import aiohttp
import uvloop

from tests.bench.onlooker import api_session
from tests.bench.pace import paced

CONTENT_TYPES: Final = {
    "POST": "application/json",
    "PATCH": "application/merge-patch+json",
    "DELETE": "application/json",
}
Request = tuple[str, str, str]
"""Method, path and body."""


async def answer(session: aiohttp.ClientSession, request: Request) -> tuple[float, bytes]:
    """When the answer began, and its body."""
    method, path, body = request
    typed = {"Content-Type": CONTENT_TYPES[method]}
    async with session.request(method, path, data=body, headers=typed) as answer:
        now_s = time.monotonic()
        if not answer.ok:
            raise SystemExit(f"{method} {path}: {answer.status} {await answer.text()}")
        return now_s, await answer.read()


async def run(
    url: str, ca: str, token: str, requests: list[Request], concurrency: int, rate: float
) -> None:
    answered: dict[str, float] = {}
    left = iter(requests)

    async def lane() -> None:
        for request in left:
            await answer(session, request)

    async def one(request: Request) -> None:
        now_s, body = await answer(session, request)
        answered[json.loads(body)["metadata"]["uid"]] = now_s

    async with api_session(url, ca, token) as session:
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            if rate:
                async for number in paced(1 / rate, len(requests) / rate):
                    group.create_task(one(requests[number]))
            else:
                for _ in range(concurrency):
                    group.create_task(lane())
        print(json.dumps({"began": began, "ended": time.monotonic(), "answered": answered}))


if __name__ == "__main__":
    url, ca, token_file, file, concurrency, rate = sys.argv[1:]
    lines = [json.loads(line) for line in Path(file).read_text().splitlines()]
    prepared = [(method, path, json.dumps(body)) for method, path, body in lines]
    token = Path(token_file).read_text().strip()
    uvloop.run(run(url, ca, token, prepared, int(concurrency), float(rate)))
