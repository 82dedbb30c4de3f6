"""Datasets behind http: conditional requests, streamed bodies, time limits, and problems."""

import asyncio
import gzip
import ssl
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from common.lean_imports import system_tls
from localcontroller.hooks.addresses import parse_networks
from localcontroller.hooks.sources import SourceOptions, SourceTimeouts
from localcontroller.hooks.web import NO_ANSWER
from localcontroller.ledger.ledger import Ledger
from tests.localcontroller.builders import report_of
from tests.localcontroller.hooks.server import Answer, serving
from tests.localcontroller.hooks.world import watching
from tests.support.certificates import Authority

TEXT = "x\n1\n2\n"


class Content:
    """The answer of a server: a file and its headers."""

    def __init__(self, text: str = TEXT, **headers: str) -> None:
        self.text = text
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.heeds_conditions = True
        self.bodies = 0

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        condition = request.headers.get("If-None-Match") or request.headers.get("If-Modified-Since")
        if self.heeds_conditions and condition and condition in self.headers.values():
            return web.Response(status=304, headers=self.headers)
        self.bodies += 1
        return web.Response(text=self.text, headers=self.headers)


VALIDATORS = {
    "ETag": {"ETag": '"v1"'},
    "Last-Modified": {"Last_Modified": "Sat, 03 Jan 2026 10:00:00 GMT"},
}


@pytest.mark.parametrize("case", VALIDATORS)
async def test_a_file_is_sent_again_only_when_it_changed(case: str, ledger: Ledger) -> None:
    content = Content(**VALIDATORS[case])
    async with serving(content) as server, watching(ledger) as world:
        await world.hold(url=f"{server.url}/a.csv")
        assert await world.samples() == 2
        await world.check_again()
        assert (len(server.requests), content.bodies) == (2, 1)
        content.text += "3\n"
        content.headers = {name: f"{value} new" for name, value in content.headers.items()}
        await world.check_again()
        assert await world.samples() == 3


