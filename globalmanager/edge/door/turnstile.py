"""Lets a few handshakes begin in each pass of the event loop.

After a restart thousands of nodes come back at one instant. The server admits them as fast as the
processor can, but between two passes of the loop it serves the open sessions too. So a session
waits for a few handshakes and not for all of them.
"""

import asyncio
from collections import deque


class Turnstile:
    """Args: per_pass: handshakes that begin in one pass of the event loop"""

    def __init__(self, *, per_pass: int) -> None:
        self._per_pass = per_pass
        self._entered = 0  # in this pass
        self._turns: deque[asyncio.Future[None]] = deque()  # the lobby bounds their number
        self._is_scheduled = False

    async def enter(self) -> None:
        """Wait for a turn, first come, first served."""
        if self._entered < self._per_pass and not self._turns:
            self._let_in()
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns.append(turn)
        await turn

    def _let_in(self) -> None:
        self._entered += 1
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._next_pass)

    def _next_pass(self) -> None:
        self._entered, self._is_scheduled = 0, False
        while self._turns and self._entered < self._per_pass:
            turn = self._turns.popleft()
            if not turn.done():  # done: the connection has ended meanwhile
                turn.set_result(None)
                self._let_in()
