"""The HTTP server of a node over real sockets."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator

import pytest

from localcontroller.http_server import (
    MAX_BODY_BYTES,
    MAX_HEAD_BYTES,
    Answer,
    BodyTooLarge,
    BrokenBody,
    HttpServer,
    Request,
)
from localcontroller.metrics import Metrics
from tests.support.waiting import PATIENCE_S, async_eventually

ANSWERS = {
    "/early": Answer(status=403, body=b"no"),
    "/last": Answer(status=408, is_last=True),
    "/large": Answer(body=b"x" * 8_000_000),
    "/wait": Answer(body=b"waited"),
}


class Api:
    """A handler that answers what the path asks for, and counts."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.release = asyncio.Event()

    async def handle(self, request: Request) -> Answer:
        self.begun.append(request.path)
        try:
            return await self._answer(request)
        except BodyTooLarge as error:
            return Answer(status=413, body=str(error).encode(), is_last=True)
        except BrokenBody as error:
            return Answer(status=400, body=str(error).encode())
        finally:
            self.ended.append(request.path)

    async def _answer(self, request: Request) -> Answer:
        match request.path:
            case "/echo":
                body = await request.body()
                seen = [request.method, len(body), body[:64].decode(), request.address]
                return Answer(body=json.dumps(seen).encode())
            case "/wait":
                await self.release.wait()
            case "/abort":
                request.abort()
            case "/fault":
                raise RuntimeError("a fault")
        return ANSWERS.get(request.path, Answer(status=404))


