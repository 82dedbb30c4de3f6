"""Answers of the Kubernetes API about credentials and rights, each remembered for a short time.

A key is a hash, so memory holds no token. Callers that ask the same at one moment share an answer.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

from common.clock import Clock
from edgeai.newest import NewestKeys

T = TypeVar("T")


class Answer(NamedTuple, Generic[T]):
    """An answer, and the number of seconds for which it is remembered."""

    value: T
    keep_s: float


class Remembered(Generic[T]):
    """Args: size: largest number of remembered answers; the oldest is forgotten first"""

    def __init__(self, size: int, clock: Clock) -> None:
        self._clock = clock
        self._answers = NewestKeys[bytes, tuple[T, float]](size)
        self._under_way: dict[bytes, asyncio.Event] = {}  # questions that have no answer yet

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: bytes) -> T | None:
        entry = self._answers.get(key)
        return entry[0] if entry is not None and self._clock.elapsed() < entry[1] else None

    def put(self, key: bytes, answer: Answer[T]) -> None:
        self._answers[key] = answer.value, self._clock.elapsed() + answer.keep_s

    async def answer(self, key: bytes, ask: Callable[[], Awaitable[Answer[T]]]) -> T:
        """The remembered answer, or else the answer of `ask`. Raises: what `ask` raises"""
        while (value := self.get(key)) is None:
            end = self._under_way.get(key)
            if end is None:
                return await self._ask(key, ask)
            await end.wait()
        return value

    async def _ask(self, key: bytes, ask: Callable[[], Awaitable[Answer[T]]]) -> T:
        end = self._under_way[key] = asyncio.Event()
        try:
            answer = await ask()
            self.put(key, answer)
        finally:  # after a failed or cancelled question, the next waiting caller asks
            del self._under_way[key]
            end.set()
        return answer.value
