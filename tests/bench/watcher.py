"""Watches the job resources until each has its last value; a process of its own, as any client is.

    python -m tests.bench.watcher URL CA TOKEN_FILE NAMESPACE COUNT VALUE

Prints one JSON object: {"visible": seconds of the machine's monotonic clock at which the last of
COUNT resources had VALUE as status.uploadCount}. A watch, because repeated lists of all resources
would load the server that is measured.
"""

import asyncio
import json
import ssl
import sys
import time
from pathlib import Path
from typing import Final

import aiohttp
import msgspec
import uvloop

from tests.bench.creator import PLURAL

WATCHED_S: Final = 120.0
LINE_BYTES: Final = 2**20


class _Metadata(msgspec.Struct, frozen=True):
    uid: str = ""


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    upload_count: int = 0


class _Object(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    status: _Status = _Status()


class _Event(msgspec.Struct):
    object: _Object


async def watch(url: str, ca: str, token: str, namespace: str, count: int, value: int) -> float:
    decoder = msgspec.json.Decoder(_Event)
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=ca))
    headers = {"Authorization": f"Bearer {token}"}
    path = f"{url}/apis/edgeai.io/v1alpha1/namespaces/{namespace}/{PLURAL}"
    query = {"watch": "true", "resourceVersion": "0"}
    timeout = aiohttp.ClientTimeout(total=None)
    has_value: set[str] = set()
    async with aiohttp.ClientSession(
        connector=connector, headers=headers, timeout=timeout, read_bufsize=LINE_BYTES
    ) as session:
        while True:  # a server that is behind may end a watch
            async with session.get(path, params=query) as answer:
                async for line in answer.content:
                    now_s = time.monotonic()
                    seen = decoder.decode(line).object
                    if seen.status.upload_count == value:
                        has_value.add(seen.metadata.uid)
                    if len(has_value) == count:
                        return now_s


async def run(url: str, ca: str, token: str, namespace: str, count: int, value: int) -> None:
    watching = watch(url, ca, token, namespace, count, value)
    print(json.dumps({"visible": await asyncio.wait_for(watching, WATCHED_S)}))


if __name__ == "__main__":
    url, ca, token_file, namespace, count, value = sys.argv[1:]
    token = Path(token_file).read_text().strip()
    uvloop.run(run(url, ca, token, namespace, int(count), int(value)))
