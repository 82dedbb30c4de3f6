"""What a LocalController answers, writes and costs: workers' POSTs, the ledger, and an idle node.

    python -m tests.bench edge-node

A real process of this installation; the cloud's end is the scripted one of the tests. The ledger is
measured in this process, without HTTP in front of it.
"""

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import aiohttp

from edgeai.ids import Uid, WorkerName
from localcontroller.ledger.attempts import ProcessMessage
from localcontroller.ledger.ledger import Ledger
from tests.bench.pace import paced
from tests.bench.spread import spread
from tests.localcontroller.builders import UID, assign, body, desired, key
from tests.localcontroller.cloud import running_cloud
from tests.localcontroller.test_process import Controller, running
from tests.support.processes import processor_s

WORKERS: Final = tuple(f"worker-{number}" for number in range(20))
POSTS_PER_S: Final = (10, 25, 45)  # of the whole node
POSTING_S: Final = 5.0
HEARTBEAT_S: Final = 10.0  # as the worker SDK has it
IDLE_S: Final = 20.0
PRODUCERS: Final = 64
PRODUCING_S: Final = 5.0
SETTLED_S: Final = 3.0


def measure() -> dict[str, Any]:
    """Figures of docs/performance.md, "A node"."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        return asyncio.run(_node(path / "node")) | {
            "ledger_reports_per_s": round(asyncio.run(ledger_reports_per_s(path / "ledger")))
        }


async def _node(directory: Path) -> dict[str, Any]:
    async with running_cloud() as cloud:
        cloud.desired = {key(): desired(uid=UID, body_=body(*WORKERS))}
        async with running(directory, "--global-manager", cloud.url) as controller:
            await cloud.until_synced()
            figures: dict[str, Any] = {}
            for rate in POSTS_PER_S:
                for count in (1, len(WORKERS)):
                    name = f"post_ms_at_{rate}_a_second_of_{count}"
                    figures[name] = spread(await _post(controller, rate, WORKERS[:count]))
            figures["idle_percent_of_a_core"] = await _idle(controller)
            return figures


async def _post(controller: Controller, rate: float, workers: tuple[str, ...]) -> list[float]:
    """Milliseconds until each message was answered; each changes what the cloud is told."""
    urls = [await controller.worker_base(worker=worker) for worker in workers]
    took_ms: list[float] = []

    async def post(number: int) -> None:
        url = urls[number % len(urls)]
        message = {"status": "running", "output": {"taskInfo": {"seen": number}}}
        started_s = time.perf_counter()
        async with session.post(url, json=message) as response:
            assert response.status == 200, await response.text()
        took_ms.append((time.perf_counter() - started_s) * 1000)

    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
        async for number in paced(1 / rate, POSTING_S):
            group.create_task(post(number))
    return took_ms


async def _idle(controller: Controller) -> float:
    """Percent of a core, while each worker sends its heartbeats and nothing else."""
    urls = [await controller.worker_base(worker=worker) for worker in WORKERS]
    message = {
        "status": "running",
        "heartbeatSeconds": HEARTBEAT_S,
        "output": {"taskInfo": {"seen": 1}},
    }

    async def beat(number: int) -> None:
        async with aiohttp.ClientSession() as session:
            await asyncio.sleep(number * HEARTBEAT_S / len(WORKERS))
            while True:
                async with session.post(urls[number], json=message) as response:
                    assert response.status == 200, await response.text()
                await asyncio.sleep(HEARTBEAT_S)

    beats = [asyncio.create_task(beat(number)) for number in range(len(WORKERS))]
    await asyncio.sleep(HEARTBEAT_S + SETTLED_S)
    before_s = processor_s(controller.process.pid)
    await asyncio.sleep(IDLE_S)
    used_s = processor_s(controller.process.pid) - before_s
    for task in beats:
        assert not task.done(), task.exception()
        task.cancel()
    return round(100 * used_s / IDLE_S, 2)


async def ledger_reports_per_s(directory: Path) -> float:
    """Durable reports a second: each producer waits for its commit before its next report."""
    names = [f"worker-{number}" for number in range(PRODUCERS)]
    ledger = await Ledger.open(directory)
    try:
        await ledger.apply([assign(body_=body(*names))])
        counts = [0] * PRODUCERS
        end_s = time.monotonic() + PRODUCING_S

        async def produce(number: int) -> None:
            while time.monotonic() < end_s:
                message = ProcessMessage(instance="p", counts={"seen": counts[number] + 1})
                await ledger.record(Uid(UID), WorkerName(names[number]), [message])
                counts[number] += 1

        began_s = time.monotonic()
        await asyncio.gather(*(produce(number) for number in range(PRODUCERS)))
        took_s = time.monotonic() - began_s
        held = {row.name: row.worker.totals["seen"] for row in await ledger.workers()}
        assert held == dict(zip(names, counts, strict=True)), (
            "a report that was acknowledged is lost"
        )
        return sum(counts) / took_s
    finally:
        await ledger.close()
