"""Messages of workers on their way to the ledger: coalesced and paced, worker by worker.

Used by the worker API. What one worker says while its last commit is young waits and becomes
one commit, so a worker that talks without pause costs no more than one that talks a few times
a second. A final state does not wait.
"""

import asyncio
import contextlib
from collections import OrderedDict
from typing import Final

from common.errors import Overloaded, Unavailable
from common.ids import Uid, WorkerName
from common.wire import TERMINAL
from localcontroller.ledger.attempts import MAX_PROCESSES, Message
from localcontroller.ledger.ledger import Ledger, Recorded

COMMIT_INTERVAL_S: Final = 0.2  # between two commits of one worker
MAX_PACED: Final = 4096  # workers whose last commit is remembered

WorkerKey = tuple[Uid, WorkerName]


class Intake:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._open: dict[WorkerKey, _Slot] = {}
        self._last_s: OrderedDict[WorkerKey, float] = OrderedDict()  # when a commit began

    async def record(self, uid: Uid, worker: WorkerName, message: Message) -> Recorded:
        """What became of `message`, or of a newer one of its process, after the commit.

        Raises: NotGranted, Unavailable
        """
        key = (uid, worker)
        slot = self._open.get(key)
        if slot is None:
            slot = self._open[key] = _Slot()
            slot.add(message)
            await self._commit(key, slot)
        else:
            slot.add(message)
        return (await asyncio.shield(slot.done))[message.instance]

    async def _commit(self, key: WorkerKey, slot: "_Slot") -> None:
        """Whoever came first commits for all; later ones find the slot gone and open the next."""
        try:
            messages = await self._collect(key, slot)
            recorded = await self._ledger.record(*key, messages)
        except BaseException as error:
            slot.fail(error)
            raise
        slot.done.set_result(dict(zip(slot.messages, recorded, strict=True)))

    async def _collect(self, key: WorkerKey, slot: "_Slot") -> list[Message]:
        try:
            await self._pause(key, slot)
        finally:
            del self._open[key]
        return list(slot.messages.values())

    async def _pause(self, key: WorkerKey, slot: "_Slot") -> None:
        now = asyncio.get_running_loop().time()
        wait_s = self._last_s.get(key, -COMMIT_INTERVAL_S) + COMMIT_INTERVAL_S - now
        if wait_s > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await slot.has_final.wait()
        self._last_s[key] = asyncio.get_running_loop().time()
        self._last_s.move_to_end(key)
        while len(self._last_s) > MAX_PACED:
            self._last_s.popitem(last=False)


class _Slot:
    """Messages of one worker that go into its next commit, and the fate they share."""

    def __init__(self) -> None:
        self.messages: dict[str, Message] = {}  # newest by process
        self.has_final = asyncio.Event()
        self.done: asyncio.Future[dict[str, Recorded]] = asyncio.Future()

    def add(self, message: Message) -> None:
        """Raises: Overloaded"""
        waiting = self.messages.get(message.instance)
        if waiting is None and len(self.messages) >= MAX_PROCESSES:
            raise Overloaded("the queue of this worker", COMMIT_INTERVAL_S)
        if waiting is None or _is_newer(message, waiting):
            self.messages[message.instance] = message
        if message.status in TERMINAL:
            self.has_final.set()

    def fail(self, error: BaseException) -> None:
        if not isinstance(error, Exception):  # the first caller was cancelled, the others were not
            error = Unavailable("the LocalController is stopping")
        self.done.set_exception(error)
        self.done.exception()  # there may be no other caller to look at it


def _is_newer(message: Message, waiting: Message) -> bool:
    if waiting.status in TERMINAL:
        return False
    if message.sequence is None or waiting.sequence is None:
        return True
    return message.sequence > waiting.sequence
