"""The ledger against a model of it: any order of frames, messages, acks, restarts and crashes."""

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from common import wire
from edgeai.ids import Uid, WorkerName
from localcontroller.ledger.attempts import ProcessMessage
from localcontroller.ledger.ledger import Ledger
from localcontroller.ledger.outbox import Outgoing, ReportAcked
from localcontroller.ledger.tables import NotGranted
from tests.localcontroller.builders import (
    assign,
    body,
    key,
    report_of,
    synced,
    withdraw,
    worker_message,
)

NAMES = st.sampled_from(["digits", "faces"])
GENERATIONS = st.sampled_from(["old", "new"])  # of an object that is deleted and created again
WORKERS = st.sampled_from(["edge-0", "edge-1"])
INSTANCES = st.sampled_from(["a", "b", "c"])
STATUSES = st.sampled_from(["running", "running", "completed", "failed"])
SMALL = st.integers(0, 5)
MESSAGES = st.builds(
    lambda seen, instance, sequence, status: worker_message(
        seen, instance=instance, sequence=sequence, status=status
    ),
    SMALL,
    INSTANCES,
    SMALL,
    STATUSES,
)

T = TypeVar("T")

TEMPORARY = Path(tempfile.gettempdir())


def worker_totals(worker: dict[str, Any]) -> int:
    return sum(seen for seen, _ in worker["processes"].values())


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(dir=TEMPORARY, prefix="ledger-"))
        self.loop = asyncio.new_event_loop()
        self.directory = self.home / "0"
        self.ledger = self.open()
        self.tasks: dict[str, tuple[str, int]] = {}
        self.workers: dict[tuple[str, str], dict[str, Any]] = {}
        self.sent: list[Outgoing] = []
        self.assign("digits", "old", 1)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(coroutine)

    def open(self) -> Ledger:
        return self.run(Ledger.open(self.directory, reserve_bytes=4096))

    def teardown(self) -> None:
        self.run(self.ledger.close())
        self.loop.close()
        shutil.rmtree(self.home)

    def apply(self, frame: Any) -> None:
        assert self.run(self.ledger.apply([frame])) == [""]

    def drop(self, name: str) -> None:
        uid, _ = self.tasks.pop(name)
        for worker in self.workers_of(uid):
            worker["owed"] = False
            if worker["status"] == "running":
                worker["status"] = "lost"

    def workers_of(self, uid: str) -> list[dict[str, Any]]:
        return [worker for key_, worker in self.workers.items() if key_[0] == uid]

    @rule(name=NAMES, generation=GENERATIONS, version=st.integers(1, 4))
    def assign(self, name: str, generation: str, version: int) -> None:
        uid = f"{name}-{generation}"
        self.apply(assign(name, uid=uid, version=version, body_=body("edge-0", "edge-1")))
        held = self.tasks.get(name)
        if held is not None and held[0] == uid and held[1] >= version:
            return
        if held is not None and held[0] != uid:
            self.drop(name)
        returns = held is None or held[0] != uid
        for worker in self.workers_of(uid):
            if returns:
                worker["owed"] = worker["status"] in wire.TERMINAL
            elif worker["status"] != "lost":
                # Another node may have had the worker in between, and reported it.
                worker["owed"] = True
        self.tasks[name] = (uid, version)

    @rule(name=NAMES, generation=GENERATIONS)
    def withdraw(self, name: str, generation: str) -> None:
        uid = f"{name}-{generation}"
        self.apply(withdraw(name, uid=uid))
        if name in self.tasks and self.tasks[name][0] == uid:
            self.drop(name)

    @precondition(lambda self: len(self.tasks) == 2)
    @rule(names=st.sets(NAMES, min_size=1))
    def synced(self, names: set[str]) -> None:
        self.apply(synced(*names))
        for name in self.tasks.keys() - names:
            self.drop(name)

    @rule(name=NAMES, worker=WORKERS)
    def record_without_right(self, name: str, worker: str) -> None:
        uid = f"{name}-{'old' if self.tasks.get(name, ('',))[0].endswith('new') else 'new'}"
        if (name, uid) not in {(n, u) for n, (u, _) in self.tasks.items()}:
            with pytest.raises(NotGranted):
                self.run(self.ledger.record(Uid(uid), WorkerName(worker), [worker_message()]))

    @precondition(lambda self: self.tasks)
    @rule(data=st.data(), worker=WORKERS, message=MESSAGES)
    def record(self, data: st.DataObject, worker: str, message: ProcessMessage) -> None:
        uid, _ = self.tasks[data.draw(st.sampled_from(sorted(self.tasks)))]
        self.run(self.ledger.record(Uid(uid), WorkerName(worker), [message]))
        self.hear(self.workers.setdefault((uid, worker), {"processes": {}}), message)

    @precondition(lambda self: self.tasks)
    @rule(data=st.data(), worker=WORKERS, messages=st.lists(MESSAGES, min_size=2, max_size=6))
    def record_many(self, data: st.DataObject, worker: str, messages: list[ProcessMessage]) -> None:
        for message in messages:
            self.record(data, worker, message)

    def hear(self, worker: dict[str, Any], message: ProcessMessage) -> None:
        before = dict(worker, processes=dict(worker["processes"]))
        processes = worker["processes"]
        known = processes.get(message.instance)
        if known is None:
            worker["current"] = message.instance
            worker["status"] = message.status
        is_current = worker["current"] == message.instance
        if known is not None:
            assert message.sequence is not None
            if message.sequence <= known[1]:
                return
            if is_current and worker["status"] in wire.TERMINAL:
                return
            if message.counts["seen"] == known[0] and (
                not is_current or message.status == worker["status"]
            ):
                return
        processes[message.instance] = (message.counts["seen"], message.sequence)
        if is_current:
            worker["status"] = message.status
        worker["owed"] = worker.get("owed", False) or worker != before

    @rule()
    def send(self) -> None:
        self.sent = self.run(self.ledger.reports())

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        report = data.draw(st.sampled_from(self.sent))
        is_newest = report in self.run(self.ledger.reports())
        self.apply(ReportAcked(report, ""))
        if is_newest:
            self.workers[report.uid, report.worker]["owed"] = False

    @rule()
    def restart(self) -> None:
        self.run(self.ledger.close())
        self.ledger = self.open()

    @rule()
    def crash(self) -> None:
        """What was committed is in the files, whether they are ever closed or not."""
        instance = self.ledger.view.ledger_id
        copy = self.home / str(int(self.directory.name) + 1)
        shutil.copytree(self.directory, copy)
        self.run(self.ledger.close())
        self.directory = copy
        self.ledger = self.open()
        assert self.ledger.view.ledger_id == instance

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        held = {
            key(name): wire.TaskVersion(uid, version) for name, (uid, version) in self.tasks.items()
        }
        assert self.ledger.view.task_versions == held

    @invariant()
    def owes_what_the_model_owes(self) -> None:
        owed = {
            (report.uid, report.worker): (
                len(self.workers[report.uid, report.worker]["processes"]),
                report_of(report.body).status,
                report_of(report.body).task_info["seen"],
            )
            for report in self.run(self.ledger.reports())
        }
        assert owed == {
            worker_key: (len(worker["processes"]), worker["status"], worker_totals(worker))
            for worker_key, worker in self.workers.items()
            if worker["owed"]
        }

    @invariant()
    def knows_every_worker_of_the_model(self) -> None:
        rows = {(r.uid, r.name): r.worker for r in self.run(self.ledger.workers())}
        assert {k: (w.status, w.totals["seen"], w.attempt) for k, w in rows.items()} == {
            k: (w["status"], worker_totals(w), len(w["processes"]))
            for k, w in self.workers.items()
            if k[0] in {uid for uid, _ in self.tasks.values()}
        }


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(
    max_examples=25,
    stateful_step_count=30,
    suppress_health_check=list(HealthCheck),
)
