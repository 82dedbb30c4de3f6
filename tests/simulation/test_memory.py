"""Jobs that come, report and go leave no entry behind in any collection of edgeai's programs.

The soak (tests/soak) measures the memory of real programs. This test finds what grows in them by an
entry for each job, however small the entry is.
"""

import gc
import sqlite3
import types
from collections import Counter, deque
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from globalmanager.cache.shared import SharedValues
from localcontroller.ledger.attempts import ProcessMessage
from localcontroller.workers.intake import SPEAKS_WITHIN_S
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.driver import quiet_python
from tests.simulation.world import VirtualTime

LIFE_S: Final = 20.0
PAUSE_S: Final = 0.5
REPORTS_S: Final = (3.0, 6.0, 9.0)
LONGEST_S: Final = SPEAKS_WITHIN_S + LIFE_S  # nothing is remembered for longer than this
SOME: Final = 5  # entries that come and go: timers, requests under way, tasks
_OURS: Final = ("globalmanager.", "localcontroller.", "common.")
_ATOMS: Final = (str, bytes, int, float, types.NoneType)
_SHARED: Final = (types.ModuleType, type, types.FunctionType)
# A connection has some hundred references to cursors and statements; tests/globalmanager/cache
# checks the bound of the texts.
_BOUNDED: Final = (sqlite3.Connection, SharedValues)


class Life:
    """Two replicas and two nodes, and jobs that live for LIFE_S."""

    def __init__(self) -> None:
        self.world = VirtualTime(seed=1)
        self.cluster = SimulatedCluster(self.world, replicas=2, nodes=2)
        self.cluster.api.on_write = lambda *_: None  # the oracle would remember all jobs
        self.cluster.network.on_connection = lambda _: None
        self.number = 0
        self.run_for(60.0)

    def run_for(self, seconds: float) -> None:
        end = self.world.now + seconds
        while self.world.now + self.world.next_event_s() <= end:
            self.world.step()
        self.world.now = end

    def live(self, jobs: int) -> None:
        """Let so many jobs come and go. The last of them comes after a long time."""
        for _ in range(jobs - 2):
            self._begin_job()
            self.run_for(PAUSE_S)
        self.run_for(LONGEST_S)
        for _ in range(2):  # one for each node: what is old is forgotten when something new comes
            self._begin_job()
        self.run_for(2 * LIFE_S)

    def _begin_job(self) -> None:
        self.number += 1
        name, node = f"job-{self.number}", f"edge{self.number % 2}"
        self.cluster.create_job(name, node)
        for sequence, after_s in enumerate(REPORTS_S, start=1):
            self.world.after(after_s, partial(self._report, name, node, sequence))
        self.world.after(LIFE_S, lambda: self.cluster.delete_job(name))

    def _report(self, name: str, node: str, sequence: int) -> None:
        controller = self.cluster.controllers[node]
        for uid, worker in controller.granted():
            if worker == f"{name}-edge":
                message = ProcessMessage(
                    instance="process",
                    sequence=sequence,
                    phase="inference",
                    status="running",
                    heartbeat_s=0.0,
                    counts={"seen": sequence},
                    numbers={},
                    details={},
                )
                controller.post(uid, worker, message, lambda: None)
                return
        raise AssertionError(f"{node} has no task for {name} to report about")

    def entries(self) -> Counter[tuple[str, str]]:
        """(program, class.attribute) -> number of entries of the collections there."""
        gc.collect()
        found: Counter[tuple[str, str]] = Counter()
        for name, manager in self.cluster.managers.items():
            found.update({(name, where): n for where, n in entries_of(manager.core).items()})
        for name, each in self.cluster.controllers.items():
            for part in (each.link, each.intake, each.ledger):
                found.update({(name, where): n for where, n in entries_of(part).items()})
        return found


def entries_of(root: Any) -> Counter[str]:
    found: Counter[str] = Counter()
    seen: set[int] = set()
    waiting: list[tuple[Any, str]] = [(root, "")]
    while waiting:
        each, where = waiting.pop()
        is_model = type(each).__module__.startswith("tests.")
        if id(each) in seen or is_model or isinstance(each, (*_ATOMS, *_SHARED, *_BOUNDED)):
            continue
        seen.add(id(each))
        if isinstance(each, dict | list | set | frozenset | deque | tuple):
            found[where] += len(each)
        waiting += parts_of(each, where)
    return found


def parts_of(each: Any, where: str) -> Iterator[tuple[Any, str]]:
    """What an object refers to, and which attribute of our classes leads there."""
    type_ = type(each)
    if isinstance(each, dict):
        yield from ((part, where) for pair in each.items() for part in pair)
    elif hasattr(each, "__dict__") and type_.__module__.startswith(_OURS):
        yield from ((part, f"{type_.__name__}.{name}") for name, part in vars(each).items())
    else:
        yield from ((part, where) for part in gc.get_referents(each))


def test_jobs_that_come_and_go_leave_no_entry_behind() -> None:
    with quiet_python() as bugs:
        life = Life()
        life.live(20)
        before = life.entries()
        life.live(40)
        after = life.entries()
        life.cluster.close()
    assert not bugs
    grown = {where: (before[where], n) for where, n in after.items() if n > before[where] + SOME}
    assert grown == {}
