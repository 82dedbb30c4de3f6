"""Reports a worker as lost when it promised heartbeats and then became silent.

The pod watch may see a worker dead while its messages still arrive. Then the worker's own messages
win: the verdict of the pod watch is reported only after the worker's deadline has passed.

Deadlines are kept in memory only, so a heartbeat that changes nothing writes nothing. After a
restart every running worker that had promised heartbeats gets a new deadline.
"""

import asyncio
from typing import Final

import msgspec

from common.clock import Clock
from common.logs import get_logger
from common.tasks import wait_at_most
from common.wire import WorkerStatus
from edgeai.errors import EdgeAIError, Unavailable
from edgeai.ids import Uid, WorkerName
from localcontroller.ledger.ledger import Ledger
from localcontroller.ledger.tables import NotGranted

log = get_logger(__name__)

RETRY_S: Final = 5.0  # from a failed ledger operation to the next try
MAX_SLEEP_S: Final = 3600.0


class Deadline(msgspec.Struct, frozen=True):
    """When the next message of a worker is due. The worker promised a message each `period_s`."""

    period_s: float
    due_s: float
    """Seconds on the monotonic clock."""
    status: WorkerStatus = "lost"
    """Status that the worker gets when the deadline passes."""
    reason: str = ""
    """Reason for `status`; "": the worker's silence."""


class Heartbeats:
    """Deadlines by worker."""

    def __init__(self, *, silence_factor: float, clock: Clock) -> None:
        self.silence_factor = silence_factor
        self.news = asyncio.Event()  # set when a deadline is new, or earlier than before
        self._clock = clock
        self._deadlines: dict[tuple[Uid, WorkerName], Deadline] = {}

    def expect(self, uid: Uid, worker: WorkerName, period_s: float) -> None:
        """The worker sent a message and promises the next within `period_s`; 0: no promise."""
        if period_s <= 0:
            self.forget(uid, worker)
            return
        due_s = self._clock.elapsed() + period_s * self.silence_factor
        self._set(uid, worker, Deadline(period_s, due_s))

    def renew(self, uid: Uid, worker: WorkerName) -> None:
        """The worker sent a message; the period that it promised stays."""
        deadline = self._deadlines.get((uid, worker))
        if deadline is not None:
            self.expect(uid, worker, deadline.period_s)

    def forget(self, uid: Uid, worker: WorkerName) -> None:
        self._deadlines.pop((uid, worker), None)

    def suspect(self, uid: Uid, worker: WorkerName, status: WorkerStatus, reason: str) -> bool:
        """Give the worker this status when its deadline passes. A message before that cancels this.

        Returns: False if the worker has no deadline
        """
        deadline = self._deadlines.get((uid, worker))
        if deadline is None:
            return False
        self._deadlines[uid, worker] = msgspec.structs.replace(
            deadline, status=status, reason=reason
        )
        return True

    def postpone(self, uid: Uid, worker: WorkerName, deadline: Deadline, delay_s: float) -> None:
        """Let `deadline` pass again after `delay_s`, unless the worker has a newer deadline."""
        if (uid, worker) not in self._deadlines:
            self._set(
                uid,
                worker,
                msgspec.structs.replace(deadline, due_s=self._clock.elapsed() + delay_s),
            )

    def take_missed(self) -> list[tuple[Uid, WorkerName, Deadline]]:
        """Remove and return the deadlines that have passed."""
        now = self._clock.elapsed()
        overdue = [item for item in self._deadlines.items() if item[1].due_s <= now]
        for key, _ in overdue:
            del self._deadlines[key]
        return [(*key, deadline) for key, deadline in overdue]

    def wait_s(self) -> float:
        """Seconds until the next deadline; 0 if a deadline has passed."""
        due_s = min((deadline.due_s for deadline in self._deadlines.values()), default=float("inf"))
        return min(MAX_SLEEP_S, max(0.0, due_s - self._clock.elapsed()))

    def _set(self, uid: Uid, worker: WorkerName, deadline: Deadline) -> None:
        old = self._deadlines.get((uid, worker))
        self._deadlines[uid, worker] = deadline
        if old is None or deadline.due_s < old.due_s:
            self.news.set()


async def watch_heartbeats(
    ledger: Ledger, heartbeats: Heartbeats, *, retry_s: float = RETRY_S
) -> None:
    """Report each worker that misses its deadline as lost. Runs until cancelled."""
    await _load_deadlines(ledger, heartbeats, retry_s)
    while True:
        heartbeats.news.clear()
        await wait_at_most(heartbeats.wait_s(), heartbeats.news)
        for uid, worker, deadline in heartbeats.take_missed():
            try:
                await _report_lost(ledger, heartbeats, uid, worker, deadline)
            except EdgeAIError as error:
                log.warning(
                    "cannot record lost worker, retrying", uid=uid, worker=worker, reason=str(error)
                )
                heartbeats.postpone(uid, worker, deadline, retry_s)


async def _load_deadlines(ledger: Ledger, heartbeats: Heartbeats, retry_s: float) -> None:
    """Give every running worker of the ledger a new deadline."""
    while True:
        try:
            rows = await ledger.workers()
            break
        except Unavailable as error:
            log.warning("cannot read workers, retrying", reason=str(error))
            await asyncio.sleep(retry_s)
    for row in rows:
        if row.worker.status == "running":
            heartbeats.expect(row.uid, row.name, row.worker.heartbeat_s)


async def _report_lost(
    ledger: Ledger, heartbeats: Heartbeats, uid: Uid, worker: WorkerName, deadline: Deadline
) -> None:
    """Raises: EdgeAIError if the ledger cannot record the loss now"""
    silent_s = deadline.period_s * heartbeats.silence_factor
    reason = deadline.reason or f"no heartbeat for {silent_s:g} s"
    try:
        state = await ledger.observe(uid, worker, deadline.status, reason)
    except NotGranted:
        return  # the worker's task was withdrawn
    if state.reason == reason:
        log.warning("worker lost", uid=uid, worker=worker, silent_s=silent_s, status=state.status)
