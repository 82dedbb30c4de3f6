"""Open pages change when the caches change."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from globalmanager.rest.console.live import Live, LiveLimits, event
from tests.globalmanager.rest.cluster import World, object_of
from tests.globalmanager.rest.console.conftest import Browser
from tests.waiting import async_eventually

STREAM = {"Accept": "text/event-stream"}


@pytest.fixture
async def live(guarded: World) -> AsyncIterator[Live]:
    guarded.live._limits = LiveLimits(streams=3, tick_s=0.01, share=1.0, beat_s=0.05)
    task = asyncio.create_task(guarded.live.run())
    yield guarded.live
    task.cancel()


class Stream:
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.text = ""

    async def until(self, words: str) -> None:
        while words not in self.text:
            data = await self._response.content.readany()
            assert data, f"the stream ended: {self.text}"
            self.text += data.decode()


async def opened(browser: Browser, path: str = "/jobs") -> Any:
    return await browser.client.get(browser.world.url + path, headers=STREAM)


async def test_a_page_gets_what_has_changed(browser: Browser, guarded: World, live: Live) -> None:
    await browser.log_in("ann's")
    async with await opened(browser) as response:
        assert response.content_type == "text/event-stream"
        stream = Stream(response)
        await stream.until("a/digits")
        assert stream.text.startswith("event: page\ndata: ")
        guarded.cluster.objects.append(object_of("newcomer", namespace="c"))
        await stream.until("c/newcomer")
        stream.text = ""
        await stream.until(": beat\n\n")
        assert "event" not in stream.text.replace(": beat\n\n", "")
    await async_eventually("no open page", lambda: live.streams == 0)


async def test_each_viewer_gets_what_it_may_see(
    browser: Browser, guarded: World, live: Live
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
    browser: Browser, guarded: World, live: Live
) -> None:
    await browser.log_in("ann's")
    async with await opened(browser), await opened(browser), await opened(browser, "/nodes"):
        assert (live.streams, len(live._channels)) == (3, 2)
        answer = await browser.get("/jobs", **STREAM)
        assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
        assert (await browser.get("/jobs")).status == 200
    await async_eventually("no open page", lambda: not live._channels)


async def test_a_stream_needs_a_session(browser: Browser, live: Live) -> None:
    assert (await browser.get("/jobs", **STREAM)).status == 303
    assert live.streams == 0


async def test_a_page_that_fails_harms_no_other(
    browser: Browser, guarded: World, live: Live
) -> None:
    await browser.log_in("ann's")
    async with await opened(browser, "/jobs?q=x") as one, await opened(browser, "/nodes") as two:
        await Stream(one).until("none")
        await Stream(two).until("node-1")
        guarded.cluster.objects.append(_unreadable())
        guarded.cluster.node_names.append("node-3")
        await Stream(two).until("node-3")


def _unreadable() -> dict[str, Any]:
    return {"apiVersion": "edgeai.io/v1alpha1", "kind": "Model", "metadata": {"namespace": "x"}}


def test_lines_of_an_event_stay_within_it() -> None:
    assert event("page", "a\nb\r\nevent: evil\r\rc") == (
        "event: page\ndata: a\ndata: b\ndata: event: evil\ndata: \ndata: c\n\n"
    )
