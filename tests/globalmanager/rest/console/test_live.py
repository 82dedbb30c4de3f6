"""Open pages change when the caches change."""

import asyncio
import contextlib
import re
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from globalmanager.rest.console import handlers
from globalmanager.rest.console.live import Live, LiveLimits, event
from globalmanager.rest.console.login import SESSION_S
from tests.globalmanager.rest.authority import Authority
from tests.globalmanager.rest.cluster import RestSide, object_of
from tests.globalmanager.rest.console.conftest import Browser
from tests.support.waiting import async_eventually

STREAM = {"Accept": "text/event-stream"}
READ_S = 10.0


@pytest.fixture
async def live(guarded: RestSide) -> AsyncIterator[Live]:
    guarded.live._limits = LiveLimits(streams=3, tick_s=0.01, share=1.0, beat_s=0.05)
    task = asyncio.create_task(guarded.live.run())
    yield guarded.live
    task.cancel()


class Stream:
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.text = ""

    async def until(self, words: str) -> None:
        try:
            async with asyncio.timeout(READ_S):
                while words not in self.text:
                    data = await self._response.content.readany()
                    assert data, f"the stream ended: {self.text}"
                    self.text += data.decode()
        except TimeoutError:
            pytest.fail(f"no {words!r} within {READ_S} s in {self.text[-2000:]}")


async def opened(browser: Browser, path: str = "/jobs") -> Any:
    """An open page; all of it must come within READ_S."""
    timeout = aiohttp.ClientTimeout(total=READ_S)
    return await browser.client.get(browser.world.url + path, headers=STREAM, timeout=timeout)


async def test_a_page_gets_what_has_changed(
    browser: Browser, guarded: RestSide, live: Live
) -> None:
    await browser.log_in("ann's")
    async with await opened(browser) as response:
        assert response.content_type == "text/event-stream"
        stream = Stream(response)
        await stream.until("a/digits")
        assert stream.text.startswith("event: page\ndata: ")
        guarded.cluster.objects.append(object_of("newcomer", namespace="c"))
        await stream.until("c/newcomer")
        beats = re.compile(r"event: beat\ndata: (\d+)\n\n")
        stream.text = ""
        await stream.until("event: beat\n")
        await stream.until("\n\n")
        assert "event" not in beats.sub("", stream.text)
        # A page corrects its ages by it, and a page that gets none for long connects again.
        assert abs(int(beats.findall(stream.text)[0]) - time.time()) < READ_S
    await async_eventually("no open page", lambda: live.streams == 0)


async def test_a_change_does_not_wait_for_the_next_beat(
    browser: Browser, guarded: RestSide, live: Live
) -> None:
    live._limits = LiveLimits(tick_s=0.01, share=1.0, beat_s=600.0, look_s=0.05)
    await browser.log_in("ann's")
    async with await opened(browser) as response:
        stream = Stream(response)
        await stream.until("a/digits")
        await stream.until("event: beat\n")  # the time comes with the first page
        for name in ("one", "two"):
            guarded.cluster.objects.append(object_of(name, namespace="c"))
            await stream.until(f"c/{name}")


async def test_each_viewer_gets_what_it_may_see(
    browser: Browser, guarded: RestSide, live: Live
) -> None:
    other = Browser(guarded)
    async with other.client:
        await browser.log_in("ann's")
        await other.log_in("ben's")
        async with await opened(browser) as one, await opened(other) as two:
            ann, ben = Stream(one), Stream(two)
            await ann.until("a/digits")
            await ben.until("b/faces")
            guarded.cluster.objects.append(object_of("secret", namespace="a"))
            await ann.until("a/secret")
            guarded.cluster.objects.append(object_of("own", namespace="b"))
            await ben.until("b/own")
            assert "a/" not in ben.text.replace("data: ", "").replace("</a/", "")
            assert live.streams == 2


