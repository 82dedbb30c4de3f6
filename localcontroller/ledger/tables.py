"""The rows of the ledger and the rules by which rows change. Runs inside one transaction.

All calls come from the thread that owns the connection. The module never commits. It has its own
SQL because it runs for every message: the upsert of sqlite-utils takes twice the time, and the
library takes 5 MiB. Each statement names its columns: a newer release may have added some.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from common import wire
from edgeai.errors import EdgeAIError, InvalidName, ProtocolError, Unavailable
from edgeai.ids import TaskKey, Uid, WorkerName, parse_task_key
from localcontroller.ledger.attempts import (
    NEW_RECORD,
    ProcessRecord,
    WorkerRecord,
    after_observation,
)
from localcontroller.ledger.outbox import Outgoing

# Shares of the ledger's maximal size.
TASK_SHARE: Final = 0.75  # a larger ledger takes no new task; the rest is for reports
RUNNING_SHARE: Final = 0.9  # a larger ledger takes final states of workers only
RETIRED_SHARE: Final = 0.5  # a larger ledger keeps no worker whose task left the node
MAX_RETIRED: Final = 256  # workers kept after their task left: counts go on if the task returns

NO_TASK: Final = "its task left the node"  # reason of a worker without a task
_WORKER_COLUMNS: Final = "attempt, workers.instance, heartbeat_s, settled, workers.body"


class LedgerFull(Unavailable):
    """The disk is full, or the ledger has reached its own limit: nothing can be made durable."""


class LedgerDamaged(Exception):
    """The ledger file is damaged, for example a row cannot be decoded. It must be replaced."""


class NotGranted(EdgeAIError):
    """No task on this node names the worker."""


class Grant(msgspec.Struct, frozen=True):
    """The right that a secret gives: to report as these workers of one task."""

    key: TaskKey
    uid: Uid
    workers: frozenset[WorkerName]


class LedgerView(msgspec.Struct, frozen=True):
    """The part of the ledger that is also in memory, in its state after one commit."""

    ledger_id: str
    """Random id; a new ledger has a new id. Column `meta.instance`, and `instance` in Hello."""
    epoch: int
    revision: int
    """Revision of the newest report. It grows with each change of a worker's state."""
    task_versions: dict[TaskKey, wire.TaskVersion]
    grants: dict[str, Grant]
    """Grants by the sha256 of the secret, lower-case hex. Workers without a secret have none."""


class TaskRow(msgspec.Struct, frozen=True):
    """One task as the GlobalManager assigned it; `body` is an encoded wire.AssignmentBody."""

    key: TaskKey
    task_version: wire.TaskVersion
    body: bytes

    @property
    def uid(self) -> Uid:
        return Uid(self.task_version.uid)


class WorkerRow(msgspec.Struct, frozen=True):
    """One worker of a task that this node holds."""

    key: TaskKey
    uid: Uid
    name: WorkerName
    worker: WorkerRecord
    is_acked: bool
    """The GlobalManager has acknowledged the newest report of the worker."""


