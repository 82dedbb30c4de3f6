"""Keys come once each, in their order, and the urgent ones first."""

import asyncio

from globalmanager.edge.sessions.ready import Ready


async def take(ready: Ready[str], count: int) -> str:
    async with asyncio.timeout(5):
        return "".join([await ready.get() for _ in range(count)])


async def test_a_key_comes_once_in_its_order() -> None:
    ready: Ready[str] = Ready()
    for key in "abca":
        ready.put(key)
    assert await take(ready, 3) == "abc"
    waiting = asyncio.create_task(ready.get())
    await asyncio.sleep(0)
    assert not waiting.done()
    ready.put("a")
    assert await waiting == "a"


async def test_an_urgent_key_passes_the_others() -> None:
    ready: Ready[str] = Ready()
    for key in "abcd":
        ready.put(key)
    for key in "dbx":  # x is not in the queue
        ready.hasten(key)
    ready.put("d")
    assert await take(ready, 4) == "dbac"
    ready.put("e")
    assert await take(ready, 1) == "e"
