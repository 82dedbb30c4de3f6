"""Watches for workers that promised to speak and fell silent.

A worker that is seen dead meanwhile is so only once it has fallen silent: its own word wins.

Heartbeats are kept in memory alone: a message that changes nothing writes nothing. After a
restart every running worker that had promised heartbeats gets a fresh deadline.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

import msgspec

from common.errors import EdgeAIError, Unavailable
from common.ids import Uid, WorkerName
from common.logs import get_logger
from common.wire import WorkerStatus
from localcontroller.ledger.ledger import Ledger
from localcontroller.ledger.tables import NotGranted

log = get_logger(__name__)

RETRY_S: Final = 5.0  # after the ledger could not take that a worker is lost
MAX_SLEEP_S: Final = 3600.0


class Promise(msgspec.Struct, frozen=True):
    """A worker said that it speaks at least every `period_s`."""

    period_s: float
    due_s: float
    """On the monotonic clock."""
    status: WorkerStatus = "lost"
    """What to say of the worker once it has broken the promise."""
    reason: str = ""
    """Why; "": its silence."""


class Heartbeats:
    """Deadlines by worker. `now` is monotonic seconds."""

    def __init__(self, *, silence_factor: float, now: Callable[[], float]) -> None:
        self.silence_factor = silence_factor
        self.changed = asyncio.Event()  # some deadline is earlier than before
        self._now = now
        self._promises: dict[tuple[Uid, WorkerName], Promise] = {}

    def promise(self, uid: Uid, worker: WorkerName, period_s: float) -> None:
        """The worker spoke and promises to do so every `period_s`; 0: promises nothing."""
        if period_s <= 0:
            self.forget(uid, worker)
            return
        due_s = self._now() + period_s * self.silence_factor
        self._set(uid, worker, Promise(period_s, due_s))

    def touch(self, uid: Uid, worker: WorkerName) -> None:
        """The worker spoke; what it promised holds on."""
        known = self._promises.get((uid, worker))
        if known is not None:
            self.promise(uid, worker, known.period_s)

    def forget(self, uid: Uid, worker: WorkerName) -> None:
        self._promises.pop((uid, worker), None)

    def suspect(self, uid: Uid, worker: WorkerName, status: WorkerStatus, reason: str) -> bool:
        """Say this of the worker once its promise is broken; its next word takes that back.

        Returns: False where it has promised nothing
        """
        promise = self._promises.get((uid, worker))
        if promise is None:
            return False
        self._promises[uid, worker] = msgspec.structs.replace(promise, status=status, reason=reason)
        return True

    def postpone(self, uid: Uid, worker: WorkerName, promise: Promise, delay_s: float) -> None:
        """Find `promise` broken again after `delay_s`, unless the worker has spoken since."""
        if (uid, worker) not in self._promises:
            self._set(uid, worker, msgspec.structs.replace(promise, due_s=self._now() + delay_s))

    def take_broken(self) -> list[tuple[Uid, WorkerName, Promise]]:
        """Promises that were broken by now; each is handed out once."""
        now = self._now()
        broken = [(key, p) for key, p in self._promises.items() if p.due_s <= now]
        for key, _ in broken:
            del self._promises[key]
        return [(*key, promise) for key, promise in broken]

    def wait_s(self) -> float:
        """Until the next deadline; 0 when one is over."""
        due_s = min((p.due_s for p in self._promises.values()), default=float("inf"))
        return min(MAX_SLEEP_S, max(0.0, due_s - self._now()))

    def _set(self, uid: Uid, worker: WorkerName, promise: Promise) -> None:
        known = self._promises.get((uid, worker))
        self._promises[uid, worker] = promise
        if known is None or promise.due_s < known.due_s:
            self.changed.set()


async def watch_heartbeats(ledger: Ledger, heartbeats: Heartbeats) -> None:
    """Report workers that break their promise as lost. Runs until cancelled."""
    await _remember(ledger, heartbeats)
    while True:
        heartbeats.changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(heartbeats.wait_s()):
                await heartbeats.changed.wait()
        for uid, worker, promise in heartbeats.take_broken():
            await _report_lost(ledger, heartbeats, uid, worker, promise)


async def _remember(ledger: Ledger, heartbeats: Heartbeats) -> None:
    while True:
        try:
            rows = await ledger.workers()
            break
        except Unavailable as error:
            log.warning("cannot read workers yet", reason=str(error))
            await asyncio.sleep(RETRY_S)
    for row in rows:
        if row.worker.status == "running":
            heartbeats.promise(row.uid, row.name, row.worker.heartbeat_s)


async def _report_lost(
    ledger: Ledger, heartbeats: Heartbeats, uid: Uid, worker: WorkerName, promise: Promise
) -> None:
    silent_s = promise.period_s * heartbeats.silence_factor
    reason = promise.reason or f"no heartbeat for {silent_s:g} s"
    try:
        known = await ledger.observe(uid, worker, promise.status, reason)
    except NotGranted:
        return  # its task was withdrawn
    except EdgeAIError as error:
        log.warning("cannot note lost worker yet", uid=uid, worker=worker, reason=str(error))
        heartbeats.postpone(uid, worker, promise, RETRY_S)
        return
    if known.reason == reason:
        log.warning("worker lost", uid=uid, worker=worker, silent_s=silent_s, status=known.status)
