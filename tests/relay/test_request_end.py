"""The connection of a request with an absolute URL carries the request, and nothing after it."""

import asyncio
from pathlib import Path

import pytest

from localcontroller.workers.proxy_request import MAX_HEAD_BYTES, Framing, MalformedRequest, parse
from tests.relay.world import HOST, RelayWorld
from tests.support.waiting import async_eventually

SECOND = b"GET http://digits-cloud/second HTTP/1.1\r\n\r\n"
CHUNKS = b"5;a=b\r\nhello\r\n0A\r\n 01234\r\n\r\n\r\n0\r\nTrailer: 1\r\n\r\n"
BODIES: dict[str, tuple[str, bytes]] = {
    "none": ("X-Nothing: 1", b""),
    "sized": ("Content-Length: 5", b"hello"),
    "chunked": ("Transfer-Encoding: chunked", CHUNKS),
}


@pytest.mark.parametrize("pause", [False, True], ids=["at once", "afterwards"])
@pytest.mark.parametrize("kind", BODIES)
async def test_a_second_request_never_reaches_the_service(
    tmp_path: Path, kind: str, pause: bool
) -> None:
    header, body = BODIES[kind]
    seen = bytearray()
    may_answer = asyncio.Event()

    async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Heeds no Connection: close, as a Service that reads on."""
        reading = asyncio.create_task(collect(reader))
        await may_answer.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await reading

    async def collect(reader: asyncio.StreamReader) -> None:
        while data := await reader.read(65536):
            seen.extend(data)

    async with RelayWorld(tmp_path).running(keep) as world:
        reader, writer = await world.ask(
            f"POST http://{HOST}:{world.target_port}/first HTTP/1.1\r\n{header}"
        )
        writer.write(body if pause else body + SECOND)
        if pause:
            end = b"\r\n\r\n" + body
            await async_eventually("the whole request", lambda: seen.endswith(end))
            writer.write(SECOND)
        writer.write_eof()  # comes after all bytes, so the Service has seen all of them then
        may_answer.set()
        assert (await reader.read()).endswith(b"ok")
        writer.close()
    head, _, rest = bytes(seen).partition(b"\r\n\r\n")
    assert head.startswith(b"POST /first HTTP/1.1\r\n")
    assert rest == body


async def test_a_malformed_chunk_ends_the_stream(world: RelayWorld) -> None:
    at = f"http://{HOST}:{world.target_port}/"
    reader, writer = await world.ask(f"POST {at} HTTP/1.1\r\nTransfer-Encoding: chunked")
    writer.write(b"5\r\nhello\r\n")
    echoed = await reader.readuntil(b"hello\r\n")
    assert echoed.startswith(b"POST / HTTP/1.1\r\n")
    writer.write(b"no size\r\n")
    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()


async def test_another_protocol_is_bytes_alone(world: RelayWorld) -> None:
    at = f"http://{HOST}:{world.target_port}/ws"
    reader, writer = await world.ask(
        f"GET {at} HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket"
    )
    writer.write(SECOND)
    writer.write_eof()
    assert (await reader.read()).endswith(SECOND)
    writer.close()


def framing_of(header: str) -> Framing:
    """The framing of a request whose head has this header."""
    request = parse(f"POST http://digits/ HTTP/1.1\r\nHost: digits\r\n{header}\r\n\r\n".encode())
    assert request.framing is not None
    return request.framing


@pytest.mark.parametrize("step", [1, 2, 3, 1000])
def test_a_chunked_body_is_found_in_any_parts(step: int) -> None:
    framing, found = framing_of("Transfer-Encoding: chunked"), b""
    data = CHUNKS + SECOND
    for start in range(0, len(data), step):
        found += framing(data[start : start + step])
    assert found == CHUNKS


def test_a_sized_body_in_parts() -> None:
    framing = framing_of("Content-Length: 5")
    assert [framing(b"hel"), framing(b"lo!"), framing(b"!")] == [b"hel", b"lo", b""]


def test_a_line_feed_alone_ends_a_line_of_the_trailer() -> None:
    end = b"0\r\nT: 1\n\r\n"
    assert framing_of("Transfer-Encoding: chunked")(end + SECOND) == end


MALFORMED = {
    "no number": b"x\r\n",
    "no size": b"\r\n",
    "a sign": b"-1\r\n",
    "0x": b"0x5\r\n",
    "a bare line feed": b"5\nhello\r\n",
    "a number too large": b"1" * 21 + b"\r\n",
    "a chunk that goes on": b"5\r\nhello!\r\n",
    "an endless line": b"5;" + b"x" * MAX_HEAD_BYTES,
    "an endless trailer": b"0\r\n" + b"T: 1\r\n" * (MAX_HEAD_BYTES // 6 + 1),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_body_is_refused(name: str) -> None:
    framing = framing_of("Transfer-Encoding: chunked")

    def read() -> None:
        for byte in MALFORMED[name]:
            framing(bytes([byte]))

    with pytest.raises(MalformedRequest):
        read()
