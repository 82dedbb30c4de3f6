"""The process of tests.bench.fleet, from outside: commands go in, answers come out."""

import contextlib
import json
import subprocess
from collections.abc import Iterator
from queue import Empty, Queue
from typing import Any

from tests.bench.manager_memory import settled_kib
from tests.bench.process import DEADLINE_S, Teller
from tests.support.manager import GlobalManager


class Fleet(Teller):
    """Args: count: of nodes; certificates: as tests.bench.certificates gives them"""

    def __init__(self, manager: GlobalManager, count: int, *certificates: str) -> None:
        host, _, port = manager.edge_address.rpartition(":")
        self.count = count
        self.assigned: dict[str, float] = {}  # uid -> time of its assignment
        self._answers: Queue[dict[str, Any]] = Queue()
        super().__init__("fleet", host, port, count, *certificates, stdin=subprocess.PIPE)

    def _on_news(self, news: Any) -> None:
        if "assigned" in news:
            self.assigned[news["assigned"]] = news["at"]
        else:
            self._answers.put(news)

    def _ask(self, **command: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        try:
            return self._answers.get(timeout=DEADLINE_S)
        except Empty:
            raise SystemExit(f"no answer to {command} in {DEADLINE_S:g} s") from None

    def synced_at(self, count: int = 0) -> float:
        """When so many nodes were synced, all of them if 0: seconds of the monotonic clock."""
        at: float = self._ask(synced=count or self.count)["at"]
        return at

    def report(
        self, seconds: float, *, every_s: float, of: int, ending: int, evenly: bool
    ) -> dict[str, Any]:
        """Let nodes report, as `fleet` has it. Returns: the answer"""
        return self._ask(reporting=seconds, every=every_s, of=of, ending=ending, evenly=evenly)


@contextlib.contextmanager
def weighed(
    manager: GlobalManager, count: int, *certificates: str
) -> Iterator[tuple[Fleet, float]]:
    """Nodes that are synced, and how much memory the GlobalManager has for each, in KiB."""
    before_kib = settled_kib(manager)
    with Fleet(manager, count, *certificates) as nodes:
        nodes.synced_at()
        yield nodes, round((settled_kib(manager) - before_kib) / count, 1)
