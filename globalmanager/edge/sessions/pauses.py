"""Pauses between two writes about one object, while many objects are written.

A thousand workers that report ten times a second would keep the API server busy with values that
nobody has read yet. So the inbox writes an object at most once in a pause, and then the newest
reports. With few objects the pause is so short that nobody notices.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from edgeai.ids import Uid

K = TypeVar("K")

# A value is at most 2 s old: it leaves its node after at most 0.3 s (localcontroller.link.pacing),
# waits for this time, and has the rest for the way to the API server and to a watch.
LONGEST_S: Final = 1.4
# Writes per second about all objects together, up to which the pauses are shorter than LONGEST_S.
WRITES_PER_S: Final = 100.0


class Pauses(Generic[K]):
    """The objects in a pause, and the keys of reports that wait for its end.

    Args: resume: called with each key that was held, at the end of the pause
    """

    def __init__(self, resume: Callable[[K], None]) -> None:
        self._resume = resume
        self._queues: dict[Uid, dict[K, None]] = {}
        # Keys that have waited. They are written together, although the first of them begins the
        # next pause.
        self._released: set[K] = set()

    def begin(self, uid: Uid) -> None:
        """A write about the object begins. During a pause this call does nothing."""
        if uid in self._queues:
            return
        self._queues[uid] = {}
        seconds = min(LONGEST_S, len(self._queues) / WRITES_PER_S)
        asyncio.get_running_loop().call_later(seconds, self._end, uid)

    def hold(self, uid: Uid, key: K, *, is_urgent: bool) -> bool:
        """Returns: whether the key has to wait until `resume` is called with it"""
        was_released = key in self._released
        self._released.discard(key)
        queue = self._queues.get(uid)
        if queue is None or was_released or is_urgent:
            return False
        queue[key] = None
        return True

    def release(self, uid: Uid, key: K) -> bool:
        """Let the key wait no longer. Returns: whether it was held; then `resume` is not called"""
        queue = self._queues.get(uid, {})
        if key not in queue:
            return False
        del queue[key]
        return True

    def _end(self, uid: Uid) -> None:
        queue = self._queues.pop(uid)
        self._released.update(queue)
        for key in queue:
            self._resume(key)