class Client:
    """One connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self, *, has_body: bool = True) -> tuple[int, dict[str, str], bytes]:
        """The next answer: status, headers, body."""
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
        first, *lines = head.decode().splitlines()
        headers = dict(line.lower().split(": ", 1) for line in lines if line)
        length = int(headers.get("content-length", 0)) if has_body else 0
        return int(first.split()[1]), headers, await self.reader.readexactly(length)

    async def status(self) -> int:
        return (await self.answer())[0]

    async def until_end(self) -> bytes:
        try:
            return await asyncio.wait_for(self.reader.read(), PATIENCE_S)
        except ConnectionError:
            return b""


class Served:
    def __init__(self, port: int, api: Api, server: HttpServer) -> None:
        self.port, self.api, self.server = port, api, server

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield Client(reader, writer)
        finally:
            writer.transport.abort()


@contextlib.asynccontextmanager
async def serving(*, idle_s: float = PATIENCE_S, linger_s: float = 0.2) -> AsyncIterator[Served]:
    api = Api()
    server = HttpServer(
        api.handle, Metrics(), api="workers", idle_s=idle_s, linger_s=linger_s, stop_s=0.2
    )
    _, port = await server.start("127.0.0.1", 0)
    try:
        yield Served(port, api, server)
    finally:
        api.release.set()
        await server.stop()


@pytest.fixture
async def node(caplog: pytest.LogCaptureFixture) -> AsyncIterator[Served]:
    async with serving() as node:
        yield node
    # asyncio logs what a protocol raises.
    assert [one.getMessage() for one in caplog.records if one.name == "asyncio"] == []


def request(path: str, *headers: str, method: str = "GET", body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: node", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


async def test_a_connection_carries_many_requests(node: Served) -> None:
    async with node.client() as client:
        for number in range(3):
            client.send(request("/echo?q=1", method="POST", body=b"%d" % number))
            status, headers, body = await client.answer()
            assert (status, json.loads(body)) == (200, ["POST", 1, str(number), "127.0.0.1"])
            assert "date" in headers


async def test_requests_that_come_together_are_answered_in_turn(node: Served) -> None:
    async with node.client() as client:
        client.send(request("/wait") + request("/echo") + request("/early"))
        await async_eventually("the first request", lambda: node.api.begun == ["/wait"])
        client.send(request("/nothing"))
        for _ in range(100):  # time enough for a request that does not wait for its turn
            await asyncio.sleep(0)
        assert node.api.begun == ["/wait"]
        node.api.release.set()
        assert [await client.status() for _ in range(4)] == [200, 200, 403, 404]


async def test_a_body_may_come_in_chunks_and_pieces(node: Served) -> None:
    async with node.client() as client:
        data = request("/echo", "Transfer-Encoding: chunked", method="POST")
        for byte in data + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n":
            client.send(bytes([byte]))
            await client.writer.drain()
        _, _, body = await client.answer()
        assert json.loads(body)[:3] == ["POST", 5, "abcde"]


async def test_a_client_that_waits_to_send_its_body_is_asked_for_it(node: Served) -> None:
    async with node.client() as client:
        expect = ("Expect: 100-continue", "Content-Length: 2")
        client.send(request("/echo", *expect, method="POST"))
        assert await client.status() == 100
        client.send(b"ab")
        assert json.loads((await client.answer())[2])[1] == 2
        client.send(request("/early", *expect, method="POST"))
        assert await client.status() == 403


async def test_a_head_is_answered_without_body(node: Served) -> None:
    async with node.client() as client:
        client.send(request("/early", method="HEAD") + request("/early"))
        status, headers, _ = await client.answer(has_body=False)
        assert (status, headers["content-length"]) == (403, "2")
        assert (await client.answer())[2] == b"no"


@pytest.mark.parametrize(
    "data",
    [
        request("/early", "Connection: close"),
        b"GET /early HTTP/1.0\r\n\r\n",
    ],
    ids=["asked", "HTTP/1.0"],
)
async def test_a_connection_ends_when_the_client_asks_for_that(data: bytes, node: Served) -> None:
    async with node.client() as client:
        client.send(data)
        status, headers, _ = await client.answer()
        assert (status, headers["connection"]) == (403, "close")
        assert await client.until_end() == b""


async def test_a_body_that_nobody_reads_is_passed_over(node: Served) -> None:
    async with node.client() as client:
        client.send(request("/early", "Content-Length: 60000", method="POST"))
        assert await client.status() == 403
        client.send(b"x" * 60_000 + request("/echo"))
        assert await client.status() == 200


async def test_a_long_body_that_nobody_reads_ends_the_connection(node: Served) -> None:
    async with node.client() as client:
        client.send(request("/early", method="POST", body=b"x" * 300_000) + request("/echo"))
        assert await client.status() == 403
        assert await client.until_end() == b""
    assert node.api.begun == ["/early"]


async def test_a_body_that_nobody_reads_and_that_does_not_end_is_cut(node: Served) -> None:
    async with node.client() as client:
        client.send(request("/early", "Content-Length: 9", method="POST"))
        assert await client.status() == 403
        assert await client.until_end() == b""


async def test_the_last_answer_can_be_read_though_the_client_still_sends(node: Served) -> None:
    async with node.client() as client:
        client.send(request("/last", "Content-Length: 5000000", method="POST") + b"x" * 100_000)
        status, headers, _ = await client.answer()
        assert (status, headers["connection"]) == (408, "close")
        with contextlib.suppress(ConnectionError):
            client.send(b"x" * 4_900_000)
            await client.writer.drain()
        assert await client.until_end() == b""


async def test_a_body_has_a_limit(node: Served) -> None:
    async with node.client() as client:
        client.send(request("/echo", method="POST", body=b"x" * MAX_BODY_BYTES))
        assert await client.status() == 200
        client.send(request("/echo", method="POST", body=b"x" * (MAX_BODY_BYTES + 1)))
        status, headers, body = await client.answer()
        assert (status, headers["connection"]) == (413, "close")
        assert body == b"a body has at most 65536 bytes"
        assert await client.until_end() == b""


MALFORMED = {
    "no HTTP": (b"\x16\x03\x01 hello\r\n\r\n", 400),
    "two lengths": (request("/echo", "Content-Length: 1", "Content-Length: 2"), 400),
    "a space before the colon": (request("/echo", "Secret : 1"), 400),
    "no host": (b"GET /echo HTTP/1.1\r\n\r\n", 400),
    "a coding that nobody knows": (request("/echo", "Transfer-Encoding: gzip"), 501),
    "a long head": (request("/echo", "Secret: " + "x" * 400_000), 431),
    "an endless head": (b"GET / HTTP/1.1\r\nHost: " + b"x" * 3 * MAX_HEAD_BYTES, 431),
}


@pytest.mark.parametrize("case", MALFORMED)
async def test_a_malformed_head_is_refused_and_logged_without_its_text(
    case: str, node: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    data, code = MALFORMED[case]
    for _ in range(2):
        async with node.client() as client:
            client.send(data)
            status, headers, _ = await client.answer()
            assert (status, headers["connection"]) == (code, "close")
            assert await client.until_end() == b""
    assert node.api.begun == []
    logged = capsys.readouterr().out
    assert logged.count("malformed request") == 1
    assert "Secret" not in logged


async def test_another_version_of_http_is_refused(node: Served) -> None:
    async with node.client() as client:
        client.send(b"GET /echo HTTP/2.7\r\nHost: a\r\n\r\n")
        assert await client.status() == 505
        assert await client.until_end() == b""
    assert node.api.begun == []


async def test_a_body_that_is_not_of_http_is_refused_by_the_handler(node: Served) -> None:
    async with node.client() as client:
        head = request("/echo", "Transfer-Encoding: chunked", method="POST")
        client.send(head + b"2\r\nab\r\nzz\r\n")
        status, headers, body = await client.answer()
        assert (status, headers["connection"]) == (400, "close")
        assert body == b"the body is not of HTTP/1.1"
        assert await client.until_end() == b""


async def test_what_comes_after_a_malformed_body_takes_no_memory(node: Served) -> None:
    """While a handler is at work that does not wait for the body."""
    async with node.client() as client:
        head = request("/wait", "Transfer-Encoding: chunked", method="POST")
        client.send(head + b"zz\r\n" + b"x" * 50_000_000)
        await async_eventually("the request", lambda: node.api.begun == ["/wait"])
        for _ in range(100):  # time enough to read more, if it is read
            await asyncio.sleep(0)
        assert client.writer.transport.get_write_buffer_size() > 40_000_000
        node.api.release.set()
        assert await client.status() == 200


async def test_a_body_in_tiny_chunks_has_a_limit_too(node: Served) -> None:
    async with node.client() as client:
        head = request("/echo", "Transfer-Encoding: chunked", method="POST")
        client.send(head + b"1\r\nx\r\n" * 60_000 + b"0\r\n\r\n")
        assert await client.status() == 413
        assert await client.until_end() == b""


async def test_answers_that_nobody_reads_hold_up_the_next_request(node: Served) -> None:
    async with node.client() as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        client.send(request("/large") * 20)
        await async_eventually("the first answer", lambda: node.api.ended)
        for _ in range(100):  # time enough for others
            await asyncio.sleep(0)
        assert len(node.api.begun) < 5
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert [len((await client.answer())[2]) for _ in range(20)] == [8_000_000] * 20


async def test_the_last_answer_has_time_to_be_read() -> None:
    async with serving(linger_s=0.01) as node, node.client() as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        client.send(request("/large", "Connection: close"))
        await after_linger(node)
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert len((await client.answer())[2]) == 8_000_000


async def test_an_early_answer_can_be_read_while_the_body_is_not_whole() -> None:
    async with serving(linger_s=0.01) as node, node.client() as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        client.send(request("/large", "Content-Length: 9", method="POST") + b"half")
        await after_linger(node)
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert len((await client.answer())[2]) == 8_000_000
        client.send(b" more" + request("/early"))
        assert await client.status() == 403


async def after_linger(node: Served) -> None:
    """Until later than the server waits once an answer is sent."""
    await async_eventually("the answer", lambda: node.api.ended)
    await asyncio.sleep(3 * node.server.linger_s)


async def test_an_empty_line_before_a_request_is_ignored(node: Served) -> None:
    async with node.client() as client:
        for _ in range(2):
            client.send(b"\r\n\r\n" + request("/early"))
            assert await client.status() == 403
    assert len(node.api.begun) == 2


async def test_a_request_is_never_read_as_two(node: Served) -> None:
    both = ("Transfer-Encoding: chunked", "Content-Length: 5")
    async with node.client() as client:
        client.send(request("/echo", *both, method="POST") + b"0\r\n\r\n" + request("/smuggled"))
        assert await client.status() == 400
        assert await client.until_end() == b""
    assert node.api.begun == []


@pytest.mark.parametrize("path", ["/echo?a=/b", "http://node/echo", "http://node/echo?q"])
async def test_a_target_is_a_path_with_or_without_more(path: str, node: Served) -> None:
    async with node.client() as client:
        client.send(request(path) + request("//node/echo"))
        assert [await client.status(), await client.status()] == [200, 404]


async def test_a_fault_of_the_handler_is_answered_and_the_server_goes_on(node: Served) -> None:
    async with node.client() as client:
        client.send(request("/fault"))
        status, _, body = await client.answer()
        assert (status, body) == (500, b"")
        assert await client.until_end() == b""
    async with node.client() as client:
        client.send(request("/echo"))
        assert await client.status() == 200


async def test_a_handler_can_end_the_connection_without_an_answer(
    node: Served, caplog: pytest.LogCaptureFixture
) -> None:
    async with node.client() as client:
        client.send(request("/abort") + request("/echo"))
        assert await client.until_end() == b""
    assert node.api.begun == ["/abort"]
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING] == []


async def test_a_request_goes_on_when_its_client_leaves(node: Served) -> None:
    """What a worker reports is recorded, also if the worker does not wait for the answer."""
    async with node.client() as client:
        client.send(request("/wait"))
        await async_eventually("the request", lambda: node.api.begun == ["/wait"])
    await async_eventually("the end of the connection", lambda: not node.server.connections)
    node.api.release.set()
    await async_eventually("the end of the request", lambda: node.api.ended == ["/wait"])


async def test_a_client_that_does_not_read_is_cut() -> None:
    async with serving(idle_s=0.2) as node, node.client() as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        client.send(request("/large"))
        await async_eventually("the answer", lambda: node.api.ended == ["/large"])
        await async_eventually("the end of the connection", lambda: not node.server.connections)


async def test_a_request_in_progress_has_time_when_the_server_stops(node: Served) -> None:
    async with node.client() as client, node.client() as idle:
        client.send(request("/wait"))
        await async_eventually("the request", lambda: node.api.begun == ["/wait"])
        stop = asyncio.create_task(node.server.stop())
        await asyncio.sleep(0)
        node.api.release.set()
        await stop
        assert (await client.answer())[2] == b"waited"
        assert await client.until_end() == b""
        assert await idle.until_end() == b""


async def test_a_request_that_does_not_end_does_not_keep_the_server(node: Served) -> None:
    async with node.client() as client:
        client.send(request("/wait"))
        await async_eventually("the request", lambda: node.api.begun == ["/wait"])
        await asyncio.wait_for(node.server.stop(), PATIENCE_S)
        assert node.api.ended == ["/wait"]
        assert await client.until_end() == b""
