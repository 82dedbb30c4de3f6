"""The three replicas of the soak: which of them lives, and one killed every so often.

`NAMES[2]` alone is killed after the first third. So the growth of the others is measured in the
second half, and they are no longer new then: a replica takes its memory in its first five minutes.
"""

import asyncio
import itertools
import signal
import time
from typing import Final

from tests.support.client import Client
from tests.support.manager import GlobalManager

NAMES: Final = ("east", "middle", "west")
KILLS: Final = 15  # in the whole run
LEAST_PAUSE_S: Final = 40.0
LEADERS_UNTIL: Final = 1 / 3  # of the run
FOLLOWED_S: Final = 30.0
POLL_S: Final = 0.05


class Replicas:
    def __init__(
        self, client: Client, system_namespace: str, managers: dict[str, GlobalManager]
    ) -> None:
        self._client = client
        self._lease = (
            f"/apis/coordination.k8s.io/v1/namespaces/{system_namespace}"
            "/leases/edgeai-globalmanager"
        )
        self._managers = managers
        self._dead: set[str] = set()
        self.kills = 0
        self.takeovers_s: list[float] = []

    def alive(self) -> list[tuple[str, int, int]]:
        """Name, pid and open sessions of each replica that answers."""
        found = []
        for name, manager in self._managers.items():
            if name in self._dead:
                continue
            try:
                sessions = manager.metric("edgeai_edge_sessions").get("", 0.0)
            except OSError:
                continue
            found.append((name, manager.pid, int(sessions)))
        return found

    async def kill_now_and_then(self, seconds: float) -> None:
        """The leader and another replica in turn; one replica alone after the first third."""
        begin_s = time.monotonic()
        pause_s = max(LEAST_PAUSE_S, seconds / KILLS)
        for number in itertools.count(1):
            await asyncio.sleep(max(0.0, begin_s + number * pause_s - time.monotonic()))
            if number * pause_s > seconds * LEADERS_UNTIL:
                victim = NAMES[2]
            elif number % 2:
                victim = await asyncio.to_thread(self._leader)
            else:
                victim = NAMES[2]
            await asyncio.to_thread(self._kill, victim)

    def _leader(self) -> str:
        holder = str(self._client.get(self._lease)["spec"].get("holderIdentity") or "")
        return holder.rpartition("_")[0]

    def _kill(self, victim: str) -> None:
        """SIGKILL, and start it again: where it led, once another replica leads."""
        is_leader = self._leader() == victim
        self._dead.add(victim)
        killed_s = time.monotonic()
        self._managers[victim].stop(signal.SIGKILL)
        self.kills += 1
        if is_leader:
            while self._leader() == victim:
                if time.monotonic() - killed_s > 2 * FOLLOWED_S:
                    raise AssertionError(f"nobody follows {victim}")
                time.sleep(POLL_S)
            self.takeovers_s.append(round(time.monotonic() - killed_s, 2))
        self._managers[victim].start()
        self._dead.discard(victim)
