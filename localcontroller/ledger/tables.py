"""The ledger's rows and the rules by which they change. Runs inside one transaction.

Called by the ledger's operations on the thread that owns the connection; never commits. SQL is
written out because this is the hot path: sqlite-utils' own upsert costs twice the time, and the
library 5 MiB. Columns are always named, for a newer release may have added some (see migrations).
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from common import wire
from common.edge_session import Outgoing
from common.errors import EdgeAIError, InvalidName, ProtocolError, Unavailable
from common.ids import TaskKey, Uid, WorkerName, parse_task_key
from localcontroller.ledger.attempts import NOBODY, Process, Worker, observed

TASK_SHARE: Final = 0.75  # of the ledger's size that tasks may fill; the rest is for reports
RUNNING_SHARE: Final = 0.9  # … that reports may fill; the rest is for final states
RETIRED_SHARE: Final = 0.5  # beyond which no worker is kept whose task is gone
MAX_RETIRED: Final = 256  # workers kept so that their counts and attempts go on if a task returns
SQL_INTEGER_MAX: Final = 2**63 - 1

_WORKER: Final = "attempt, workers.instance, heartbeat_s, settled, workers.body"


class NoSpace(Unavailable):
    """Nothing can be made durable now: the disk, or the ledger's own limit, is full."""


class Damaged(Exception):
    """A row is not what was written; the ledger must be replaced."""


class NotGranted(EdgeAIError):
    """No assigned task names this worker (any more)."""


class Grant(msgspec.Struct, frozen=True):
    """What a secret gives the right to: reports of these workers of one task."""

    key: TaskKey
    uid: Uid
    workers: frozenset[WorkerName]


class View(msgspec.Struct, frozen=True):
    """What of the ledger is kept in memory, as of one commit."""

    ledger_id: str
    """Random; another one after the ledger was lost. `instance` of the table and of Hello."""
    epoch: int
    revision: int
    """The newest report's; grows with every change of a worker's state."""
    held: dict[TaskKey, wire.Held]
    grants: dict[str, Grant]
    """By sha256 of the secret, lower-case hex; what no secret gives the right to is not here."""


class TaskRow(msgspec.Struct, frozen=True):
    """One task as it was assigned; `body` is a wire.AssignmentBody."""

    key: TaskKey
    held: wire.Held
    body: bytes

    @property
    def uid(self) -> Uid:
        return Uid(self.held.uid)


class WorkerRow(msgspec.Struct, frozen=True):
    """One worker with its place in the outbox."""

    key: TaskKey
    uid: Uid
    name: WorkerName
    worker: Worker
    is_acked: bool


