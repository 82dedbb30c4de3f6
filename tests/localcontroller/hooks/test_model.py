"""Content of Models: verified, resumed, bounded, and what the node tells of it."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from common import wire
from edgeai.ids import Uid
from localcontroller.content import ContentStore
from localcontroller.hooks.sources import SourceTimeouts
from localcontroller.ledger.ledger import Ledger
from tests.localcontroller.full_disk import fill_disk
from tests.localcontroller.hooks.model_world import (
    UID,
    FileServer,
    ModelNode,
    content,
    fetching,
    key,
    part_bytes,
    sha256,
    sizes,
    whole_part,
)
from tests.localcontroller.hooks.server import Server, serving
from tests.localcontroller.hooks.test_bucket import keys as bucket_keys
from tests.support.waiting import async_eventually

DATA = content(300_000)


@pytest.fixture
def store_dir(tmp_path: Path) -> Path:
    return tmp_path / "content"


@contextlib.asynccontextmanager
async def delivered(
    ledger: Ledger, store_dir: Path
) -> AsyncIterator[tuple[ModelNode, Server, FileServer]]:
    """A node that has the first version of the Model, and the server of the Model."""
    files = FileServer(DATA)
    async with serving(files) as server, fetching(ledger, store_dir) as node:
        await node.hold(url=f"{server.url}/a")
        await node.until_ready()
        yield node, server, files


# ---- fetched, verified, told --------------------------------------------------------------------


@pytest.mark.parametrize("digest", ["", sha256(DATA)], ids=["no digest", "digest"])
async def test_content_is_stored_once_by_its_digest(
    ledger: Ledger, store_dir: Path, digest: str
) -> None:
    async with serving(FileServer(DATA)) as server, fetching(ledger, store_dir) as node:
        await node.hold(url=f"{server.url}/dir/small.onnx?sig=1", sha256=digest)
        version = await node.until_ready()
        assert (version.generation, version.digest) == (1, sha256(DATA))
        assert (version.size, version.name) == (len(DATA), "small.onnx")
        assert node.data(version) == DATA
        report = await node.report()
        assert report is not None
        assert report.task_info == {"bytes": len(DATA), "size": len(DATA)}
        assert report.details["digest"] == sha256(DATA)
        assert (store_dir / version.digest).stat().st_mode & 0o222 == 0
        await node.hold(name="other", uid="uid-o", url=f"{server.url}/b", sha256=sha256(DATA))
        await node.until_ready(name="other")
        assert len(server.requests) == 1


async def test_a_digest_alone_gives_no_content_of_another_tenant(
    ledger: Ledger, store_dir: Path
) -> None:
    async with delivered(ledger, store_dir) as (node, server, files):
        files.data = b"I only know the digest"
        await node.hold(
            name="thief", namespace="other", uid="uid-t", url=f"{server.url}/b", sha256=sha256(DATA)
        )
        await node.until_problem("WrongDigest", name="thief")
        assert node.store.versions(key("thief", "other")) == ()


async def test_no_tenant_goes_on_with_a_part_of_another_one(
    ledger: Ledger, store_dir: Path
) -> None:
    files = FileServer(DATA)
    files.cut_after, files.store_dir = 100_000, store_dir
    async with serving(files) as server, fetching(ledger, store_dir) as node:
        url = f"{server.url}/a"
        await node.hold(url=url, sha256=sha256(DATA))
        await node.until_problem("Unavailable")
        files.cut_after = None
        await node.hold(name="thief", namespace="other", uid="uid-t", url=url, sha256=sha256(DATA))
        thief = key("thief", "other")
        await async_eventually("the thief's own", lambda: bool(node.store.versions(thief)))
        assert files.ranges == ["", ""]


@pytest.mark.parametrize("digest", ["", sha256(DATA)], ids=["no digest", "digest"])
async def test_a_part_that_was_whole_at_a_kill_does_not_come_again(
    ledger: Ledger, store_dir: Path, digest: str
) -> None:
    async with serving(FileServer(DATA)) as server:
        url = f"{server.url}/a"
        what = f"{digest}|{url}" if digest else f"|{url}|{UID}|1"
        store = ContentStore(store_dir, max_bytes=2**30)
        whole_part(store, key(), DATA, what).close()
        async with fetching(ledger, store_dir) as node:
            await node.hold(url=url, sha256=digest)
            assert node.data(await node.until_ready()) == DATA
        assert server.requests == []


async def test_content_goes_with_the_last_model_that_has_it(
    ledger: Ledger, store_dir: Path
) -> None:
    async with serving(FileServer(DATA)) as server, fetching(ledger, store_dir) as node:
        for name in ("small", "other"):
            await node.hold(name=name, uid=name, url=f"{server.url}/a", sha256=sha256(DATA))
            await node.until_ready(name=name)
        content_file = store_dir / sha256(DATA)
        await node.ledger.apply([wire.Withdraw(1, key("other"), Uid("other"))])
        await async_eventually("forgotten", lambda: not node.store.versions(key("other")))
        assert content_file.exists()
        await node.ledger.apply([wire.Withdraw(2, key(), Uid("small"))])
        await async_eventually("gone", lambda: not content_file.exists())


async def test_another_digest_is_a_problem_and_the_version_before_stays(
    ledger: Ledger, store_dir: Path
) -> None:
    async with delivered(ledger, store_dir) as (node, server, files):
        (before,) = node.store.versions(key())
        files.data = content(1000, seed=1)
        await node.hold(url=f"{server.url}/a", sha256=sha256(DATA[:-1]), version=2)
        message = await node.until_problem("WrongDigest")
        assert message == f"spec.sha256: the content has the digest {sha256(files.data)}"
        assert node.store.versions(key()) == (before,)
        assert ".part" not in {file.suffix for file in sizes(store_dir)}

        files.data, files.etag = DATA[:-1], '"v2"'
        node.tries.set()
        assert (await node.until_ready(2)).digest == sha256(DATA[:-1])


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/..%2F..%2Fetc%2Fpasswd", "model"),
        ("/.hidden", "model"),
        ("/a/%2e%2e", "model"),
        ("/-rf", "model"),
        ("/" + "x" * 200, "model"),
        ("/small.tar.gz", "small.tar.gz"),
    ],
)
async def test_a_name_that_climbs_is_not_used(
    ledger: Ledger, store_dir: Path, path: str, name: str
) -> None:
    async with serving(FileServer(DATA)) as server, fetching(ledger, store_dir) as node:
        await node.hold(url=server.url + path)
        assert (await node.until_ready()).name == name
        assert {file.parent for file in sizes(store_dir)} == {store_dir}


# ---- cut lines ----------------------------------------------------------------------------------


@pytest.mark.parametrize("digest", ["", sha256(DATA)], ids=["no digest", "digest"])
async def test_a_cut_download_goes_on_where_it_ended(
    ledger: Ledger, store_dir: Path, digest: str
) -> None:
    files = FileServer(DATA)
    files.cut_after, files.store_dir = 100_000, store_dir
    async with serving(files) as server, fetching(ledger, store_dir) as node:
        node.tries_at_once = True
        await node.hold(url=f"{server.url}/a", sha256=digest)
        assert node.data(await node.until_ready()) == DATA
        starts = [int(each.removeprefix("bytes=").rstrip("-") or 0) for each in files.ranges]
        assert starts == sorted(set(starts))
        assert len(starts) >= 3


async def test_a_line_that_is_cut_again_and_again_makes_no_longer_pauses(
    ledger: Ledger, store_dir: Path
) -> None:
    files = FileServer(DATA)
    files.cut_after, files.store_dir = 20_000, store_dir
    async with serving(files) as server, fetching(ledger, store_dir) as node:
        node.tries_at_once = True
        await node.hold(url=f"{server.url}/a")
        await node.until_ready()
        *after_cuts, _ = node.pauses_s
        assert len(after_cuts) >= 10
        assert max(after_cuts) <= 2.0, "each try has brought something"


async def test_the_progress_of_a_download_is_told(ledger: Ledger, store_dir: Path) -> None:
    timeouts = SourceTimeouts(progress_s=0.0)
    rate = 1_000_000
    async with (
        serving(FileServer(content(2_000_000))) as server,
        fetching(ledger, store_dir, timeouts=timeouts, bytes_per_s=rate) as node,
    ):
        await node.hold(url=f"{server.url}/a")

        async def is_told() -> bool:
            report = await node.report()
            assert report is not None
            assert report.phase == "fetching"
            assert 0 < report.task_info["bytes"] < report.task_info["size"] == 2_000_000
            return True

        await async_eventually("a report on the way", is_told)


@pytest.mark.parametrize("case", ["changed", "no conditions", "no ranges", "no etag", "shorter"])
async def test_what_cannot_be_gone_on_with_begins_again(
    ledger: Ledger, store_dir: Path, case: str
) -> None:
    files = FileServer(DATA, etag="" if case == "no etag" else '"v1"')
    files.cut_after, files.store_dir = 150_000, store_dir
    async with serving(files) as server, fetching(ledger, store_dir) as node:
        await node.hold(url=f"{server.url}/a")
        await node.until_problem("Unavailable")
        files.cut_after = None
        files.knows_ranges = case != "no ranges"
        files.knows_conditions = case != "no conditions"
        if case in ("changed", "no conditions", "shorter"):
            files.data = content(5000 if case == "shorter" else 200_000, seed=2)
        if case in ("changed", "no conditions"):
            files.etag = '"v2"'
        node.tries_at_once = True
        node.tries.set()
        assert node.data(await node.until_ready()) == files.data


async def test_a_part_of_other_content_fails_by_its_digest_and_begins_again(
    ledger: Ledger, store_dir: Path
) -> None:
    """The server says that nothing has changed, and lies."""
    files = FileServer(content(200_000, seed=3))
    files.cut_after, files.store_dir = 100_000, store_dir
    async with serving(files) as server, fetching(ledger, store_dir) as node:
        await node.hold(url=f"{server.url}/a", sha256=sha256(DATA))
        await node.until_problem("Unavailable")
        files.data, files.cut_after = DATA, None
        node.tries.set()
        await node.until_problem("WrongDigest")
        node.tries.set()
        assert node.data(await node.until_ready()) == DATA


async def test_a_stop_in_the_middle_keeps_what_has_come(ledger: Ledger, store_dir: Path) -> None:
    files = FileServer(content(1_500_000))
    async with serving(files) as server:
        async with fetching(ledger, store_dir, bytes_per_s=1_000_000) as node:
            await node.hold(url=f"{server.url}/a")
            await async_eventually("some bytes", lambda: part_bytes(store_dir) > 0)
        async with fetching(ledger, store_dir) as node:
            assert node.data(await node.until_ready()) == files.data
    first, second = files.ranges
    assert first == ""
    assert int(second.removeprefix("bytes=").rstrip("-")) > 0


# ---- buckets -------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [False, True], ids=["same", "changed"])
async def test_an_object_of_a_bucket_goes_on_unless_it_changed(
    ledger: Ledger, store_dir: Path, tmp_path: Path, change: bool
) -> None:
    files = FileServer(DATA)
    files.cut_after = 100_000
    async with serving(files) as server:
        options = bucket_keys(tmp_path / "keys", server)
        credentials_dir = options.credentials_dir
        async with fetching(ledger, store_dir, credentials_dir=credentials_dir) as node:
            await node.hold(url="s3://b/small.onnx", credentialName="s3-key")
            await node.until_problem("Unavailable")
            files.cut_after = None
            if change:
                files.data, files.etag = content(250_000, seed=7), '"v2"'
            node.tries_at_once = True
            node.tries.set()
            version = await node.until_ready()
            assert node.data(version) == files.data
            assert version.name == "small.onnx"
    assert any(each.startswith("bytes=") and each != "bytes=0-" for each in files.ranges)


async def test_an_object_that_became_shorter_begins_again(
    ledger: Ledger, store_dir: Path, tmp_path: Path
) -> None:
    short, url = content(50_000, seed=8), "s3://b/small.onnx"
    files = FileServer(short, etag="")
    store = ContentStore(store_dir, max_bytes=2**30)
    with contextlib.closing(store.open_part(key(), f"{sha256(short)}|{url}")) as part:
        part.begin("", len(DATA))
        part.write(DATA[:100_000])
    async with serving(files) as server:
        credentials_dir = bucket_keys(tmp_path / "keys", server).credentials_dir
        async with fetching(ledger, store_dir, credentials_dir=credentials_dir) as node:
            await node.hold(url=url, credentialName="s3-key", sha256=sha256(short))
            assert node.data(await node.until_ready()) == short
    assert "bytes=100000-" in files.ranges


async def test_a_bucket_without_keys_on_the_node_is_a_problem(
    ledger: Ledger, store_dir: Path
) -> None:
    async with fetching(ledger, store_dir) as node:
        await node.hold(url="s3://b/small.onnx", credentialName="s3-key")
        await node.until_problem("NoCredential")


# ---- bad servers --------------------------------------------------------------------------------


async def test_a_server_that_stalls_is_left(ledger: Ledger, store_dir: Path) -> None:
    async def stalling(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_length = 10
        await response.prepare(request)
        await response.write(b"12345")
        await server.released.wait()
        return response

    timeouts = SourceTimeouts(silence_s=0.2)
    async with serving(stalling) as server, fetching(ledger, store_dir, timeouts=timeouts) as node:
        await node.hold(url=f"{server.url}/a")
        assert "in time" in await node.until_problem("Unavailable")


async def test_a_server_that_does_not_answer_is_told(ledger: Ledger, store_dir: Path) -> None:
    async def silent(request: web.Request) -> web.StreamResponse:
        await server.released.wait()
        return await FileServer(DATA)(request)

    timeouts = SourceTimeouts(answer_s=0.1)
    async with serving(silent) as server, fetching(ledger, store_dir, timeouts=timeouts) as node:
        await node.hold(url=f"{server.url}/a")

        async def is_told() -> bool:
            report = await node.report()
            assert report is not None
            assert (report.phase, report.status) == ("asking", "running")
            return True

        await async_eventually("a word of the silence", is_told)
        server.released.set()
        await node.until_ready()


@pytest.mark.parametrize(
    "headers", ['ETag: "caf\u00e9"', 'ETag: "\udcff"\r\nLast-Modified: \udcff']
)
async def test_a_tag_that_is_no_text_is_not_used(
    ledger: Ledger, store_dir: Path, headers: str
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(DATA)}\r\n{headers}\r\n\r\n"
        writer.write(head.encode("utf-8", "surrogateescape") + DATA)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server, fetching(ledger, store_dir) as node:
        await node.hold(url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/a")
        assert node.data(await node.until_ready()) == DATA


async def test_redirects_without_end_are_a_problem(ledger: Ledger, store_dir: Path) -> None:
    async def around(_request: web.Request) -> web.StreamResponse:
        raise web.HTTPFound("/a")

    async with serving(around) as server, fetching(ledger, store_dir) as node:
        await node.hold(url=f"{server.url}/a")
        assert "more than 5 redirections" in await node.until_problem("Unavailable")


@pytest.mark.parametrize(
    ("status", "reason"), [(404, "NotFound"), (403, "Forbidden"), (500, "Unavailable")]
)
async def test_an_answer_without_content_is_a_problem(
    ledger: Ledger, store_dir: Path, status: int, reason: str
) -> None:
    async def refusing(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=status)

    async with serving(refusing) as server, fetching(ledger, store_dir) as node:
        await node.hold(url=f"{server.url}/a")
        await node.until_problem(reason)


@pytest.mark.parametrize("url", ["ftp://x/y", "/etc/shadow", "http://[", "file:///etc/shadow"])
async def test_a_url_that_is_not_fetched_is_a_problem(
    ledger: Ledger, store_dir: Path, url: str
) -> None:
    async with fetching(ledger, store_dir) as node:
        await node.hold(url=url)
        assert await node.until_problem("InvalidURL")


async def test_a_wrong_url_tells_no_password(ledger: Ledger, store_dir: Path) -> None:
    async with fetching(ledger, store_dir) as node:
        await node.hold(url="http://user:secret@exa\u2100mple.org/a")
        assert "secret" not in await node.until_problem("InvalidURL")


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"url": "htps://example.org/a"}, "InvalidURL"),
        ({"url": "http://example.org/a", "sha256": "../x"}, "InvalidSpec"),
        ({}, "InvalidSpec"),
    ],
)
async def test_a_wrong_edit_keeps_the_version_before(
    ledger: Ledger, store_dir: Path, spec: dict[str, str], reason: str
) -> None:
    async with delivered(ledger, store_dir) as (node, _, _):
        (before,) = node.store.versions(key())
        await node.hold(version=2, **spec)
        await node.until_problem(reason)
        assert node.store.versions(key()) == (before,)


async def test_a_model_may_not_lead_to_the_node_itself(ledger: Ledger, store_dir: Path) -> None:
    async with (
        serving(FileServer(DATA)) as server,
        fetching(ledger, store_dir, networks=()) as node,
    ):
        await node.hold(url=f"{server.url}/a")
        assert await node.until_problem("Unavailable")
        assert server.requests == []


# ---- bounds -------------------------------------------------------------------------------------


async def test_the_newest_version_and_the_one_before_stay(ledger: Ledger, store_dir: Path) -> None:
    files = FileServer(b"")
    async with serving(files) as server, fetching(ledger, store_dir, max_bytes=50_000) as node:
        digests = []
        for version in range(1, 5):
            files.data = content(10_000, seed=version)
            files.etag = f'"{version}"'
            await node.hold(url=f"{server.url}/{version}", version=version)
            digests.append((await node.until_ready(version)).digest)
        here = {file.name for file in sizes(store_dir)} & set(digests)
        assert here == set(digests[2:]), "the newest version and the one before"
        assert [each.digest for each in node.store.versions(key())] == digests[:1:-1]


async def test_content_in_use_stays_when_there_is_no_room(ledger: Ledger, store_dir: Path) -> None:
    files = FileServer(content(20_000))
    async with serving(files) as server, fetching(ledger, store_dir, max_bytes=50_000) as node:
        await node.hold(url=f"{server.url}/a")
        first = await node.until_ready()
        files.data, files.etag = content(21_000, seed=1), '"2"'
        await node.hold(url=f"{server.url}/b", version=2)
        assert "--model-max-bytes" in await node.until_problem("NoSpace")
        assert node.store.versions(key()) == (first,)
        assert node.data(first) == content(20_000)
        await node.ledger.apply([wire.Withdraw(1, key(), UID)])
        await node.hold(name="other", uid="uid-o", url=f"{server.url}/b")
        assert (await node.until_ready(name="other")).size == 21_000


async def test_content_without_a_length_is_bounded_too(ledger: Ledger, store_dir: Path) -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        while not server.released.is_set():
            await response.write(bytes(100_000))
        return response

    async with serving(endless) as server, fetching(ledger, store_dir, max_bytes=10**6) as node:
        good = FileServer(content(100_000, seed=1))
        async with serving(good) as other:
            await node.hold(url=f"{other.url}/1")
            await node.until_ready(1)
            good.data, good.etag = content(100_000, seed=2), '"2"'
            await node.hold(url=f"{other.url}/2", version=2)
            await node.until_ready(2)
        url = f"{server.url}/a"
        await node.hold(name="evil", namespace="x", uid="x", url=url, sha256=sha256(DATA))
        await node.until_problem("NoSpace", name="evil")
        server.released.set()
        assert [version.generation for version in node.store.versions(key())] == [2, 1]
        assert part_bytes(store_dir) == 0


async def test_a_full_disk_is_a_problem_until_there_is_space(
    ledger: Ledger, small_disk: Path
) -> None:
    filler = await asyncio.to_thread(fill_disk, small_disk)
    os.truncate(filler, filler.stat().st_size - 100_000)
    async with serving(FileServer(DATA)) as server, fetching(ledger, small_disk / "c") as node:
        await node.hold(url=f"{server.url}/a", sha256=sha256(DATA))
        await node.until_problem("NoSpace")
        filler.unlink()
        node.tries.set()
        assert node.data(await node.until_ready()) == DATA


async def test_a_body_that_ends_with_its_connection_needs_a_digest(
    ledger: Ledger, store_dir: Path
) -> None:
    """The end of such a body may be the end of its server."""

    async def dying(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + DATA[:1000])
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(dying, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/a"
    async with server, fetching(ledger, store_dir) as node:
        await node.hold(url=url)
        assert "spec.sha256" in await node.until_problem("Unavailable")
        await node.hold(url=url, sha256=sha256(DATA[:1000]), version=2)
        assert (await node.until_ready(2)).size == 1000


async def test_wrong_content_does_not_come_again(ledger: Ledger, store_dir: Path) -> None:
    files = FileServer(DATA)

    async def answer(request: web.Request) -> web.StreamResponse:
        if len(server.requests) == 1:
            return await files(request)
        response = web.StreamResponse(headers={"ETag": files.etag})
        response.content_length = len(DATA)
        await response.prepare(request)
        await server.released.wait()  # before the first byte
        return response

    async with serving(answer) as server, fetching(ledger, store_dir) as node:
        right = content(1000, seed=9)
        await node.hold(url=f"{server.url}/a", sha256=sha256(right))
        await node.until_problem("WrongDigest")
        node.tries_at_once = True
        node.tries.set()
        await async_eventually("four tries", lambda: len(server.requests) >= 4, timeout_s=20)
        assert sha256(DATA) in await node.until_problem("WrongDigest")
        server.answer = FileServer(right, etag='"v2"')
        assert node.data(await node.until_ready()) == right


async def test_an_answer_without_a_length_that_was_cut_off_is_asked_for_again(
    ledger: Ledger, store_dir: Path
) -> None:
    right = content(1000, seed=9)

    async def cut_off(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"ETag": '"v1"'})
        response.enable_chunked_encoding()
        await response.prepare(request)
        await response.write(right[:100])
        await response.write_eof()
        return response

    async with serving(cut_off) as server, fetching(ledger, store_dir) as node:
        await node.hold(url=f"{server.url}/a", sha256=sha256(right))
        await node.until_problem("WrongDigest")
        server.answer = FileServer(right, etag='"v1"')
        node.tries_at_once = True
        node.tries.set()
        assert node.data(await node.until_ready()) == right


async def test_wrong_content_without_a_tag_is_asked_for_rarely(
    ledger: Ledger, store_dir: Path
) -> None:
    async def untagged(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=DATA)

    async with serving(untagged) as server, fetching(ledger, store_dir) as node:
        await node.hold(url=f"{server.url}/a", sha256="0" * 64)
        await node.until_problem("WrongDigest")
        await async_eventually("a pause", lambda: bool(node.pauses_s))
        assert node.pauses_s[-1] >= 3600


async def test_slow_servers_of_two_tenants_do_not_stop_a_third(
    ledger: Ledger, store_dir: Path
) -> None:
    async def dripping(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_length = 10**6
        await response.prepare(request)
        while not server.released.is_set():
            await response.write(b"x")
            await asyncio.sleep(0.05)
        return response

    async with (
        serving(dripping) as server,
        serving(FileServer(DATA)) as good,
        fetching(ledger, store_dir) as node,
    ):
        for namespace in ("t1", "t2"):
            for name in ("a", "b", "c"):
                url, uid = f"{server.url}/{namespace}{name}", f"uid-{namespace}{name}"
                await node.hold(name=name, namespace=namespace, uid=uid, url=url)
        await async_eventually("the slow ones", lambda: len(server.requests) >= 4)
        await node.hold(name="third", namespace="t3", uid="uid-3", url=f"{good.url}/a")
        await async_eventually(
            "the third", lambda: bool(node.store.versions(key("third", "t3"))), timeout_s=20
        )
        assert len(server.requests) == 4, "two of each tenant at a time"
        server.released.set()


async def test_content_that_has_gone_from_the_disk_comes_again(
    ledger: Ledger, store_dir: Path
) -> None:
    async with serving(FileServer(DATA)) as server, fetching(ledger, store_dir) as node:
        await node.hold(url=f"{server.url}/a")
        version = await node.until_ready()
        (store_dir / version.digest).unlink()
        node.tries.set()
        await async_eventually("the content", (store_dir / version.digest).exists)
        assert node.data(await node.until_ready()) == DATA


async def test_a_bad_disk_does_not_end_the_hook(ledger: Ledger, store_dir: Path) -> None:
    async with delivered(ledger, store_dir) as (node, server, _):
        (record,) = (file for file in sizes(store_dir) if file.suffix == ".model")
        await asyncio.to_thread(record.unlink)
        await asyncio.to_thread(record.mkdir)
        await node.ledger.apply([wire.Withdraw(1, key(), UID)])
        await async_eventually("no version", lambda: node.store.versions(key()) == ())
        await node.hold(name="other", uid="uid-o", url=f"{server.url}/b")
        await node.until_ready(name="other")


async def test_no_download_takes_the_threads_that_resolve_names(
    ledger: Ledger, store_dir: Path
) -> None:
    calls: list[str] = []

    class Recording(ThreadPoolExecutor):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            calls.append(f"{fn} {args}")
            return super().submit(fn, *args, **kwargs)

    async with serving(FileServer(DATA)) as server, fetching(ledger, store_dir) as node:
        asyncio.get_running_loop().set_default_executor(Recording())
        await node.hold(url=f"{server.url}/a")
        assert (await node.until_ready()).size == len(DATA)
    assert not [call for call in calls if "content" in call], calls


async def test_downloads_keep_to_the_rate_of_the_node(ledger: Ledger, store_dir: Path) -> None:
    async with (
        serving(FileServer(DATA)) as server,
        fetching(ledger, store_dir, bytes_per_s=200_000) as node,
    ):
        began_s = time.monotonic()
        await node.hold(url=f"{server.url}/a")
        await node.until_ready()
        assert time.monotonic() - began_s > 0.9 * (len(DATA) - 50_000) / 200_000


async def test_what_is_here_stays_in_use_without_the_cloud_and_the_server(
    ledger: Ledger, store_dir: Path
) -> None:
    async with serving(FileServer(DATA)) as server, fetching(ledger, store_dir) as node:
        await node.hold(url=f"{server.url}/a")
        version = await node.until_ready()
    async with fetching(ledger, store_dir) as node:
        assert node.store.versions(key()) == (version,)
        assert node.data(version) == DATA
        assert await node.until_ready() == version


async def test_a_model_of_the_same_name_that_was_made_again_has_no_old_content(
    ledger: Ledger, store_dir: Path
) -> None:
    async with delivered(ledger, store_dir) as (node, server, files):
        files.data, files.etag = content(10, seed=5), '"new"'
        await node.hold(url=f"{server.url}/a", uid="another")

        def check() -> bool:
            versions = node.store.versions(key())
            assert [each.digest for each in versions] == [sha256(files.data)]
            return True

        await async_eventually("the content of the new Model", check)
