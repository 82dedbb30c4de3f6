"""Runs a program of edgeai, until a fault hits it at the n-th commit, sync, send or write.

    python3 -m tests.system.faulty FAULT POINT N MODULE [ARGUMENT …]

| FAULT | |
|---|---|
| `kill` | the process ends as by SIGKILL |
| `power-cut:SEED` | likewise, and the disk of its ledger loses what was not synced; see `disk` |
| `io-error:COUNT` | COUNT writes or syncs of the ledger fail from there on; POINT is `sync` |
| `clock:SECONDS` | the wall clock jumps |

POINT is `before-`, `sent-` or `after-` and one of these; the fault hits at the n-th.

| | |
|---|---|
| `commit` | commit of the ledger |
| `sync` | sync of a file of the ledger |
| `send` | message of a WebSocket; or `hello`, `assign`, …: one with this frame |
| `write` | request to the Kubernetes API that writes, but for heartbeats |
| `create`, `replace`, `patch`, `delete`, `event` | one of these writes |
| `status` | write of a job's `.status` by its plan |
| `fold` | write of a job's `.status` by a worker's report |

`sent-` is for writes: the API server can read the request, and nothing is known of its answer.
`after-` a message is when the peer can read it; `after-` a write is when its answer has come.

When the fault hits, this says so on stderr, see `hit`: a test that does not look shows nothing.
"""

import asyncio
import json
import os
import runpy
import signal
import sqlite3
import sys
from asyncio import WriteTransport
from collections.abc import Callable
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec
from aiohttp import ClientResponse, ClientSession
from websockets.asyncio.connection import Connection as WebSocket
from websockets.protocol import Protocol

from edgeai import times
from tests.system.disk import Disk

_HITS: Final = "FAULT HITS"
_WRITES: Final = {"POST": "create", "PUT": "replace", "PATCH": "patch", "DELETE": "delete"}
_HEARTBEATS: Final = {"leases", "configmaps"}


def is_hit(log: str) -> bool:
    return _HITS in log


def hit(log: str, point: str) -> str:
    """What the fault hit at this point: a frame, or a method and a path; else the end of the log.

    Args: log: stderr of the process
    Raises: AssertionError, if the fault did not reach this point
    """
    said = f"{_HITS} {point} "
    found = [line.removeprefix(said) for line in log.splitlines() if line.startswith(said)]
    assert found, f"the fault did not reach {point}: {log[-4000:]}"
    return found[0]


def wrapped(module: str, fault: tuple[str, ...], release: tuple[str, ...] = ()) -> list[str]:
    """The arguments of Python that run a program of edgeai.

    Args:
        fault: FAULT, POINT and N; empty: no fault
        release: as which other release it runs, see `next_release`; empty: as this one
    """
    return ["-m", *((__name__, *fault) if fault else ()), *release, module]


class Passage(NamedTuple):
    """What passes a point: the names that POINT may have for it, and what it is about."""

    names: tuple[str, ...]
    about: str