async def test_pages_of_one_sight_are_rendered_once(
    browser: Browser, guarded: RestSide, live: Live
) -> None:
    await browser.log_in("ann's")
    async with await opened(browser), await opened(browser), await opened(browser, "/nodes"):
        assert (live.streams, len(live._channels)) == (3, 2)
        answer = await browser.get("/jobs", **STREAM)
        assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
        assert (await browser.get("/jobs")).status == 200
    await async_eventually("no open page", lambda: not live._channels)


async def test_a_stream_needs_a_session_and_says_so_once(browser: Browser, live: Live) -> None:
    """A browser would follow a redirect, and try again and again."""
    answer = await browser.get("/jobs?q=x", **STREAM)
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    assert 'href="/login?next=/jobs%3Fq%3Dx"' in answer.text
    assert answer.text.endswith("event: end\ndata: -\n\n")
    assert 'sse-close="end"' in await _page_of_ann(browser)
    assert live.streams == 0


async def _page_of_ann(browser: Browser) -> str:
    await browser.log_in("ann's")
    return (await browser.get("/jobs")).text


async def test_a_token_that_ends_while_a_page_is_open_is_told_on_the_page(
    browser: Browser,
    guarded: RestSide,
    authority: Authority,
    live: Live,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handlers, "LIVE_S", 0.05)
    await browser.log_in("ann's")
    async with await opened(browser) as response:
        assert "a/digits" in await response.text()
    del authority.users["ann's"]
    await guarded.forget_callers()
    answer = await browser.get("/jobs", **STREAM)
    assert "Your session has ended" in answer.text
    assert answer.headers["Set-Cookie"].startswith('edgeai-session=""')
    asked = len(authority.tokens)
    assert "Your session has ended" in (await browser.get("/jobs", **STREAM)).text
    assert len(authority.tokens) == asked


async def test_a_page_that_fails_harms_no_other(
    browser: Browser, guarded: RestSide, live: Live
) -> None:
    await browser.log_in("ann's")
    async with await opened(browser, "/jobs?q=x") as one, await opened(browser, "/nodes") as two:
        await Stream(one).until("none")
        await Stream(two).until("node-1")
        guarded.cluster.objects.append(_unreadable())
        guarded.cluster.node_names.append("node-3")
        await Stream(two).until("node-3")


async def test_a_failure_is_logged_once_and_harms_nothing_that_follows(
    browser: Browser, guarded: RestSide, live: Live, capsys: pytest.CaptureFixture[str]
) -> None:
    await browser.log_in("ann's")
    async with await opened(browser, "/jobs") as one, await opened(browser, "/nodes") as two:
        await Stream(one).until("a/digits")
        guarded.cluster.objects.append(_unreadable())
        for name in ("node-3", "node-4", "node-5"):
            guarded.cluster.node_names.append(name)
            await Stream(two).until(name)
        guarded.cluster.objects[-1] = object_of("healed")
        await Stream(one).until("healed")
    assert capsys.readouterr().out.count("page cannot be rendered") == 1


async def test_the_page_of_a_deleted_job_says_so(
    browser: Browser, guarded: RestSide, live: Live, capsys: pytest.CaptureFixture[str]
) -> None:
    await browser.log_in("ann's")
    path = "/jobs/jointinferenceservices.edgeai.io/a/digits"
    async with await opened(browser, path) as response:
        stream = Stream(response)
        await stream.until("Running")
        gone = guarded.cluster.objects.pop(0)
        stream.text = ""
        await stream.until("it has been deleted since, or your rights have changed")
        await stream.until("event: beat")
        assert "no such job, or you may not see it" in stream.text
        assert "<h1>" not in stream.text
        assert 'id="job"' not in stream.text  # by it the page knows what forms may offer
        guarded.cluster.objects.append(gone)
        stream.text = ""
        await stream.until("Running")
    assert "cannot be rendered" not in capsys.readouterr().out


