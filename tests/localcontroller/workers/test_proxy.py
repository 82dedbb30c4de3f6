"""The proxy's deadline for a head, and its rate. All else of it is in tests/relay."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from typing import Any, NoReturn

from common.relay.carrier import StreamRefused
from common.relay.frames import Refusal
from localcontroller.http_server import Answer, HttpServer, Request
from localcontroller.ledger.ledger import Ledger
from localcontroller.metrics import Metrics
from localcontroller.workers.proxy import Proxy
from localcontroller.workers.rates import RequestRates
from tests.localcontroller.builders import SECRET, WORKER
from tests.support.waiting import PATIENCE_S, async_eventually

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class NoRelay:
    async def carrier(self) -> NoReturn:
        raise StreamRefused(Refusal.UNREACHABLE, "no session with the GlobalManager now")


async def no_api(_request: Request) -> Answer:
    return Answer(status=404)


@contextlib.asynccontextmanager
async def serving(tasks: Ledger, metrics: Metrics, **options: Any) -> AsyncIterator[int]:
    """A proxy whose cloud is out of reach. Gives its port."""
    divert = Proxy(tasks, NoRelay(), metrics, **options).divert
    server = HttpServer(no_api, metrics, api="workers", divert=divert)
    _, port = await server.start("127.0.0.1", 0)
    try:
        yield port
    finally:
        await server.stop()


async def test_a_head_that_does_not_come_to_its_end_is_cut(tasks: Ledger) -> None:
    async with serving(tasks, Metrics(), head_s=0.2) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
        writer.close()


async def test_a_worker_that_asks_without_pause_waits(tasks: Ledger) -> None:
    rates = RequestRates(of_task_per_s=2.0, of_task_burst=2)
    metrics = Metrics()
    async with serving(tasks, metrics, rates=rates) as port:
        writers = [await asked(port) for _ in range(2)]
        assert delayed(metrics) == 0
        waiting = asyncio.create_task(asked(port))
        await async_eventually("a request that waits", lambda: delayed(metrics) == 1)
        assert not waiting.done()
        for writer in (*writers, await waiting):
            writer.close()


def delayed(metrics: Metrics) -> float:
    name = "localcontroller_worker_requests_delayed_total"
    return metrics.registry.get_sample_value(name) or 0.0


async def asked(port: int) -> asyncio.StreamWriter:
    """Ask the proxy as a worker, and read the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    pair = base64.b64encode(f"{WORKER}:{SECRET}".encode()).decode()
    head = f"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nProxy-Authorization: Basic {pair}\r\n\r\n"
    writer.write(head.encode())
    assert b" 502 " in await reader.readline()
    return writer