class Countdown:
    """Calls `fault` when `passed` has been called with POINT for the n-th time."""

    def __init__(self, point: str, count: int, fault: Callable[[], None]) -> None:
        self._point, self._left, self._fault = point, count, fault

    def passed(self, when: str, passage: Passage) -> None:
        if self._point not in {f"{when}-{name}" for name in passage.names}:
            return
        self._left -= 1
        if self._left == 0:
            sys.stderr.write(f"{_HITS} {self._point} {passage.about}\n")
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
        self._countdown.passed("after" if is_done else "before", Passage(("sync",), "ledger"))

    def _watch_commits(self) -> None:
        passed, commit = self._countdown.passed, Passage(("commit",), "ledger")

        class Connection(sqlite3.Connection):
            def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
                if sql != "COMMIT":
                    return super().execute(sql, *parameters)
                passed("before", commit)
                cursor = super().execute(sql, *parameters)
                passed("after", commit)
                return cursor

        connect = sqlite3.connect

        def connect_watched(*arguments: Any, **named: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = connect(*arguments, **{"factory": Connection, **named})
            return connection

        vars(sqlite3)["connect"] = connect_watched

    def _watch_sends(self) -> None:
        """A session sends by `send`, or, where nothing has to wait, as `send` does it inside."""
        passed, send = self._countdown.passed, WebSocket.send
        send_binary, send_data = Protocol.send_binary, WebSocket.send_data
        is_inside: ContextVar[bool] = ContextVar("is_inside", default=False)
        written: list[Passage] = []  # since the last call of send_data
        sent: set[asyncio.Task[None]] = set()

        async def send_watched(self: WebSocket, message: Any, *args: Any, **named: Any) -> None:
            passage = _passage_of_message(message)
            passed("before", passage)
            is_inside.set(True)
            try:
                await send(self, message, *args, **named)
            finally:
                is_inside.set(False)
            await _until_sent(self.transport)
            passed("after", passage)

        def send_binary_watched(self: Protocol, data: Any, *args: Any, **named: Any) -> None:
            if not is_inside.get():
                written.append(_passage_of_message(data))
                passed("before", written[-1])
            send_binary(self, data, *args, **named)

        async def after_sent(websocket: WebSocket, passages: list[Passage]) -> None:
            await _until_sent(websocket.transport)
            for passage in passages:
                passed("after", passage)

        def send_data_watched(self: WebSocket) -> None:
            send_data(self)
            if written:
                task = asyncio.create_task(after_sent(self, written.copy()), name="after a message")
                sent.add(task)
                task.add_done_callback(sent.discard)
                written.clear()

        for class_, name, function in (
            (WebSocket, "send", send_watched),
            (WebSocket, "send_data", send_data_watched),
            (Protocol, "send_binary", send_binary_watched),
        ):
            setattr(class_, name, function)

    def _watch_writes(self) -> None:
        passed, request, start = (
            self._countdown.passed,
            ClientSession._request,
            ClientResponse.start,
        )
        under_way: ContextVar[Passage | None] = ContextVar("under_way", default=None)

        async def request_watched(
            self: ClientSession, method: str, url: Any, **named: Any
        ) -> ClientResponse:
            passage = _passage_of_request(method, str(url), named.get("data"))
            if passage is None:
                return await request(self, method, url, **named)
            passed("before", passage)
            under_way.set(passage)
            try:
                answer = await request(self, method, url, **named)
            finally:
                under_way.set(None)
            passed("after", passage)
            return answer

        async def start_watched(self: ClientResponse, connection: Any) -> ClientResponse:
            passage = under_way.get()
            if passage is not None:
                if self._writer is not None:  # a task, as long as the body is not written
                    await asyncio.wait([self._writer])
                await _until_sent(connection.transport)
                passed("sent", passage)
            return await start(self, connection)

        for class_, name, function in (
            (ClientSession, "_request", request_watched),
            (ClientResponse, "start", start_watched),
        ):
            setattr(class_, name, function)

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


async def _until_sent(transport: WriteTransport) -> None:
    """uvloop sends what was written at the end of its turn."""
    while transport.get_write_buffer_size():  # noqa: ASYNC110 - nothing tells when
        await asyncio.sleep(0)


def _passage_of_message(message: Any) -> Passage:
    frame = msgspec.msgpack.decode(message)["frame"] if isinstance(message, bytes) else "text"
    return Passage(("send", frame), frame)


def _passage_of_request(method: str, url: str, body: bytes | None) -> Passage | None:
    """None: it writes nothing."""
    path = urlsplit(url).path
    parts = path.split("/")
    if method not in _WRITES or _HEARTBEATS & set(parts):
        return None
    name = _WRITES[method]
    if parts[-1] == "status":
        name = "fold" if "workers" in json.loads(body or b"{}")["status"] else "status"
    elif parts[-1] == "events":
        name = "event"
    return Passage(("write", name), f"{method} {path}")


def main() -> None:
    fault, point, count, module = sys.argv[1:5]
    del sys.argv[1:5]
    Faults(fault, point, int(count))
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
