"""Knows which processes of a worker may still send a message.

Intake notes each process here before a commit. The ledger settles the counts of a process that may
not speak any more, and of no other process: a process that speaks after its settlement would count
twice. The knowledge is in memory, so after a start each process may still speak.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from common.clock import Clock
from edgeai.ids import Uid, WorkerName
from localcontroller.ledger.attempts import MAX_WORKER_PROCESSES, MaySpeak, may_always_speak

SPEAKS_WITHIN_S: Final = 900.0  # a process that was silent for this time has ended
MAX_SPEAKERS: Final = 2 * MAX_WORKER_PROCESSES  # of one worker; the ledger refuses some of them

WorkerKey = tuple[Uid, WorkerName]


class Speakers:
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