class Tables:
    """Args: max_bytes: size that the database may have"""

    def __init__(self, db: sqlite3.Connection, *, max_bytes: int) -> None:
        self._db = db
        self._max_bytes = max_bytes
        self._page_bytes = self._scalar("PRAGMA page_size")
        self._tasks_changed = True  # since the last view

    # ---- meta -----------------------------------------------------------------------------------

    def introduce(self, ledger_id: str) -> None:
        """Give a new ledger its identity; an old one keeps its own."""
        self._execute(
            "INSERT OR IGNORE INTO meta (id, instance, epoch, revision) VALUES (1, ?, 0, 0)",
            ledger_id,
        )

    def see_epoch(self, epoch: int) -> None:
        self._execute("UPDATE meta SET epoch = ? WHERE epoch < ?", epoch, epoch)

    def view(self, last: View | None = None) -> View:
        """What is in the tables now; `last` itself, or parts of it, where that has not changed."""
        row = self._rows("SELECT instance, epoch, revision FROM meta").fetchone()
        if row is None:
            raise Damaged("no identity")
        ledger_id, epoch, revision = row
        if last is None or self._tasks_changed:
            self._tasks_changed = False
            return View(ledger_id, epoch, revision, self._all_held(), self._grants())
        if row == (last.ledger_id, last.epoch, last.revision):
            return last
        return View(ledger_id, epoch, revision, last.held, last.grants)

    def _all_held(self) -> dict[TaskKey, wire.Held]:
        rows = self._rows("SELECT key, uid, version FROM tasks ORDER BY key")
        return {TaskKey(key): wire.Held(uid, version) for key, uid, version in rows}

    def _grants(self) -> dict[str, Grant]:
        grants: dict[str, Grant] = {}
        for key, uid, worker, secret_hash in self._rows(
            "SELECT key, uid, worker, secret_hash FROM grants JOIN tasks USING (uid)"
            " WHERE secret_hash != ''"
        ):
            known = grants.get(secret_hash)
            workers = known.workers if known is not None and known.uid == uid else frozenset()
            grants[secret_hash] = Grant(TaskKey(key), Uid(uid), workers | {WorkerName(worker)})
        return grants

    def used_bytes(self) -> int:
        pages = self._scalar("PRAGMA page_count") - self._scalar("PRAGMA freelist_count")
        return int(pages * self._page_bytes)

    def check(self) -> None:
        """Raises: Damaged when a row cannot be read back"""
        self._all_held()
        self._grants()
        for _ in self.workers():
            pass

    # ---- tasks ----------------------------------------------------------------------------------

    def apply(self, frame: wire.Assign | wire.Withdraw | wire.Synced) -> str:
        """Take what the GlobalManager says. Returns: why it was refused for good, or ""."""
        match frame:
            case wire.Assign():
                return self._assign(frame)
            case wire.Withdraw():
                self._withdraw(frame.key, frame.uid)
            case wire.Synced():
                self._keep_only(frame.keys)
        return ""

    def _assign(self, frame: wire.Assign) -> str:
        held = self._held(frame.key)
        if held is not None and held.uid == frame.uid and held.version >= frame.version:
            return ""
        try:
            parse_task_key(frame.key)
            body: wire.AssignmentBody = wire.unpack(frame.body, wire.AssignmentBody)
        except (InvalidName, ProtocolError, UnicodeDecodeError) as error:
            return str(error)
        limit = int(self._max_bytes * TASK_SHARE)
        if self.used_bytes() + len(frame.body) > limit:
            return (
                f"the node's ledger is full: tasks may fill {limit} bytes, and this one has "
                f"{len(frame.body)}; raise --ledger-max-bytes or move tasks to another node"
            )
        if held is not None and held.uid != frame.uid:
            self._drop(frame.key, Uid(held.uid))
        self._tasks_changed = True
        self._execute(
            "INSERT OR REPLACE INTO tasks (key, uid, version, body) VALUES (?, ?, ?, ?)",
            *(frame.key, frame.uid, frame.version, frame.body),
        )
        self._grant(frame.uid, body.workers)
        return ""

    def _grant(self, uid: Uid, workers: Mapping[WorkerName, wire.WorkerGrant]) -> None:
        self._execute("DELETE FROM grants WHERE uid = ?", uid)
        for worker, grant in workers.items():
            self._execute(
                "INSERT INTO grants (uid, worker, secret_hash) VALUES (?, ?, ?)",
                *(uid, worker, grant.secret_hash.lower()),
            )
        self._prune()

    def tasks(self, plural: str) -> list[TaskRow]:
        """Of kinds with this plural, whatever their group."""
        rows = self._rows("SELECT key, uid, version, body FROM tasks ORDER BY key")
        return [
            TaskRow(TaskKey(key), wire.Held(uid, version), body)
            for key, uid, version, body in rows
            if key.startswith(f"{plural}.")
        ]

    def _withdraw(self, key: TaskKey, uid: Uid) -> None:
        held = self._held(key)
        if held is not None and held.uid == uid:
            self._drop(key, uid)

    def _keep_only(self, keys: Iterable[TaskKey]) -> None:
        named = set(keys)
        for key, uid in self._rows("SELECT key, uid FROM tasks").fetchall():
            if key not in named:
                self._drop(TaskKey(key), Uid(uid))

    def _held(self, key: TaskKey) -> wire.Held | None:
        row = self._rows("SELECT uid, version FROM tasks WHERE key = ?", key).fetchone()
        return None if row is None else wire.Held(*row)

    def _drop(self, key: TaskKey, uid: Uid) -> None:
        """The task goes; what its workers counted stays for a while, for the task may return."""
        self._tasks_changed = True
        self._execute("DELETE FROM tasks WHERE key = ?", key)
        self._execute("DELETE FROM grants WHERE uid = ?", uid)
        self._retire(uid)
        self._prune()

    def _retire(self, uid: Uid) -> None:
        """Nothing is owed of these workers, and whatever they say next is news."""
        rows = self._rows(f"SELECT worker, {_WORKER} FROM workers WHERE uid = ?", uid).fetchall()
        for name, *state in rows:
            gone = observed(self._worker(uid, name, *state), "lost", "its task left the node")
            self._execute(
                "UPDATE workers SET acked_revision = revision, body = ?"
                " WHERE uid = ? AND worker = ?",
                *(wire.pack(gone.report("")), uid, name),
            )

    def _prune(self) -> None:
        """Forget the workers that no task names, oldest first, beyond what may be kept.

        What such a worker said last is still owed to the cloud, so it goes once that is known.
        """
        is_scarce = self.used_bytes() > self._max_bytes * RETIRED_SHARE
        self._execute("DROP TABLE IF EXISTS temp.pruned")
        self._execute(
            "CREATE TEMP TABLE pruned AS SELECT uid, worker FROM workers"
            " WHERE revision = acked_revision"
            " AND (uid, worker) NOT IN (SELECT uid, worker FROM grants)"
            " ORDER BY revision DESC LIMIT -1 OFFSET ?",
            0 if is_scarce else MAX_RETIRED,
        )
        for table in ("processes", "workers"):
            self._execute(
                f"DELETE FROM {table} WHERE (uid, worker) IN (SELECT uid, worker FROM pruned)"
            )

    # ---- workers --------------------------------------------------------------------------------

    def worker(self, uid: Uid, name: WorkerName) -> Worker:
        """Raises: NotGranted"""
        if not self._rows(
            "SELECT 1 FROM grants WHERE uid = ? AND worker = ?", uid, name
        ).fetchone():
            raise NotGranted(f"no task on this node names worker {name!r}")
        row = self._rows(
            f"SELECT {_WORKER} FROM workers WHERE uid = ? AND worker = ?",
            *(uid, name),
        ).fetchone()
        return NOBODY if row is None else self._worker(uid, name, *row)

    def put_worker(
        self, uid: Uid, name: WorkerName, old: Worker, new: Worker, *, observed_at: str
    ) -> None:
        """Write `new` where it differs from `old`, and put it into the outbox.

        Raises: NoSpace for a state that is not final while the ledger is nearly full
        """
        if not new.is_finished and self.used_bytes() > self._max_bytes * RUNNING_SHARE:
            raise NoSpace("the node's ledger is full; raise --ledger-max-bytes")
        self._execute("UPDATE meta SET revision = revision + 1")
        revision = self._scalar("SELECT revision FROM meta")
        body = wire.pack(new.report(observed_at))
        self._execute(
            "INSERT INTO workers (uid, worker, attempt, instance, heartbeat_s, settled, body,"
            " revision, acked_revision) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)"
            " ON CONFLICT DO UPDATE SET"
            " attempt = excluded.attempt, instance = excluded.instance,"
            " heartbeat_s = excluded.heartbeat_s, settled = excluded.settled,"
            " body = excluded.body, revision = excluded.revision",
            *(uid, name, new.attempt, new.instance, new.heartbeat_s),
            *(wire.pack(new.settled), body, revision),
        )
        self._put_processes(uid, name, old.processes, new.processes)

    def _put_processes(
        self,
        uid: Uid,
        name: WorkerName,
        old: Mapping[str, Process],
        new: Mapping[str, Process],
    ) -> None:
        for instance in old.keys() - new.keys():
            self._execute(
                "DELETE FROM processes WHERE uid = ? AND worker = ? AND instance = ?",
                *(uid, name, instance),
            )
        for instance, process in new.items():
            if process != old.get(instance):
                self._execute(
                    "INSERT OR REPLACE INTO processes"
                    " (uid, worker, instance, attempt, sequence, counts) VALUES (?, ?, ?, ?, ?, ?)",
                    *(uid, name, instance, process.attempt, process.sequence),
                    wire.pack(process.counts),
                )

    def workers(self) -> Iterator[WorkerRow]:
        rows = self._rows(
            f"SELECT key, uid, worker, revision = acked_revision, {_WORKER}"
            " FROM workers JOIN grants USING (uid, worker)"
            " JOIN tasks USING (uid) ORDER BY key, worker"
        ).fetchall()
        for key, uid, name, is_acked, *state in rows:
            yield WorkerRow(
                TaskKey(key),
                Uid(uid),
                WorkerName(name),
                self._worker(uid, name, *state),
                bool(is_acked),
            )

    def _worker(
        self,
        uid: str,
        name: str,
        attempt: int,
        instance: str | None,
        heartbeat_s: float,
        settled: bytes,
        body: bytes,
    ) -> Worker:
        report: wire.ReportBody = _read(body, wire.ReportBody)
        worker = Worker(
            attempt=attempt,
            instance=instance,
            status=report.status,
            reason=report.reason,
            phase=report.phase,
            heartbeat_s=heartbeat_s,
            details=report.details,
            settled=_read(settled, dict[str, int]),
            processes=dict(self._processes(uid, name)),
        )
        counted = worker.count_names
        numbers = {k: v for k, v in report.task_info.items() if k not in counted}
        return msgspec.structs.replace(worker, numbers=numbers)

    def _processes(self, uid: str, name: str) -> Iterator[tuple[str, Process]]:
        for instance, attempt, sequence, counts in self._rows(
            "SELECT instance, attempt, sequence, counts FROM processes"
            " WHERE uid = ? AND worker = ? ORDER BY attempt",
            *(uid, name),
        ):
            yield instance, Process(attempt, sequence, _read(counts, dict[str, int]))

    # ---- outbox ---------------------------------------------------------------------------------

    def reports(self, *, after: int) -> list[Outgoing]:
        """What the cloud has not acknowledged, of revisions beyond `after`, oldest first."""
        return [
            Outgoing(Uid(uid), WorkerName(worker), attempt, revision, body)
            for uid, worker, attempt, revision, body in self._rows(
                "SELECT uid, worker, attempt, revision, body FROM workers"
                " WHERE revision > acked_revision AND revision > ? ORDER BY revision",
                after,
            )
        ]

    def acknowledge(self, report: Outgoing) -> None:
        """Only the state that was sent leaves the outbox: a newer one stays."""
        self._execute(
            "UPDATE workers SET acked_revision = revision"
            " WHERE uid = ? AND worker = ? AND revision = ?",
            *(report.uid, report.worker, report.revision),
        )

    def unacked(self) -> int:
        return int(self._scalar("SELECT count(*) FROM workers WHERE revision > acked_revision"))

    # ---- SQL ------------------------------------------------------------------------------------

    def _execute(self, sql: str, *parameters: object) -> None:
        self._db.execute(sql, parameters)

    def _rows(self, sql: str, *parameters: object) -> sqlite3.Cursor:
        return self._db.execute(sql, parameters)

    def _scalar(self, sql: str) -> Any:
        return self._rows(sql).fetchone()[0]


def _read(data: bytes, type_: Any) -> Any:
    try:
        return wire.unpack(data, type_)
    except (ProtocolError, UnicodeDecodeError) as error:
        raise Damaged(str(error)) from error
