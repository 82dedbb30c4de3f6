"""Lists in pages, and large answers to readers who do not read."""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import AsyncIterator

import pytest

from globalmanager.rest.streams import StreamLimits
from tests.globalmanager.rest.cluster import JI, RestSide, object_of
from tests.support.waiting import async_eventually

LIST = f"/api/v1/{JI}"
LARGE_BYTES = 1_300_000
MIB = 1024 * 1024


@pytest.fixture
async def large(world: RestSide) -> RestSide:
    text = "<" * LARGE_BYTES
    world.cluster.objects = [{**object_of(f"o{n:02}"), "spec": {"x": text}} for n in range(11)]
    return world


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
async def test_pages_together_are_the_list(world: RestSide, limit: int) -> None:
    world.cluster.objects = [
        *(object_of(f"a{n}") for n in range(5)),
        *(object_of(f"a{n}", group="sedna.io") for n in range(3)),
        object_of("z", namespace="another"),
    ]
    _, whole = await world.get(LIST)
    assert whole["metadata"] == {"continue": "", "remainingItemCount": 0}
    found, token = [], ""
    while True:
        status, page = await world.get(f"{LIST}?limit={limit}&continue={token}")
        assert (status, len(page["items"]) <= limit) == (200, True)
        found += page["items"]
        assert page["metadata"]["remainingItemCount"] == len(whole["items"]) - len(found)
        if not (token := page["metadata"]["continue"]):
            break
    assert found == whole["items"]


async def test_what_goes_between_two_pages_hides_nothing_else(world: RestSide) -> None:
    world.cluster.objects = [object_of(f"a{n}") for n in range(4)]
    _, page = await world.get(f"{LIST}?limit=2")
    world.cluster.objects = [object_of("a0"), object_of("a2"), object_of("a3")]
    _, rest = await world.get(f"{LIST}?limit=2&continue={page['metadata']['continue']}")
    assert [each["metadata"]["name"] for each in rest["items"]] == ["a2", "a3"]


async def test_nodes_come_in_pages_too(world: RestSide) -> None:
    _, page = await world.get("/api/v1/nodes?limit=1")
    _, rest = await world.get(f"/api/v1/nodes?continue={page['metadata']['continue']}")
    assert [each["name"] for each in page["items"] + rest["items"]] == ["node-1", "node-2"]


@pytest.mark.parametrize(
    "query",
    ["limit=-1", "limit=x", "limit=9999999999", "continue=x", "continue=WzFd", "continue=%C3%A9"],
)
async def test_a_wrong_page_is_refused_by_name(world: RestSide, query: str) -> None:
    status, answer = await world.get(f"{LIST}?{query}")
    assert (status, answer["reason"]) == (400, "BadRequest")
    assert query.partition("=")[0] in answer["message"]


@contextlib.asynccontextmanager
async def readers(
    world: RestSide, count: int, path: str
) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Clients that ask and do not read."""
    opened = [
        await asyncio.open_connection(*world.server.address, limit=1024) for _ in range(count)
    ]
    try:
        for reader, writer in opened:
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        yield [reader for reader, _ in opened]
    finally:
        for _, writer in opened:
            writer.transport.abort()


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("path", [LIST, f"/api/v1/namespaces/default/{JI}/o00"])
async def test_readers_who_do_not_read_take_little_memory_and_stall_nobody(
    large: RestSide, path: str
) -> None:
    before, loop = resident_bytes(), asyncio.get_running_loop()
    longest_s = 0.0  # of processor time, for others may be at work on this machine
    async with readers(large, 60, path):
        until = loop.time() + 1.5
        while loop.time() < until:
            began = time.thread_time()
            await asyncio.sleep(0.005)
            longest_s = max(longest_s, time.thread_time() - began)
        # Another address reads one object while they hold their places.
        reader, writer = await asyncio.open_connection(
            *large.server.address, local_addr=("127.0.0.2", 0)
        )
        name = f"/api/v1/namespaces/default/{JI}/o01"
        writer.write(
            f"GET {name} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
        )
        answer = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        assert (b" 200 " in answer[:20], len(answer) > LARGE_BYTES) == (True, True)
        assert resident_bytes() - before < 48 * MIB
    assert longest_s < 1.0


async def test_a_reader_who_takes_nothing_loses_its_connection(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = ""

    def are_cut() -> bool:
        nonlocal said
        said += capsys.readouterr().out
        return said.count("reader of REST is too slow, connection aborted") == 5

    async with RestSide(write_s=0.2, answer_s=60.0).running() as world:
        world.cluster.objects = [{**object_of("o"), "spec": {"x": "x" * 20 * LARGE_BYTES}}]
        async with readers(world, 5, LIST):
            await async_eventually("the end of all connections", are_cut)


def test_the_memory_for_pieces_is_as_the_security_guide_says() -> None:
    limits = StreamLimits()
    assert (limits.pieces, limits.pieces_per_address, limits.write_s) == (8, 2, 10.0)


async def test_readers_of_many_addresses_share_the_pieces_in_memory() -> None:
    async with RestSide(pieces=2, pieces_per_address=1).running() as world:
        world.cluster.objects = [{**object_of("o"), "spec": {"x": "x" * 20 * LARGE_BYTES}}]
        streams = world.api._streams
        with contextlib.ExitStack() as held:
            for number in range(2, 7):
                source = (f"127.0.0.{number}", 0)
                connection = socket.create_connection(world.server.address, source_address=source)
                request = f"GET {LIST} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
                held.enter_context(connection).sendall(request)
            await async_eventually("three readers that wait", lambda: streams.queue_length == 3)
            assert streams._pieces == 2


async def test_a_list_is_whole_json_whatever_the_size_of_its_objects(large: RestSide) -> None:
    large.cluster.objects += [object_of(f"small{n}") for n in range(500)]
    status, answer = await large.get(LIST)
    assert (status, len(answer["items"])) == (200, 511)
    large.cluster.objects = []
    assert (await large.get(LIST))[1]["items"] == []
