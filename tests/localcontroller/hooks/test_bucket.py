"""Datasets in S3: signed and conditional requests, streamed objects, keys, problems."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest
from aiohttp import web

from edgeai.buckets import BucketKeys
from localcontroller.hooks.sources import SourceOptions, SourceTimeouts
from localcontroller.ledger.ledger import Ledger
from tests.localcontroller.hooks.server import Server, serving
from tests.localcontroller.hooks.world import DatasetChecks, watching

SECRET = "s3cr3t-access-key"
MODIFIED = "Sat, 03 Jan 2026 10:00:00 GMT"
LISTING = """<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name>
<Prefix>{prefix}</Prefix><KeyCount>{count}</KeyCount><MaxKeys>1000</MaxKeys>
<IsTruncated>{is_cut}</IsTruncated>{contents}</ListBucketResult>"""
ENTRY = """<Contents><Key>{key}</Key><LastModified>2026-01-03T10:00:00.000Z</LastModified>
<ETag>"e"</ETag><Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>"""


class Bucket:
    """The answers of an S3 server that has a few objects and accepts the key `AKID`."""

    def __init__(self, **objects: str) -> None:
        self.objects = {name.replace("__", "/").replace("_", "."): o for name, o in objects.items()}
        self.bodies = 0
        self.is_public = False
        self.page_keys = 1000

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        signed = request.headers.get("Authorization", "")
        if not self.is_public and "AWS4-HMAC-SHA256 Credential=AKID/" not in signed:
            return web.Response(status=403, text="<Error><Code>AccessDenied</Code></Error>")
        if "list-type" in request.query:
            return self._list(request.query)
        return self._object(request)

    def _list(self, query: Mapping[str, str]) -> web.Response:
        prefix, after = query.get("prefix", ""), query.get("continuation-token", "")
        found = [key for key in sorted(self.objects) if key.startswith(prefix) and key > after]
        keys, more = found[: self.page_keys], found[self.page_keys :]
        contents = "".join(ENTRY.format(key=escape(k), size=len(self.objects[k])) for k in keys)
        if more:
            token = f"<NextContinuationToken>{escape(keys[-1])}</NextContinuationToken>"
            contents += token
        is_cut = "true" if more else "false"
        text = LISTING.format(
            prefix=escape(prefix), count=len(keys), contents=contents, is_cut=is_cut
        )
        return web.Response(text=text, content_type="application/xml")

    def _object(self, request: web.Request) -> web.Response:
        text = self.objects.get(request.path.removeprefix("/b/"))
        if text is None:
            return web.Response(status=404, text="<Error><Code>NoSuchKey</Code></Error>")
        headers = {"ETag": f'"{hash(text)}"', "Last-Modified": MODIFIED}
        if request.headers.get("If-None-Match") == headers["ETag"]:
            return web.Response(status=304, headers=headers)
        self.bodies += 1
        return web.Response(text=text, headers=headers)


def keys(root: Path, server: Server, **files: str) -> SourceOptions:
    directory = root / "default" / "s3-key"
    directory.mkdir(parents=True)
    given = {"ACCESS_KEY_ID": "AKID", "SECRET_ACCESS_KEY": SECRET, "S3_ENDPOINT_URL": server.url}
    for name, value in {**given, **files}.items():
        (directory / name).write_text(f"{value}\n")
    return SourceOptions(credentials_dir=root)


async def hold(world: DatasetChecks, url: str, **fields: Any) -> None:
    await world.hold(url=url, **{"credentialName": "s3-key", **fields})


async def test_requests_are_signed_and_only_a_changed_object_is_sent_again(
    ledger: Ledger, tmp_path: Path
) -> None:
    objects = Bucket(faces__a_csv="x\n1\n2\n")
    async with serving(objects) as server, watching(ledger, keys(tmp_path, server)) as world:
        await hold(world, "s3://b/faces/a.csv")
        assert await world.samples() == 2
        await world.check_again()
        assert objects.bodies == 1
        objects.objects["faces/a.csv"] += "3\n"
        await world.check_again()
        assert await world.samples() == 3


async def test_keys_of_a_mounted_secret_are_used(ledger: Ledger, tmp_path: Path) -> None:
    async with serving(Bucket(a_txt="one\n")) as server:
        options = keys(tmp_path, server)
        for file in (tmp_path / "default" / "s3-key").iterdir():
            file.rename(tmp_path / f"default.s3-key.{file.name}")
        async with watching(ledger, options) as world:
            await hold(world, "s3://b/a.txt")
            assert await world.samples() == 1


@pytest.mark.parametrize(
    ("url", "format_"), [("s3://b/faces/", ""), ("s3://b/faces", "dir")], ids=["slash", "dir"]
)
async def test_objects_below_a_prefix_are_counted(
    url: str, format_: str, ledger: Ledger, tmp_path: Path
) -> None:
    objects = Bucket(faces__a_png="", faces__more__b_png="", other_png="")
    async with serving(objects) as server, watching(ledger, keys(tmp_path, server)) as world:
        await hold(world, url, format=format_)
        assert await world.samples() == 2


@pytest.mark.parametrize("page_keys", [1, 1000])
async def test_an_object_that_stands_for_a_directory_does_not_count(
    page_keys: int, ledger: Ledger, tmp_path: Path
) -> None:
    objects = Bucket()
    marks = ["mark/", "mark/sub/", "mark/sub/deep/"]
    names = ["mark/1.png", "mark/sub", "mark/sub-2.png", "mark/sub/deep/2.png", "mark/sub/3.png"]
    objects.objects = dict.fromkeys([*marks, "mark/1.png", "mark/sub"], "")
    objects.objects |= dict.fromkeys(names[2:], "picture")
    objects.page_keys = page_keys
    async with serving(objects) as server, watching(ledger, keys(tmp_path, server)) as world:
        await hold(world, "s3://b/mark/")
        assert await world.samples() == len(names)


async def test_all_pages_are_counted(ledger: Ledger, tmp_path: Path) -> None:
    objects = Bucket()
    objects.objects = {f"a/b c+&é={number}.png": "" for number in range(7)}
    objects.page_keys = 3
    async with serving(objects) as server, watching(ledger, keys(tmp_path, server)) as world:
        await hold(world, "s3://b/a/")
        assert await world.samples() == 7
        assert len(server.requests) == 3


async def test_a_server_that_answers_304_to_the_first_check_is_a_problem(
    ledger: Ledger, tmp_path: Path
) -> None:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=304)

    async with serving(answer) as server, watching(ledger, keys(tmp_path, server)) as world:
        await hold(world, "s3://b/a.txt")
        report = await world.report()
        assert report.details["problem"] == "Unavailable"
        assert "answers 304" in report.reason
        server.answer = Bucket(a_txt="one\n")
        await world.check_again()
        assert await world.samples() == 1


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("s3:///a.txt", "names no bucket"),
        ("s3://B_X!/a.txt", "names no bucket"),
        ("s3://b:80/a.txt", "names no bucket"),
        ("s3://b/a#b.txt", "'#'"),
        ("s3://b/a?b.txt", "'?'"),
        ("s3://b/a.txt#", "'#'"),
    ],
)
async def test_a_url_that_names_no_object_is_never_requested(
    url: str, text: str, ledger: Ledger, tmp_path: Path
) -> None:
    objects = Bucket(a="one\n", a_txt="one\n")
    async with serving(objects) as server, watching(ledger, keys(tmp_path, server)) as world:
        await hold(world, url, format="txt")
        report = await world.report()
        assert report.details["problem"] == "InvalidURL"
        assert text in report.reason
        assert not server.requests


async def test_requests_to_a_public_bucket_are_not_signed(ledger: Ledger, tmp_path: Path) -> None:
    objects = Bucket(a_txt="one\n")
    objects.is_public = True
    async with serving(objects) as server:
        options = keys(tmp_path, server)
        for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
            (tmp_path / "default" / "s3-key" / name).unlink()
        async with watching(ledger, options) as world:
            await hold(world, "s3://b/a.txt")
            assert await world.samples() == 1
            assert "Authorization" not in server.requests[0].headers


async def test_an_object_that_appears_later_is_counted(ledger: Ledger, tmp_path: Path) -> None:
    objects = Bucket()
    async with serving(objects) as server, watching(ledger, keys(tmp_path, server)) as world:
        await hold(world, "s3://b/a.txt")
        assert await world.problem() == "NotFound"
        objects.objects["a.txt"] = "one\n"
        await world.check_again()
        assert await world.samples() == 1


async def test_an_empty_prefix_is_not_found(ledger: Ledger, tmp_path: Path) -> None:
    async with serving(Bucket()) as server, watching(ledger, keys(tmp_path, server)) as world:
        await hold(world, "s3://b/faces/")
        assert await world.problem() == "NotFound"


async def test_rotated_keys_are_used_and_wrong_ones_never_quoted(
    ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serving(Bucket(a_txt="one\n")) as server:
        options = keys(tmp_path, server, ACCESS_KEY_ID="OLD-KEY-ID")
        async with watching(ledger, options) as world:
            await hold(world, "s3://b/a.txt")
            report = await world.report()
            assert report.details["problem"] == "Forbidden"
            printed = capsys.readouterr()
            for text in (report.reason, printed.out, printed.err):
                assert SECRET not in text
                assert "OLD-KEY-ID" not in text
            (tmp_path / "default" / "s3-key" / "ACCESS_KEY_ID").write_text("AKID")
            await world.check_again()
            assert await world.samples() == 1


async def test_a_bucket_whose_server_is_down_is_a_problem(ledger: Ledger, tmp_path: Path) -> None:
    async with serving(Bucket()) as server:
        options = keys(tmp_path, server)
    async with watching(ledger, options) as world:
        await hold(world, "s3://b/a.txt")
        report, before = await world.report(), ledger.view
        assert report.details["problem"] == "Unavailable"
        assert "error sending request" in report.reason
        await world.check_again()
        assert ledger.view is before


async def test_a_server_that_refuses_is_reported_once(ledger: Ledger, tmp_path: Path) -> None:
    async def refuse(_request: web.Request) -> web.StreamResponse:
        text = f"<Error><Code>Odd</Code><RequestId>{next(numbers)}</RequestId></Error>"
        return web.Response(status=400, text=text)

    numbers = itertools.count()
    async with serving(refuse) as server, watching(ledger, keys(tmp_path, server)) as world:
        await hold(world, "s3://b/a.txt")
        report, before = await world.report(), ledger.view
        assert report.details["problem"] == "Unavailable"
        assert "400 Bad Request" in report.reason
        await world.check_again()
        assert ledger.view is before


@pytest.mark.parametrize("url", ["s3://b/a.txt", "s3://b/faces/"])
async def test_a_server_that_falls_silent_is_given_up(
    url: str, ledger: Ledger, tmp_path: Path
) -> None:
    timeouts = SourceTimeouts(silence_s=0.5)  # a connection is made in less
    async with (
        serving(Bucket()) as server,
        watching(ledger, keys(tmp_path, server), timeouts=timeouts) as world,
    ):

        async def silent(_request: web.Request) -> web.StreamResponse:
            await server.released.wait()
            return web.Response()

        server.answer = silent
        await hold(world, url)
        report = await world.report()
        assert report.details["problem"] == "Unavailable"
        assert "no answer in time" in report.reason


@pytest.mark.parametrize("url", ["s3://b/a/b.txt", "s3://b/a/"])
async def test_an_object_that_is_cut_off_is_not_counted(
    url: str, ledger: Ledger, tmp_path: Path
) -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        headers = {"Content-Length": "1000", "ETag": '"e"', "Last-Modified": MODIFIED}
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        await response.write(b"one\n")
        assert request.transport is not None
        request.transport.abort()
        return response

    async with serving(cut) as server, watching(ledger, keys(tmp_path, server)) as world:
        await hold(world, url)
        assert await world.problem() == "Unavailable"
        server.answer = Bucket(a__b_txt="one\ntwo\n", a__c_txt="")
        await world.check_again()
        assert await world.samples() == 2


async def test_missing_keys_are_a_problem_that_names_their_file(
    ledger: Ledger, tmp_path: Path
) -> None:
    async with watching(ledger, SourceOptions(credentials_dir=tmp_path)) as world:
        await hold(world, "s3://b/a.txt")
        report = await world.report()
        assert report.details["problem"] == "NoCredential"
        assert str(tmp_path / "default" / "s3-key" / "ACCESS_KEY_ID") in report.reason


async def test_a_node_without_keys_says_what_to_do(ledger: Ledger) -> None:
    async with watching(ledger) as world:
        await hold(world, "s3://b/a.txt")
        assert "--credentials-dir" in (await world.report()).reason


async def test_a_credential_name_cannot_leave_the_directory_of_keys(
    ledger: Ledger, tmp_path: Path
) -> None:
    async with watching(ledger, SourceOptions(credentials_dir=tmp_path)) as world:
        await hold(world, "s3://b/a.txt", credentialName="../../etc")
        report = await world.report()
        assert report.details["problem"] == "NoCredential"
        assert "is no name" in report.reason


def test_keys_are_not_in_their_repr() -> None:
    assert SECRET not in repr(BucketKeys(access="AKID", secret=SECRET))
