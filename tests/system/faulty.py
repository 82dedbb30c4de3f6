"""Runs a program of edgeai, until a fault hits it at the n-th commit, sync, send or write.

    python3 -m tests.system.faulty FAULT POINT N MODULE [ARGUMENT …]

| FAULT | |
|---|---|
| `kill` | the process ends as by SIGKILL |
| `power-cut:SEED` | likewise, and the disk of its ledger loses what was not synced; see `disk` |
| `io-error:COUNT` | COUNT writes or syncs of the ledger fail from there on; POINT is `sync` |
| `clock:SECONDS` | the wall clock jumps |

| POINT | the n-th |
|---|---|
| `before-commit`, `after-commit` | commit of the ledger |
| `before-sync`, `after-sync` | sync of a file of the ledger |
| `before-send`, `after-send` | message of a WebSocket |
| `before-write`, `after-write` | request to the Kubernetes API that writes, but for heartbeats |

When the fault hits, this says `FAULT HITS` on stderr: a test that does not see that shows nothing.
"""

import os
import runpy
import signal
import sqlite3
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from aiohttp import ClientSession
from websockets.asyncio.connection import Connection as WebSocket

from common import times
from tests.system.disk import Disk

HITS: Final = "FAULT HITS"
WRITING: Final = ("POST", "PUT", "PATCH", "DELETE")
HEARTBEATS: Final = ("/leases", "/configmaps")


class Countdown:
    """Calls `fault` when `passed` has been called with POINT for the n-th time."""

    def __init__(self, point: str, count: int, fault: Callable[[], None]) -> None:
        self._point, self._left, self._fault = point, count, fault

    def passed(self, point: str) -> None:
        if point != self._point:
            return
        self._left -= 1
        if self._left == 0:
            sys.stderr.write(f"{HITS}\n")
            sys.stderr.flush()
            self._fault()


class Faults:
    """The fault that the command line names, and the disk that it needs."""

    def __init__(self, fault: str, point: str, count: int) -> None:
        name, _, argument = fault.partition(":")
        self._argument = int(argument or 0)
        self._failing = 0  # writes and syncs that fail from now on
        self._jump = timedelta()
        act = {
            "kill": self._kill,
            "power-cut": self._cut_power,
            "io-error": self._fail,
            "clock": self._jump_clock,
        }[name]
        self._countdown = Countdown(point, count, act)
        self._disk = Disk(self._on_sync, self._is_failing)
        if name in ("power-cut", "io-error") or point.endswith("-sync"):
            self._disk.mount()
        if name == "clock":
            self._own_clock()
        self._watch_commits()
        self._watch_sends()
        self._watch_writes()

    # ---- points ---------------------------------------------------------------------------------

    def _on_sync(self, is_done: bool) -> None:
        self._countdown.passed("after-sync" if is_done else "before-sync")

    def _watch_commits(self) -> None:
        passed = self._countdown.passed

        class Connection(sqlite3.Connection):
            def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
                if sql != "COMMIT":
                    return super().execute(sql, *parameters)
                passed("before-commit")
                cursor = super().execute(sql, *parameters)
                passed("after-commit")
                return cursor

        connect = sqlite3.connect

        def connect_watched(*arguments: Any, **named: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = connect(*arguments, **{"factory": Connection, **named})
            return connection

        vars(sqlite3)["connect"] = connect_watched

    def _watch_sends(self) -> None:
        passed, send = self._countdown.passed, WebSocket.send

        async def send_watched(self: WebSocket, *arguments: Any, **named: Any) -> None:
            passed("before-send")
            await send(self, *arguments, **named)
            passed("after-send")

        setattr(WebSocket, "send", send_watched)  # noqa: B010 - a method may not be assigned to

    def _watch_writes(self) -> None:
        passed, request = self._countdown.passed, ClientSession._request

        async def request_watched(
            self: ClientSession, method: str, *args: Any, **named: Any
        ) -> Any:
            if method not in WRITING:
                return await request(self, method, *args, **named)
            passed("before-write")
            answer = await request(self, method, *args, **named)
            passed("after-write")
            return answer

        setattr(ClientSession, "_request", request_watched)  # noqa: B010 - as above

    # ---- faults ---------------------------------------------------------------------------------

    def _kill(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def _cut_power(self) -> None:
        undone = self._disk.cut_power(self._argument)
        sys.stderr.write(f"undone {undone}\n")
        sys.stderr.flush()
        self._kill()

    def _fail(self) -> None:
        self._failing = self._argument

    def _is_failing(self) -> bool:
        if not self._failing:
            return False
        self._failing -= 1
        return True

    def _jump_clock(self) -> None:
        self._jump = timedelta(seconds=self._argument)

    def _own_clock(self) -> None:
        """Before any module of edgeai has taken the clock as a default."""
        utc_now = times.utc_now
        vars(times)["utc_now"] = lambda: utc_now() + self._jump


def main() -> None:
    fault, point, count, module = sys.argv[1:5]
    del sys.argv[1:5]
    Faults(fault, point, int(count))
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