async def test_a_server_behind_https_is_trusted_by_the_cas_of_the_system(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where aiohttp was loaded without CAs."""
    authority = Authority(tmp_path)
    pair = authority.issue("server", alternative="IP:127.0.0.1", usage="serverAuth")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(pair.certificate, pair.key)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
    system_tls.cache_clear()
    async with serving(Content(), tls=tls) as server, watching(ledger) as world:
        await world.hold(url=f"{server.url}/a.csv")
        assert await world.samples() == 2
    system_tls.cache_clear()


async def test_the_body_of_a_server_that_ignores_conditions_is_not_counted_again(
    ledger: Ledger,
) -> None:
    content = Content(ETag='"v1"')
    content.heeds_conditions = False
    async with serving(content) as server, watching(ledger) as world:
        await world.hold(url=f"{server.url}/a.csv")
        content.text = "x\n987\n"  # the same length and ETag, fewer samples
        before = ledger.view
        await world.check_again()
        assert ledger.view is before


async def test_without_etag_and_date_another_length_shows_a_change(ledger: Ledger) -> None:
    content = Content()
    async with serving(content) as server, watching(ledger) as world:
        await world.hold(url=f"{server.url}/a.csv")
        content.text += "3\n"
        await world.check_again()
        assert await world.samples() == 3


async def test_a_body_without_a_length_is_counted_in_each_check(ledger: Ledger) -> None:
    lines = [b"x\n", b"1\n"]

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for line in lines:
            await response.write(line)
        return response

    async with serving(stream) as server, watching(ledger) as world:
        await world.hold(url=f"{server.url}/a.csv")
        lines.append(b"2\n")
        await world.check_again()
        assert await world.samples() == 2


def status(code: int) -> Answer:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=code)

    return answer


async def cut(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b"x\n1\n")
    assert request.transport is not None
    request.transport.abort()
    return response


async def loop(request: web.Request) -> web.StreamResponse:
    raise web.HTTPFound(request.path)


PROBLEMS: dict[str, tuple[Answer, str, str]] = {
    "304 without a condition": (status(304), "Unavailable", "answers 304"),
    "404": (status(404), "NotFound", "answers 404"),
    "410": (status(410), "NotFound", "answers 410"),
    "401": (status(401), "Forbidden", "answers 401"),
    "403": (status(403), "Forbidden", "answers 403"),
    "500": (status(500), "Unavailable", "answers 500"),
    "cut": (cut, "Unavailable", "the connection closed before the end of the data"),
    "redirected for ever": (loop, "Unavailable", "more than 5 redirections"),
}


@pytest.mark.parametrize("case", PROBLEMS)
async def test_a_problem_is_reported_and_heals(case: str, ledger: Ledger) -> None:
    answer, reason, text = PROBLEMS[case]
    async with serving(answer) as server, watching(ledger) as world:
        await world.hold(url=f"{server.url}/a.csv")
        report = await world.report()
        assert (report.status, report.details["problem"]) == ("lost", reason)
        assert report.reason.startswith(f"spec.url: {server.url}/a.csv")
        assert text in report.reason
        server.answer = Content()
        await world.check_again()
        assert await world.samples() == 2


async def test_a_body_that_was_cut_off_is_read_again_with_the_same_etag(ledger: Ledger) -> None:
    async def cut_with_etag(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000", "ETag": '"v1"'})
        await response.prepare(request)
        await response.write(b"x\n1\n")
        assert request.transport is not None
        request.transport.abort()
        return response

    async with serving(cut_with_etag) as server, watching(ledger) as world:
        await world.hold(url=f"{server.url}/a.csv")
        server.answer = Content(ETag='"v1"')
        await world.check_again()
        assert await world.samples() == 2


async def test_a_url_where_nobody_listens_is_a_problem(ledger: Ledger) -> None:
    async with serving(status(200)) as server:
        url = f"{server.url}/a.csv"
    async with watching(ledger) as world:
        await world.hold(url=url)
        report = await world.report()
        assert report.details["problem"] == "Unavailable"
        assert report.reason.endswith(f": {NO_ANSWER}")


async def test_a_server_that_falls_silent_is_given_up(
    ledger: Ledger,
) -> None:
    timeouts = SourceTimeouts(silence_s=0.05)
    async with serving(status(200)) as server, watching(ledger, timeouts=timeouts) as world:

        async def silent(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Length": "1000"})
            await response.prepare(request)
            await response.write(b"x\n1\n")
            await server.released.wait()
            return response

        server.answer = silent
        await world.hold(url=f"{server.url}/a.csv")
        report = await world.report()
        assert report.details["problem"] == "Unavailable"
        assert "no answer in time" in report.reason


async def test_a_slow_server_holds_up_no_other_dataset(ledger: Ledger) -> None:
    async with serving(status(200)) as server, watching(ledger) as world:

        async def answer(request: web.Request) -> web.StreamResponse:
            if request.path == "/slow.csv":
                await server.released.wait()
            return web.Response(text=TEXT)

        server.answer = answer
        slow = asyncio.create_task(
            world.hold(name="slow", uid="uid-slow", url=f"{server.url}/slow.csv")
        )
        await world.hold(url=f"{server.url}/a.csv")
        assert await world.samples() == 2
        server.released.set()
        await slow


async def test_the_signature_of_a_url_is_in_no_report_and_no_log(
    ledger: Ledger, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(status(500)) as server, watching(ledger) as world:
        host = server.url.removeprefix("http://")
        await world.hold(url=f"http://user:pass-word@{host}/a.csv?X-Amz-Signature=s1gnature")
        report: Any = await world.report()
        printed = capsys.readouterr()
        for text in (report.reason, printed.out, printed.err, caplog.text):
            assert "pass-word" not in text
            assert "s1gnature" not in text
        assert server.requests[0].query["X-Amz-Signature"] == "s1gnature"


# ---- addresses ----------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0"])
async def test_a_server_on_the_node_itself_is_not_asked(host: str, ledger: Ledger) -> None:
    async with serving(Content()) as server, watching(ledger, SourceOptions()) as world:
        url = f"http://{host}:{server.port}/a.csv"
        await world.hold(url=url)
        assert (await world.report()).reason == f"spec.url: {url}: {NO_ANSWER}"
        assert server.requests == []


async def test_a_redirection_is_checked_as_the_url_is(ledger: Ledger) -> None:
    content = Content()
    async with serving(content) as server, serving(content, "127.0.0.2") as forbidden:

        async def redirect(request: web.Request) -> web.StreamResponse:
            if request.path == "/a.csv":
                raise web.HTTPFound(request.query["to"])
            return await content(request)

        server.answer = redirect
        options = SourceOptions(networks=parse_networks(["127.0.0.1/32"]))
        async with watching(ledger, options) as world:
            await world.hold(url=f"{server.url}/a.csv?to={server.url}/b.csv")
            assert await world.samples() == 2
            url = f"{server.url}/a.csv?to={forbidden.url}/b.csv"
            await world.hold(name="b", uid="uid-b", url=url)
            assert server.requests[-1].query["to"] == f"{forbidden.url}/b.csv"
            assert not forbidden.requests


async def no_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readline()
    writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
    writer.close()


async def test_the_message_does_not_tell_an_open_port_from_a_closed_one(ledger: Ledger) -> None:
    other = await asyncio.start_server(no_http, "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]
    async with serving(status(200)) as server:
        closed = server.port
    urls = [
        f"http://127.0.0.1:{port}/a.csv",
        f"https://127.0.0.1:{port}/a.csv",
        f"http://127.0.0.1:{closed}/a.csv",
        "http://169.254.169.254/a.csv",
        "http://no-such-host.invalid/a.csv",
    ]
    async with other, watching(ledger) as world:
        for number, url in enumerate(urls):
            await world.hold(name=f"d{number}", uid=f"uid-{number}", url=url)
        told = {report_of(each.body).reason for each in await world.owed()}
    assert told == {f"spec.url: {url}: {NO_ANSWER}" for url in urls}


async def test_a_compressed_body_is_not_unpacked(ledger: Ledger) -> None:
    bomb = gzip.compress(b"x\n" * 10_000_000)

    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=bomb, headers={"Content-Encoding": "gzip"})

    async with serving(answer) as server, watching(ledger) as world:
        await world.hold(url=f"{server.url}/a.csv")
        report = await world.report()
        assert report.reason.endswith(
            "the server compresses its answer ('gzip') though not asked to"
        )
        assert server.requests[0].headers["Accept-Encoding"] == "identity"


async def test_a_proxy_of_the_environment_is_asked_wherever_it_is(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(Content()) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        async with watching(ledger, SourceOptions()) as world:
            await world.hold(url="http://files.example/a.csv")
            assert await world.samples() == 2
        assert proxy.requests[0].headers["Host"] == "files.example"
