"""Watches collections and tells what it sees, and when; a process of its own, as any client is.

    python -m tests.bench.onlooker URL CA TOKEN_FILE PATH...

Prints a JSON array for each news: [path, name, what, time]. `what` is "exists", with the uid after
a colon, "gone", a phase, a condition that has become true, "count", with .status.uploadCount after
a colon, or "ended" once a worker of the job has completed. The time is in seconds of the machine's
monotonic clock. When a watch begins, its line is [path, "", "watched", time]. A watch, because
repeated lists would load the server that is measured.
"""

import asyncio
import json
import ssl
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
import uvloop

from tests.bench.process import DEADLINE_S, Teller
from tests.support.waiting import eventually

LINE_BYTES: Final = 2**20


class Onlooker(Teller):
    """The process, from outside. Args: connection: URL CA TOKEN_FILE; paths: by any name"""

    def __init__(self, connection: Sequence[str], **paths: str) -> None:
        self.paths = paths
        self._seen: dict[str, dict[tuple[str, str], float]] = {p: {} for p in paths.values()}
        super().__init__("onlooker", *connection, *paths.values())
        eventually("all watches", lambda: all(self.times(each, "watched") for each in paths))

    def _on_news(self, news: Any) -> None:
        path, name, what, at = news
        self._seen[path][name, what] = at

    def times(self, resource: str, what: str) -> dict[str, float]:
        """Name -> when it was seen so; of all that have a colon after `what`, "NAME:REST"."""
        found = {}
        for (name, told), at in list(self._seen[self.paths[resource]].items()):
            kind, _, rest = told.partition(":")
            if told == what:
                found[name] = at
            elif kind == what:
                found[f"{name}:{rest}"] = at
        return found

    def wait_for(self, resource: str, what: str, count: int) -> dict[str, float]:
        def check() -> dict[str, float]:
            times = self.times(resource, what)
            assert len(times) >= count, f"{len(times)} of {count}"
            return times

        return eventually(f"{resource} that are {what!r}", check, timeout_s=DEADLINE_S)


# ---- the process --------------------------------------------------------------------------------


class Metadata(msgspec.Struct, frozen=True):
    name: str = ""
    uid: str = ""


class Condition(msgspec.Struct, frozen=True):
    type: str
    status: str


class Worker(msgspec.Struct, frozen=True, rename="camel"):
    status: str = ""
    task_info: dict[str, float] = {}


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """What the measurements read of a status, whatever the type."""

    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    upload_count: int | None = None
    workers: dict[str, Worker] = {}


class Object(msgspec.Struct, frozen=True):
    metadata: Metadata = Metadata()
    status: Status = Status()


class Event(msgspec.Struct, frozen=True):
    type: str
    object: Object


def api_session(url: str, ca: str, token: str) -> aiohttp.ClientSession:
    """Paths of its requests begin with a slash."""
    return aiohttp.ClientSession(
        base_url=url,
        connector=aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=ca), limit=64),
        headers={"Authorization": f"Bearer {token}"},
        timeout=aiohttp.ClientTimeout(total=None),
        read_bufsize=LINE_BYTES,
    )


async def events(
    api: aiohttp.ClientSession, path: str, *, on_begin: Callable[[], object] = time.monotonic
) -> AsyncGenerator[tuple[Event, float]]:
    """The events of a watch without end, each with its time."""
    decoder = msgspec.json.Decoder(Event)
    query = {"watch": "true", "resourceVersion": "0", "timeoutSeconds": "3600"}
    while True:  # a server that is behind may end a watch
        async with api.get(path, params=query) as answer:
            answer.raise_for_status()
            on_begin()
            async for line in answer.content:
                now_s = time.monotonic()
                yield decoder.decode(line), now_s


def news_of(event: Event) -> Iterator[str]:
    if event.type == "DELETED":
        yield "gone"
        return
    status = event.object.status
    yield f"exists:{event.object.metadata.uid}"
    yield from filter(None, (status.phase,))
    yield from (each.type for each in status.conditions if each.status == "True")
    if status.upload_count is not None:
        yield f"count:{status.upload_count}"
    if any(worker.status == "completed" for worker in status.workers.values()):
        yield "ended"


async def watch(api: aiohttp.ClientSession, path: str) -> None:
    def tell(name: str, what: str, at: float) -> None:
        print(json.dumps([path, name, what, at]), flush=True)

    told: set[tuple[str, str]] = set()
    began = events(api, path, on_begin=lambda: tell("", "watched", time.monotonic()))
    async for event, now_s in began:
        name = event.object.metadata.name
        for what in news_of(event):
            if (name, what) not in told:
                told.add((name, what))
                tell(name, what, now_s)


async def run(url: str, ca: str, token: str, paths: list[str]) -> None:
    async with api_session(url, ca, token) as api:
        await asyncio.gather(*(watch(api, path) for path in paths))


if __name__ == "__main__":
    url, ca, token_file, *paths = sys.argv[1:]
    uvloop.run(run(url, ca, Path(token_file).read_text().strip(), paths))
