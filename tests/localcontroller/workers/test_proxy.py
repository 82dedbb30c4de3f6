"""The proxy's deadline for a head, and its rate. All else of it is in tests/relay."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

from localcontroller.http_server import Answer, HttpServer, Request
from localcontroller.ledger.ledger import Ledger
from localcontroller.metrics import Metrics
from localcontroller.workers.proxy import Proxy
from localcontroller.workers.rates import RequestRates
from tests.localcontroller.builders import SECRET, UID, WORKER, NoRelay, key
from tests.support.waiting import PATIENCE_S, async_eventually

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def no_api(_request: Request) -> Answer:
    return Answer(status=404)


@contextlib.asynccontextmanager
async def serving(tasks: Ledger, metrics: Metrics, **options: Any) -> AsyncIterator[int]:
    """A proxy whose cloud is out of reach. Gives its port."""
    proxy = Proxy(tasks, NoRelay(), metrics, **options)
    async with listening(proxy, metrics) as (_, port):
        yield port


@contextlib.asynccontextmanager
async def listening(
    proxy: Proxy, metrics: Metrics, host: str = "127.0.0.1"
) -> AsyncIterator[tuple[str, int]]:
    server = HttpServer(no_api, metrics, api="workers", divert=proxy.divert)
    address = await server.start(host, 0)
    try:
        yield address
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


async def asked(
    port: int, user: str = WORKER, secret: str = SECRET, *, status: bytes = b"502"
) -> asyncio.StreamWriter:
    """Ask the proxy as a worker, and read the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    pair = base64.b64encode(f"{user}:{secret}".encode()).decode()
    head = f"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nProxy-Authorization: Basic {pair}\r\n\r\n"
    writer.write(head.encode())
    assert status in (await reader.readline()).split()
    return writer


async def test_the_node_itself_may_ask_until_its_download_ends(tasks: Ledger) -> None:
    metrics = Metrics()
    proxy = Proxy(tasks, NoRelay(), metrics)
    async with listening(proxy, metrics, "0.0.0.0") as address:
        proxy.listens(*address)
        with proxy.passing(key(), UID, WORKER) as pass_:
            assert pass_.host == "127.0.0.1"
            url = urlsplit(pass_.proxy_url)
            user, secret, port = url.username or "", url.password or "", url.port or 0
            assert (user, url.hostname, port) == (WORKER, "127.0.0.1", address[1])
            assert pass_.problem == ""
            (await asked(port, user, secret)).close()
            assert pass_.problem == "no session with the GlobalManager now"
            (await asked(port, "another", secret, status=b"407")).close()
        (await asked(port, user, secret, status=b"407")).close()