async def test_a_page_that_never_was_leaves_nothing_behind(
    browser: Browser, guarded: RestSide, live: Live
) -> None:
    await browser.log_in("ann's")
    for _ in range(2):
        assert (await browser.get("/nodes/none", **STREAM)).status == 404
    guarded.cluster.objects.append(_unreadable())
    assert (await browser.get("/jobs", **STREAM)).status == 500
    assert (live.streams, live._channels, live._of_address) == (0, {}, {})
    del guarded.cluster.objects[-1]
    async with await opened(browser) as response:
        await Stream(response).until("a/digits")


async def test_the_place_of_a_browser_that_has_left_is_free_before_the_next_beat(
    browser: Browser, live: Live
) -> None:
    live._limits = LiveLimits(tick_s=0.01, share=1.0, beat_s=600.0, look_s=0.05)
    await browser.log_in("ann's")
    async with await opened(browser) as response:
        await Stream(response).until("a/digits")
        assert live.streams == 1
    await async_eventually("no open page", lambda: live.streams == 0)
    assert (live._channels, live._turns, live._of_address) == ({}, {}, {})


async def test_the_service_accounts_of_a_namespace_are_one_viewer(
    browser: Browser, guarded: RestSide, authority: Authority, live: Live
) -> None:
    authority.users["carl's"] = {"username": "system:serviceaccount:b:carl"}
    authority.rights_of["system:serviceaccount:b:carl"] = [{"verb": "list", "namespace": "b"}]
    other, third = Browser(guarded), Browser(guarded)
    async with other.client, third.client:
        await browser.log_in("ben's")
        await other.log_in("carl's")
        await third.log_in("ann's")
        async with await opened(browser), await opened(other, "/jobs?q=f"), await opened(third):
            assert sorted(live._turns) == ["ann", "system:serviceaccount:b"]


