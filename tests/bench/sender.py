"""Sends many requests to the API server, in a process of its own: a bare client.

    python -m tests.bench.sender URL CA TOKEN_FILE REQUESTS CONCURRENCY

REQUESTS is a file whose lines are [method, path, body] as JSON. CONCURRENCY requests are under way
at a time. Prints one JSON object: {"began", "ended"}, seconds of the machine's monotonic clock.
"""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any, Final

import aiohttp
import uvloop

from tests.bench.onlooker import api_session

CONTENT_TYPES: Final = {
    "POST": "application/json",
    "PATCH": "application/merge-patch+json",
    "DELETE": "application/json",
}


async def run(url: str, ca: str, token: str, requests: list[Any], concurrency: int) -> None:
    left = iter(requests)

    async def send(session: aiohttp.ClientSession) -> None:
        for method, path, body in left:
            typed = {"Content-Type": CONTENT_TYPES[method]}
            async with session.request(method, path, data=body, headers=typed) as answer:
                if not 200 <= answer.status < 300:
                    raise SystemExit(f"{method} {path}: {answer.status} {await answer.text()}")
                await answer.read()

    async with api_session(url, ca, token) as session:
        began = time.monotonic()
        await asyncio.gather(*(send(session) for _ in range(concurrency)))
        print(json.dumps({"began": began, "ended": time.monotonic()}))


if __name__ == "__main__":
    url, ca, token_file, file, concurrency = sys.argv[1:]
    lines = [json.loads(line) for line in Path(file).read_text().splitlines()]
    prepared = [(method, path, json.dumps(body)) for method, path, body in lines]
    uvloop.run(run(url, ca, Path(token_file).read_text().strip(), prepared, int(concurrency)))
