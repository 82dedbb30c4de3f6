"""A few handshakes in each pass of the event loop, whoever waits."""

import asyncio

from globalmanager.edge.door.admission import Turnstile


async def enter_all(turnstile: Turnstile, count: int) -> tuple[list[asyncio.Task[int]], list[int]]:
    """Handshakes that all want to begin now, and the numbers in the order of their turns."""
    order: list[int] = []

    async def begin(number: int) -> int:
        await turnstile.enter()
        order.append(number)
        return number

    return [asyncio.create_task(begin(number)) for number in range(count)], order


async def passes(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_each_pass_of_the_loop_lets_few_in_and_all_get_their_turn_in_order() -> None:
    tasks, order = await enter_all(Turnstile(per_pass=3), 20)
    entered: list[int] = []
    while len(order) < 20:
        await passes(1)
        entered.append(len(order) - sum(entered))
    assert max(entered) == 3
    assert order == list(range(20))
    await asyncio.gather(*tasks)


async def test_a_peer_that_has_left_takes_nobodys_turn() -> None:
    tasks, order = await enter_all(Turnstile(per_pass=1), 8)
    await passes(1)
    for task in tasks[3:6]:
        task.cancel()
    _, late = await asyncio.wait(tasks, timeout=5)
    assert not late
    assert order == [0, 1, 2, 6, 7]


async def test_after_a_pause_the_next_handshake_does_not_wait() -> None:
    turnstile = Turnstile(per_pass=1)
    for _ in range(3):
        await asyncio.wait_for(turnstile.enter(), 5)
        await passes(3)
    assert not turnstile._turns
