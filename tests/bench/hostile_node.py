"""The attackers of the section `hostile` that have the credential of a node.

Called by `attackers`, in a process of its own. They speak the frames of the protocol themselves,
because the LocalController's own session keeps the bounds that they break.
"""

import asyncio
import contextlib
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Final

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from common import wire
from edgeai.ids import TaskKey, Uid, WorkerName
from tests.globalmanager.edge.world import dial

Told = Counter[str]

OPENING_S: Final = 30.0
OUTSTANDING: Final = 250  # reports without acknowledgement; a session with more than 256 is closed
DETAILS: Final = {f"{'<' * 60}{number:02}": "<" * 256 for number in range(32)}
"""Each `<` takes six bytes in the API server's store."""
HELLOS_AT_ONCE: Final = 16
SMALL_TASKS: Final = 32_000
LONG_TASKS: Final = 12_400


class HostileNode:
    """One session of a node that does as it likes."""

    def __init__(self, ws: ClientConnection, told: Told) -> None:
        self._ws = ws
        self._told = told
        self._assembler = wire.Assembler()
        self.workers: dict[Uid, list[WorkerName]] = {}
        self.is_synced = asyncio.Event()
        self.outstanding = 0
        self._acked = asyncio.Event()

    async def send(self, frame: wire.AnyFrame) -> None:
        for message in wire.encode(frame):
            await self._ws.send(message)

    async def read(self) -> None:
        """Read until the end. What is assigned is acknowledged at once."""
        async for message in self._ws:
            assert isinstance(message, bytes)
            frame = self._assembler.feed(message)
            if frame is not None:
                await self._on_frame(frame)

    async def _on_frame(self, frame: wire.AnyFrame) -> None:
        match frame:
            case wire.Assign():
                body: wire.AssignmentBody = wire.unpack(frame.body, wire.AssignmentBody)
                self.workers[frame.uid] = list(body.workers)
                self._told["assigned"] += 1
                await self.send(wire.Ack(frame.seq))
            case wire.Withdraw():
                await self.send(wire.Ack(frame.seq))
            case wire.Synced():
                await self.send(wire.Ack(frame.seq))
                self._told["synced"] += 1
                self.is_synced.set()
            case wire.Ack():
                self.outstanding -= 1
                self._acked.set()
                self._told[f"report {reason_of(frame.refused)}"] += 1

    async def until_fewer_outstanding(self) -> None:
        while self.outstanding >= OUTSTANDING:
            self._acked.clear()
            await self._acked.wait()


def reason_of(refused: str) -> str:
    """One word for each sort of answer to a report."""
    if not refused:
        return "taken"
    return "refused: not bound" if "not bound" in refused else "refused: no room"


@contextlib.asynccontextmanager
async def session(
    url: str, token: str, told: Told, *hello: wire.AnyFrame
) -> AsyncIterator[HostileNode]:
    """A session that is synced. Raises: InvalidStatus, ConnectionClosed, TimeoutError"""
    async with dial(url, token) as ws:
        node = HostileNode(ws, told)
        reader = asyncio.create_task(node.read())
        synced = asyncio.create_task(node.is_synced.wait())
        try:
            for frame in hello or (wire.Hello([1], "hostile", {}),):
                await node.send(frame)
            told["hellos"] += 1
            async with asyncio.timeout(OPENING_S):
                await asyncio.wait((reader, synced), return_when=asyncio.FIRST_COMPLETED)
            if not synced.done():
                await ws.send(b"")  # raises ConnectionClosed, which has the code
            yield node
        finally:
            for task in (reader, synced):
                task.cancel()
            with contextlib.suppress(ConnectionClosed):
                await asyncio.gather(reader, synced, return_exceptions=True)