class LedgerTables:
    """Args: max_bytes: limit of the database file"""

    def __init__(self, db: sqlite3.Connection, *, max_bytes: int) -> None:
        self._db = db
        self._max_bytes = max_bytes
        self._page_bytes = self._scalar("PRAGMA page_size")
        self._tasks_changed = True  # whether tasks changed since the last call of view()

    # ---- meta -----------------------------------------------------------------------------------

    def ensure_ledger_id(self, ledger_id: str) -> None:
        """Give a new ledger this id. A ledger that has an id keeps it."""
        self._execute(
            "INSERT OR IGNORE INTO meta (id, instance, epoch, revision) VALUES (1, ?, 0, 0)",
            ledger_id,
        )

    def remember_epoch(self, epoch: int) -> None:
        self._execute("UPDATE meta SET epoch = ? WHERE epoch < ?", epoch, epoch)

    def view(self, last: LedgerView | None = None) -> LedgerView:
        """A view of the tables as they are now. Reuses `last`, or its parts, if unchanged."""
        row = self._rows("SELECT instance AS ledger_id, epoch, revision FROM meta").fetchone()
        if row is None:
            raise LedgerDamaged("the ledger has no id")
        ledger_id, epoch, revision = row
        if last is None or self._tasks_changed:
            self._tasks_changed = False
            return LedgerView(
                ledger_id, epoch, revision, self._held_tasks(), self._grants_by_secret()
            )
        if row == (last.ledger_id, last.epoch, last.revision):
            return last
        return LedgerView(ledger_id, epoch, revision, last.task_versions, last.grants)

    def _held_tasks(self) -> dict[TaskKey, wire.TaskVersion]:
        rows = self._rows("SELECT key, uid, version FROM tasks ORDER BY key")
        return {TaskKey(key): wire.TaskVersion(uid, version) for key, uid, version in rows}

    def _grants_by_secret(self) -> dict[str, Grant]:
        grants: dict[str, Grant] = {}
        for key, uid, worker, secret_hash in self._rows(
            "SELECT key, uid, worker, secret_hash FROM grants JOIN tasks USING (uid)"
            " WHERE secret_hash != ''"
        ):
            grant = grants.get(secret_hash)
            workers = grant.workers if grant is not None and grant.uid == uid else frozenset()
            grants[secret_hash] = Grant(TaskKey(key), Uid(uid), workers | {WorkerName(worker)})
        return grants

    def used_bytes(self) -> int:
        """Size of the pages in use."""
        pages = self._scalar("PRAGMA page_count") - self._scalar("PRAGMA freelist_count")
        return int(pages * self._page_bytes)

    def check(self) -> None:
        """Decode every row. Raises: LedgerDamaged"""
        self._held_tasks()
        self._grants_by_secret()
        for _ in self.workers():
            pass

    # ---- tasks ----------------------------------------------------------------------------------

    def apply(self, frame: wire.Assign | wire.Withdraw | wire.Synced) -> str:
        """Apply a frame. Returns: the reason of a refusal, or "" for a frame that was applied."""
        match frame:
            case wire.Assign():
                return self._assign_task(frame)
            case wire.Withdraw():
                task = self._held_task(frame.key)
                if task is not None and task.uid == frame.uid:
                    self._drop_task(frame.key, frame.uid)
            case wire.Synced():
                self._keep_only_tasks(frame.keys)
        return ""

    def _assign_task(self, frame: wire.Assign) -> str:
        task = self._held_task(frame.key)
        if task is not None and task.uid == frame.uid and task.version >= frame.version:
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
        if task is not None and task.uid != frame.uid:
            self._drop_task(frame.key, Uid(task.uid))
        self._resend_states(frame.uid, only_final=task is None or task.uid != frame.uid)
        self._tasks_changed = True
        self._execute(
            "INSERT OR REPLACE INTO tasks (key, uid, version, body) VALUES (?, ?, ?, ?)",
            *(frame.key, frame.uid, frame.version, frame.body),
        )
        self._replace_grants(frame.uid, body.workers)
        return ""

    def _replace_grants(self, uid: Uid, workers: Mapping[WorkerName, wire.WorkerGrant]) -> None:
        self._execute("DELETE FROM grants WHERE uid = ?", uid)
        for worker, grant in workers.items():
            self._execute(
                "INSERT INTO grants (uid, worker, secret_hash) VALUES (?, ?, ?)",
                *(uid, worker, grant.secret_hash.lower()),
            )
        self._prune_retired_workers()

    def tasks(self, plural: str) -> list[TaskRow]:
        """The tasks whose kind has this plural, in any API group."""
        rows = self._rows("SELECT key, uid, version, body FROM tasks ORDER BY key")
        return [
            TaskRow(TaskKey(key), wire.TaskVersion(uid, version), body)
            for key, uid, version, body in rows
            if key.startswith(f"{plural}.")
        ]

    def _keep_only_tasks(self, keys: Iterable[TaskKey]) -> None:
        names = set(keys)
        for key, uid in self._rows("SELECT key, uid FROM tasks").fetchall():
            if key not in names:
                self._drop_task(TaskKey(key), Uid(uid))

    def _held_task(self, key: TaskKey) -> wire.TaskVersion | None:
        row = self._rows("SELECT uid, version FROM tasks WHERE key = ?", key).fetchone()
        return None if row is None else wire.TaskVersion(*row)

    def _drop_task(self, key: TaskKey, uid: Uid) -> None:
        """Delete the task. Its workers stay for a while: if the task returns, counts go on."""
        self._tasks_changed = True
        self._execute("DELETE FROM tasks WHERE key = ?", key)
        self._execute("DELETE FROM grants WHERE uid = ?", uid)
        self._retire_workers(uid)
        self._prune_retired_workers()

    def _retire_workers(self, uid: Uid) -> None:
        """Mark the workers of a deleted task as lost, and their reports as acknowledged.

        The cloud wants no report of a withdrawn task. If the task returns, the next message of each
        worker differs from "lost", so it makes a new report.
        """
        rows = self._rows(
            f"SELECT worker, {_WORKER_COLUMNS} FROM workers WHERE uid = ?", uid
        ).fetchall()
        for name, *state in rows:
            retired = after_observation(
                self._decode_worker_record(uid, name, *state), "lost", NO_TASK
            )
            self._execute(
                "UPDATE workers SET acked_revision = revision, body = ?"
                " WHERE uid = ? AND worker = ?",
                *(wire.pack(retired.report("")), uid, name),
            )

    def _resend_states(self, uid: Uid, *, only_final: bool) -> None:
        """Put the states of workers of a task that returns, or has a new version, into the outbox.

        A worker that has ended sends no further message. While its task was gone, the cloud may not
        have got its last report. A worker that belongs to this node again may have belonged to
        another node in between, whose report has then replaced the report of this node.
        """
        rows = self._rows("SELECT worker, body FROM workers WHERE uid = ?", uid).fetchall()
        for name, body in rows:
            report: wire.ReportBody = _decode(body, wire.ReportBody)
            is_final = report.status in wire.TERMINAL
            if is_final if only_final else report.reason != NO_TASK:
                self._execute(
                    "UPDATE workers SET revision = ? WHERE uid = ? AND worker = ?",
                    *(self._next_revision(), uid, name),
                )

    def _next_revision(self) -> int:
        self._execute("UPDATE meta SET revision = revision + 1")
        return int(self._scalar("SELECT revision FROM meta"))

    def _prune_retired_workers(self) -> None:
        """Delete workers that no task names, oldest first, until MAX_RETIRED are left.

        A worker with an unacknowledged report stays until the GlobalManager acknowledges it.
        """
        is_space_scarce = self.used_bytes() > self._max_bytes * RETIRED_SHARE
        self._execute("DROP TABLE IF EXISTS temp.pruned")
        self._execute(
            "CREATE TEMP TABLE pruned AS SELECT uid, worker FROM workers"
            " WHERE revision = acked_revision"
            " AND (uid, worker) NOT IN (SELECT uid, worker FROM grants)"
            " ORDER BY revision DESC LIMIT -1 OFFSET ?",
            0 if is_space_scarce else MAX_RETIRED,
        )
        for table in ("processes", "workers"):
            self._execute(
                f"DELETE FROM {table} WHERE (uid, worker) IN (SELECT uid, worker FROM pruned)"
            )

    # ---- workers --------------------------------------------------------------------------------

    def worker(self, uid: Uid, name: WorkerName) -> WorkerRecord:
        """Raises: NotGranted"""
        if not self._rows(
            "SELECT 1 FROM grants WHERE uid = ? AND worker = ?", uid, name
        ).fetchone():
            raise NotGranted(f"no task on this node names worker {name!r}")
        row = self._rows(
            f"SELECT {_WORKER_COLUMNS} FROM workers WHERE uid = ? AND worker = ?",
            *(uid, name),
        ).fetchone()
        return NEW_RECORD if row is None else self._decode_worker_record(uid, name, *row)

    def has_secret(self, uid: Uid, name: WorkerName) -> bool:
        """Whether the worker can report itself. Without a secret only this node reports it."""
        row = self._rows(
            "SELECT secret_hash FROM grants WHERE uid = ? AND worker = ?", uid, name
        ).fetchone()
        return row is not None and row[0] != ""

    def check_space(self) -> None:
        """Raises: LedgerFull while the ledger takes final states only"""
        if self.used_bytes() > self._max_bytes * RUNNING_SHARE:
            raise LedgerFull("the node's ledger is full; raise --ledger-max-bytes")

    def rewrite(self) -> None:
        """Write a page: does the disk take it? SQLite would leave out an update of nothing."""
        self._execute("UPDATE meta SET revision = revision + 1")
        self._execute("UPDATE meta SET revision = revision - 1")

    def put_worker_record(
        self, uid: Uid, name: WorkerName, old: WorkerRecord, new: WorkerRecord, *, observed_at: str
    ) -> None:
        """Write the record `new`, and put its report into the outbox.

        Args: old: the record that the tables have
        Raises: LedgerFull for a record that is not final while the ledger is nearly full
        """
        if not new.is_finished:
            self.check_space()
        revision = self._next_revision()
        body = wire.pack(new.report(observed_at))
        self._execute(
            "INSERT INTO workers (uid, worker, attempt, instance, heartbeat_s, settled, body,"
            " revision, acked_revision) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)"
            " ON CONFLICT DO UPDATE SET"
            " attempt = excluded.attempt, instance = excluded.instance,"
            " heartbeat_s = excluded.heartbeat_s, settled = excluded.settled,"
            " body = excluded.body, revision = excluded.revision",
            *(uid, name, new.attempt, new.instance, new.heartbeat_s),
            *(wire.pack(new.past_counts), body, revision),
        )
        self._put_worker_processes(uid, name, old.processes, new.processes)

    def _put_worker_processes(
        self,
        uid: Uid,
        name: WorkerName,
        old: Mapping[str, ProcessRecord],
        new: Mapping[str, ProcessRecord],
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
            f"SELECT key, uid, worker, revision = acked_revision, {_WORKER_COLUMNS}"
            " FROM workers JOIN grants USING (uid, worker)"
            " JOIN tasks USING (uid) ORDER BY key, worker"
        ).fetchall()
        for key, uid, name, is_acked, *state in rows:
            yield WorkerRow(
                TaskKey(key),
                Uid(uid),
                WorkerName(name),
                self._decode_worker_record(uid, name, *state),
                bool(is_acked),
            )

    def _decode_worker_record(
        self,
        uid: str,
        name: str,
        attempt: int,
        instance: str | None,
        heartbeat_s: float,
        past_counts: bytes,
        body: bytes,
    ) -> WorkerRecord:
        report: wire.ReportBody = _decode(body, wire.ReportBody)
        worker = WorkerRecord(
            attempt=attempt,
            instance=instance,
            status=report.status,
            reason=report.reason,
            phase=report.phase,
            heartbeat_s=heartbeat_s,
            details=report.details,
            past_counts=_decode(past_counts, dict[str, int]),
            processes=dict(self._worker_processes(uid, name)),
        )
        # A report mixes totals and other numbers. The names of the counts show which are totals.
        count_names = worker.count_names
        numbers = {k: v for k, v in report.task_info.items() if k not in count_names}
        return msgspec.structs.replace(worker, numbers=numbers)

    def _worker_processes(self, uid: str, name: str) -> Iterator[tuple[str, ProcessRecord]]:
        for instance, attempt, sequence, counts in self._rows(
            "SELECT instance, attempt, sequence, counts FROM processes"
            " WHERE uid = ? AND worker = ? ORDER BY attempt",
            *(uid, name),
        ):
            yield instance, ProcessRecord(attempt, sequence, _decode(counts, dict[str, int]))

    # ---- outbox ---------------------------------------------------------------------------------

    def reports(self, *, after: int) -> list[Outgoing]:
        """The unacknowledged reports with revisions above `after`, oldest first."""
        return [
            Outgoing(Uid(uid), WorkerName(worker), attempt, revision, body)
            for uid, worker, attempt, revision, body in self._rows(
                "SELECT uid, worker, attempt, revision, body FROM workers"
                " WHERE revision > acked_revision AND revision > ? ORDER BY revision",
                after,
            )
        ]

    def record_ack(self, report: Outgoing) -> None:
        """Remove the report from the outbox, unless the worker has a newer report by now."""
        self._execute(
            "UPDATE workers SET acked_revision = revision"
            " WHERE uid = ? AND worker = ? AND revision = ?",
            *(report.uid, report.worker, report.revision),
        )

    def count_unacked(self) -> int:
        return int(self._scalar("SELECT count(*) FROM workers WHERE revision > acked_revision"))

    # ---- SQL ------------------------------------------------------------------------------------

    def _execute(self, sql: str, *parameters: object) -> None:
        self._db.execute(sql, parameters)

    def _rows(self, sql: str, *parameters: object) -> sqlite3.Cursor:
        return self._db.execute(sql, parameters)

    def _scalar(self, sql: str) -> Any:
        return self._rows(sql).fetchone()[0]


def _decode(data: bytes, type_: Any) -> Any:
    try:
        return wire.unpack(data, type_)
    except (ProtocolError, UnicodeDecodeError) as error:
        raise LedgerDamaged(str(error)) from error