class Renderings:
    """Pages that take long, and how often each was rendered."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def of(self, name: str, seconds: float) -> Any:
        def render() -> dict[str, str]:
            self.counts[name] += 1
            end_s = time.perf_counter() + seconds
            while time.perf_counter() < end_s:
                pass
            return {}

        return render


async def test_a_viewer_with_many_pages_slows_down_no_other() -> None:
    live, pages = Live(LiveLimits(tick_s=0.01, share=0.1)), Renderings()
    async with contextlib.AsyncExitStack() as stack:
        for number in range(100):
            key = f"greedy {number}"
            await stack.enter_async_context(live._joined("greedy", key, pages.of(key, 0.002)))
        await stack.enter_async_context(live._joined("ann", "own", pages.of("own", 0.002)))
        pages.counts.clear()
        for _ in range(200):
            await live._round()
        assert pages.counts["own"] == 200
        others = [pages.counts[f"greedy {number}"] for number in range(100)]
        assert set(others) == {2}
    assert (live._turns, live._channels) == ({}, {})


async def test_many_viewers_share_the_time_of_a_round() -> None:
    live, pages = Live(LiveLimits(tick_s=0.1, share=0.1)), Renderings()
    async with contextlib.AsyncExitStack() as stack:
        for viewer in map(str, range(10)):
            for number in range(5):
                render = pages.of(viewer, 0.002)
                await stack.enter_async_context(live._joined(viewer, (viewer, number), render))
        pages.counts.clear()
        await live._round()
        assert set(pages.counts.values()) == {1}


async def test_cheap_pages_of_one_viewer_are_all_rendered_in_one_round() -> None:
    live, pages = Live(LiveLimits(tick_s=1.0, share=1.0)), Renderings()
    async with contextlib.AsyncExitStack() as stack:
        for number in range(5):
            for viewer in ("ann", "ben"):  # who share the renderings
                await stack.enter_async_context(
                    live._joined(viewer, str(number), pages.of(str(number), 0.0))
                )
        pages.counts.clear()
        await live._round()
        assert set(pages.counts.values()) == {1}
        assert len(pages.counts) == 5


async def test_one_address_leaves_room_for_others(
    browser: Browser, guarded: RestSide, live: Live
) -> None:
    live._limits = LiveLimits(streams=3, streams_per_address=2, beat_s=0.05)
    await browser.log_in("ann's")
    async with await opened(browser), await opened(browser, "/jobs?q=1"):
        assert (await browser.get("/jobs?q=2", **STREAM)).status == 503
        other = Browser(guarded, local_address="127.0.0.2")
        async with other.client:
            await other.log_in("ann's")
            async with await opened(other) as response:
                await Stream(response).until("a/digits")
    await async_eventually("no open page", lambda: not live._of_address)
    async with await opened(browser) as response:
        await Stream(response).until("a/digits")


async def test_a_stream_ends_with_its_session_and_then_the_rights_count_again(
    browser: Browser, guarded: RestSide, live: Live
) -> None:
    await browser.log_in("ann's")
    guarded.clock.now_s += SESSION_S - 0.05
    async with await opened(browser) as response:
        assert "a/digits" in await response.text()
    guarded.clock.now_s += 0.1
    assert "Your session has ended" in (await browser.get("/jobs", **STREAM)).text


async def test_a_right_that_is_taken_away_counts_when_the_page_is_checked_again(
    browser: Browser,
    guarded: RestSide,
    authority: Authority,
    live: Live,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handlers, "LIVE_S", 0.05)
    await browser.log_in("ann's")
    async with await opened(browser) as response:
        assert "a/digits" in await response.text()
    authority.rights_of["ann"] = []
    await guarded.forget_callers()
    async with await opened(browser) as response:
        assert "a/digits" not in await response.text()


@contextlib.asynccontextmanager
async def silent_reader(browser: Browser, live: Live) -> AsyncIterator[None]:
    """An open page of nodes, of which nobody reads a byte."""
    cookie = (await browser.log_in("ann's")).headers["Set-Cookie"].split(";")[0]
    with socket.socket() as silent:
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        silent.connect(browser.world.server.address)
        head = "GET /nodes HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n"
        silent.sendall(f"{head}Cookie: {cookie}\r\n\r\n".encode())
        await async_eventually("an open page", lambda: live.streams == 1)
        yield


async def test_a_browser_that_reads_nothing_loses_its_stream(
    browser: Browser, guarded: RestSide, live: Live
) -> None:
    """Else each of them would keep a task, a place and the page."""
    live._limits = LiveLimits(tick_s=0.01, share=1.0, write_s=0.2)
    names = guarded.cluster.node_names = [f"{'n' * 200}-{number}" for number in range(100)]

    def changes() -> bool:
        names.reverse()
        names.append(f"more-{len(names)}")
        return live.streams == 0

    async with silent_reader(browser, live):
        await async_eventually("no open page", changes)
        assert (live._channels, live._of_address) == ({}, {})


async def test_a_browser_that_reads_nothing_is_cut_off_after_the_end_of_its_stream(
    browser: Browser, guarded: RestSide, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server cannot tell it the end, and would wait for ever."""
    monkeypatch.setattr(handlers, "LIVE_S", 0.2)
    live._limits = LiveLimits(tick_s=0.01, share=1.0, write_s=1.0)
    guarded.cluster.node_names = [f"{'n' * 240}-{number}" for number in range(4000)]
    async with silent_reader(browser, live):
        await browser.client.close()
        connections = guarded.server._connections
        await async_eventually("no connection", lambda: len(connections) == 0, timeout_s=20)


def _unreadable() -> dict[str, Any]:
    return {"apiVersion": "edgeai.io/v1alpha1", "kind": "Model", "metadata": {"namespace": "x"}}


def test_lines_of_an_event_stay_within_it() -> None:
    assert event("page", "a\nb\r\nevent: evil\r\rc") == (
        "event: page\ndata: a\ndata: b\ndata: event: evil\ndata: \ndata: c\n\n"
    )
