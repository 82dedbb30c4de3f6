"""Watches collections and tells what it sees, and when; a process of its own, as any client is.

    python -m tests.bench.onlooker URL CA TOKEN_FILE PATH...

Prints a JSON array for each news: [path, name, what, time]. `what` is "exists", with the uid after
a colon, "gone", a phase, or a condition that has become true. The time is in seconds of the
machine's monotonic clock. When a watch begins, its line is [path, "", "watched", time].
"""

import asyncio
import json
import ssl
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import aiohttp
import msgspec
import uvloop

LINE_BYTES: Final = 2**20


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    uid: str = ""
    resource_version: str = ""


class _Condition(msgspec.Struct, frozen=True):
    type: str
    status: str


class _Status(msgspec.Struct, frozen=True):
    phase: str = ""
    conditions: tuple[_Condition, ...] = ()


class _Object(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    status: _Status = _Status()


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: _Object


def news_of(event: _Event) -> Iterator[str]:
    if event.type == "DELETED":
        yield "gone"
        return
    yield f"exists:{event.object.metadata.uid}"
    yield from filter(None, (event.object.status.phase,))
    for condition in event.object.status.conditions:
        if condition.status == "True":
            yield condition.type


async def watch(session: aiohttp.ClientSession, url: str, path: str) -> None:
    decoder = msgspec.json.Decoder(_Event)
    told: set[tuple[str, str]] = set()
    while True:  # a server that is behind may end a watch
        query = {"watch": "true", "resourceVersion": "0", "timeoutSeconds": "3600"}
        async with session.get(url + path, params=query) as answer:
            answer.raise_for_status()
            print(json.dumps([path, "", "watched", time.monotonic()]), flush=True)
            async for line in answer.content:
                now_s = time.monotonic()
                event = decoder.decode(line)
                name = event.object.metadata.name
                for what in news_of(event):
                    if (name, what) not in told:
                        told.add((name, what))
                        print(json.dumps([path, name, what, now_s]), flush=True)


async def run(url: str, ca: str, token: str, paths: list[str]) -> None:
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=ca))
    headers = {"Authorization": f"Bearer {token}"}
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(
        connector=connector, headers=headers, timeout=timeout, read_bufsize=LINE_BYTES
    ) as session:
        await asyncio.gather(*(watch(session, url, path) for path in paths))


if __name__ == "__main__":
    url, ca, token_file, *paths = sys.argv[1:]
    uvloop.run(run(url, ca, Path(token_file).read_text().strip(), paths))