async def large_reports(seconds: float, *, url: str, token: str) -> Told:
    """Reports without pause whose values take six times their length."""
    told: Told = Counter()
    end_s = time.monotonic() + seconds
    async with session(url, token, told) as node:
        mine = [(uid, name) for uid, names in node.workers.items() for name in names]
        told["workers"] = len(mine)
        for number, (uid, name) in enumerate(itertools.cycle(mine)):
            if time.monotonic() > end_s:
                return told
            body = wire.ReportBody(
                phase="training",
                reason="<" * 1024,
                task_info={"seen": number},
                details={**DETAILS, "number": str(number)},
            )
            await node.until_fewer_outstanding()
            node.outstanding += 1
            await node.send(wire.Report(number + 1, uid, name, 1, wire.pack(body)))
            told["reports"] += 1
    return told


async def frames(seconds: float, *, url: str, token: str, foreign: str) -> Told:
    """Beats, reports about the object `foreign` of another node, acknowledgements of nothing and
    frames of 64 KB, without pause.
    """
    told: Told = Counter()
    name = WorkerName("honest-0-edge")
    body = wire.pack(wire.ReportBody(status="failed", task_info={"seen": 2**50}))
    sorts: list[wire.AnyFrame] = [
        wire.Beat(),
        wire.Report(1, Uid(foreign), name, 9, body),
        wire.Ack(10**6),
        wire.Report(1, Uid(foreign), name, 9, b"\x00" * 64_000),
    ]
    end_s = time.monotonic() + seconds
    async with session(url, token, told) as node:
        for frame in itertools.cycle(sorts):
            if time.monotonic() > end_s:
                return told
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(end_s - time.monotonic() + 0.1):
                    for _ in range(50):
                        await node.send(frame)
                        told["frames"] += 1
    return told


async def hellos(seconds: float, *, url: str, token: str) -> Told:
    """Sessions again and again that say that they hold as much as a Hello can say, or more."""
    small = [small_held(0, SMALL_TASKS)]
    too_many = [small_held(0, SMALL_TASKS), small_held(SMALL_TASKS, SMALL_TASKS + 1000)]
    greetings = itertools.cycle([greeting(small), greeting(long_held()), greeting(too_many)])
    return await again_and_again(seconds, url=url, token=token, greetings=greetings)


async def returns(seconds: float, *, url: str, token: str) -> Told:
    """A node with 12,400 long-named tasks that has forgotten all of them, again and again."""
    nothing = itertools.repeat(greeting([{}]))
    return await again_and_again(seconds, url=url, token=token, greetings=nothing)


async def again_and_again(
    seconds: float, *, url: str, token: str, greetings: Iterator[list[wire.AnyFrame]]
) -> Told:
    told: Told = Counter()

    async def one() -> None:
        while True:
            try:
                async with session(url, token, told, *next(greetings)):
                    told["sessions"] += 1
            except InvalidStatus as error:
                told[f"answer {error.response.status_code}"] += 1
            except ConnectionClosed as error:
                told[f"closed {error.rcvd.code if error.rcvd else 'without a word'}"] += 1
            except (OSError, TimeoutError, WebSocketException) as error:
                told[type(error).__name__] += 1

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds), asyncio.TaskGroup() as tasks:
            for _ in range(HELLOS_AT_ONCE):
                tasks.create_task(one())
    return told


def small_held(first: int, end: int) -> dict[TaskKey, wire.TaskVersion]:
    return {TaskKey(f"a.b/c/{n}"): wire.TaskVersion(f"u{n}", 1) for n in range(first, end)}


def long_held() -> list[dict[TaskKey, wire.TaskVersion]]:
    """12 MiB of names."""
    held = {
        TaskKey(f"jointinferenceservices.edgeai.io/{'n' * 63}/{n:0253}"): wire.TaskVersion(
            "u" * 600, 1
        )
        for n in range(LONG_TASKS)
    }
    keys = list(held)
    return [
        {key: held[key] for key in keys[start : start + 3100]}
        for start in range(0, LONG_TASKS, 3100)
    ]


def greeting(parts: list[dict[TaskKey, wire.TaskVersion]]) -> list[wire.AnyFrame]:
    return [*map(wire.HeldPart, parts[:-1]), wire.Hello([1], "hostile", parts[-1])]
