"""Coalesces the messages of each worker and limits how often the ledger commits them.

The worker API uses Intake. A message is committed at once while the node has few messages. The
first message of a worker in COMMIT_INTERVAL_S is always committed at once, and the node has
EARLY_COMMITS_PER_S further commits a second, whichever workers use them. When these are used up, a
worker's messages wait for the end of its COMMIT_INTERVAL_S and share the next commit. So a worker
that sends without pause costs a bounded number of commits. A final state does not wait.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from common.clock import Clock, LoopClock
from common.ratelimit import TokenBucket
from common.tasks import wait_at_most
from common.wire import TERMINAL
from edgeai.errors import Overloaded, Unavailable
from edgeai.ids import Uid, WorkerName
from localcontroller.ledger.attempts import (
    MAX_WORKER_PROCESSES,
    MaySpeak,
    ProcessMessage,
    may_always_speak,
)
from localcontroller.ledger.ledger import Ledger, RecordedMessage
from localcontroller.ledger.outbox import WorkerKey

COMMIT_INTERVAL_S: Final = 0.2  # between two commits of one worker while the node is busy
EARLY_COMMITS_PER_S: Final = 50  # of the node, within the interval of the worker
MAX_WAITING_PROCESSES: Final = 32  # of one worker, with messages that share a commit


SPEAKS_WITHIN_S: Final = 900.0  # a process that was silent for this time has ended
MAX_SPEAKERS: Final = 2 * MAX_WORKER_PROCESSES  # of one worker; the ledger refuses some of them


class Speakers:
    """Knows which processes of a worker may still send a message.

    The ledger settles the counts of a process that may not speak any more, and of no other process:
    a process that speaks after its settlement would count twice. The knowledge is in memory, so
    after a start each process may still speak.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started_s = clock.elapsed()
        # The last message of each process, by instance. The worker that spoke last is at the end.
        self._last_s: OrderedDict[WorkerKey, dict[str, float]] = OrderedDict()

    def note(self, worker: WorkerKey, instances: Iterable[str]) -> MaySpeak:
        """Note that these processes have sent a message. Returns: which processes may speak"""
        now = self._clock.elapsed()
        since_s = now - SPEAKS_WITHIN_S
        last_s = self._last_s.pop(worker, {})
        spoke = {instance: at for instance, at in last_s.items() if at >= since_s}
        for instance in instances:
            spoke.pop(instance, None)
            spoke[instance] = now  # at the end, so the first one was silent for the longest time
        while len(spoke) > MAX_SPEAKERS:
            del spoke[next(iter(spoke))]
        self._last_s[worker] = spoke
        while all(at < since_s for at in next(iter(self._last_s.values())).values()):
            self._last_s.popitem(last=False)
        if since_s < self._started_s:
            return may_always_speak
        return frozenset(spoke).__contains__


class Intake:
    """
    Args:
        interval_s: time between two commits of one worker when no early commit is left
        early_per_s: early commits a second; as many may come at once, at least one
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        interval_s: float = COMMIT_INTERVAL_S,
        early_per_s: float = EARLY_COMMITS_PER_S,
    ) -> None:
        self._ledger = ledger
        self._interval_s = interval_s
        self._early = TokenBucket(
            qps=early_per_s, burst=max(1, int(early_per_s)), max_wait_s=0.0, part="early commits"
        )
        self._open: dict[WorkerKey, _Batch] = {}  # batches that still take messages
        self._last_s: OrderedDict[WorkerKey, float] = OrderedDict()  # when the last commit began
        self._speakers = Speakers(LoopClock())

    async def record(
        self, uid: Uid, worker: WorkerName, message: ProcessMessage
    ) -> RecordedMessage:
        """Commit `message`, or a newer message of the same process that came before the commit.

        Raises: NotGranted, Unavailable
        """
        key = WorkerKey(uid, worker)
        batch = self._open.get(key)
        if batch is None:
            batch = self._open[key] = _Batch()
            batch.add(message)
            await self._commit(key, batch)
        else:
            batch.add(message)
        return (await asyncio.shield(batch.outcome))[message.instance]

    async def _commit(self, key: WorkerKey, batch: "_Batch") -> None:
        """Runs in the first caller of a batch and commits for all of its callers.

        The batch is closed before the commit begins, so a later caller opens a new batch.
        """
        try:
            messages = await self._collect(key, batch)
            may_speak = self._speakers.note(key, list(batch.messages))
            recorded = await self._ledger.record(*key, messages, may_speak=may_speak)
        except BaseException as error:
            batch.fail(error)
            raise
        batch.outcome.set_result(dict(zip(batch.messages, recorded, strict=True)))

    async def _collect(self, key: WorkerKey, batch: "_Batch") -> list[ProcessMessage]:
        try:
            await self._pause(key, batch)
        finally:
            del self._open[key]
        return list(batch.messages.values())

    async def _pause(self, key: WorkerKey, batch: "_Batch") -> None:
        now = asyncio.get_running_loop().time()
        wait_s = self._last_s.get(key, -self._interval_s) + self._interval_s - now
        if wait_s > 0 and not self._early.admits(now):
            await wait_at_most(wait_s, batch.has_final)
        self._note_commit(key, asyncio.get_running_loop().time())

    def _note_commit(self, key: WorkerKey, now: float) -> None:
        """Remember the commit for one interval: workers of past tasks take no memory."""
        self._last_s[key] = now
        self._last_s.move_to_end(key)
        while next(iter(self._last_s.values())) + self._interval_s < now:
            self._last_s.popitem(last=False)


class _Batch:
    """The messages of one worker that share its next commit. They succeed or fail together."""

    def __init__(self) -> None:
        # The newest message of each process, by instance.
        self.messages: dict[str, ProcessMessage] = {}
        self.has_final = asyncio.Event()
        self.outcome: asyncio.Future[dict[str, RecordedMessage]] = asyncio.Future()

    def add(self, message: ProcessMessage) -> None:
        """Raises: Overloaded"""
        predecessor = self.messages.get(message.instance)
        if predecessor is None and len(self.messages) >= MAX_WAITING_PROCESSES:
            raise Overloaded("the queue of this worker", COMMIT_INTERVAL_S)
        if predecessor is None or _is_newer(message, predecessor):
            self.messages[message.instance] = message
        if message.status in TERMINAL:
            self.has_final.set()

    def fail(self, error: BaseException) -> None:
        if not isinstance(error, Exception):  # only the first caller was cancelled
            error = Unavailable("the LocalController is stopping")
        self.outcome.set_exception(error)
        self.outcome.exception()  # without other callers asyncio would log it as never retrieved


def _is_newer(message: ProcessMessage, older: ProcessMessage) -> bool:
    if older.status in TERMINAL:
        return False
    if message.sequence is None or older.sequence is None:
        return True
    return message.sequence > older.sequence
