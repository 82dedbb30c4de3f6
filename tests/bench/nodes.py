"""The process of tests.bench.fleet, from outside: commands go in, answers come out."""

import contextlib
import json
import subprocess
import threading
from collections.abc import Iterator
from queue import Empty, Queue
from typing import Any

from tests.bench.process import DEADLINE_S, start
from tests.support.manager import GlobalManager


class Fleet:
    """Args: count: of nodes; certificates: as tests.bench.certificates gives them"""

    def __init__(self, manager: GlobalManager, count: int, *certificates: str) -> None:
        host, _, port = manager.edge_address.rpartition(":")
        self.count = count
        self.assigned: dict[str, float] = {}  # uid -> time of its assignment
        self._process = start("fleet", host, port, count, *certificates, stdin=subprocess.PIPE)
        self._answers: Queue[dict[str, Any]] = Queue()
        threading.Thread(target=self._listen, name="fleet", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer: dict[str, Any] = json.loads(line)
            if "assigned" in answer:
                self.assigned[answer["assigned"]] = answer["at"]
            else:
                self._answers.put(answer)

    def ask(self, **command: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def answer(self, key: str) -> dict[str, Any]:
        """The next answer, which has `key`."""
        try:
            answer = self._answers.get(timeout=DEADLINE_S)
        except Empty:
            self.ask(tell="late")
            told = self._answers.get(timeout=DEADLINE_S)
            raise SystemExit(f"no {key!r} of the nodes in {DEADLINE_S:g} s: {told}") from None
        assert key in answer, answer
        return answer

    def synced_at(self, count: int = 0) -> float:
        """When so many nodes were synced, all of them if 0: seconds of the monotonic clock."""
        self.ask(synced=count or self.count)
        at: float = self.answer("synced")["at"]
        return at

    def tally(self) -> dict[str, int]:
        self.ask(tell="tally")
        told: dict[str, int] = self.answer("tally")["tally"]
        return told

    def forget(self) -> None:
        self.ask(forget=True)
        self.answer("forgot")

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)


@contextlib.contextmanager
def fleet(manager: GlobalManager, count: int, *certificates: str) -> Iterator[Fleet]:
    nodes = Fleet(manager, count, *certificates)
    try:
        yield nodes
    finally:
        nodes.stop()
