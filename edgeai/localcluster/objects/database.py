"""The SQLite file of the store: one transaction per change.

The module handles keys, uids and encoded objects, and never decodes an object. It raises errors of
the API (OutOfSpace, InternalError). It raises StateError when it cannot use the file at all.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from edgeai.localcluster.errors import StateError
from edgeai.localcluster.objects import errors

_SCHEMA_VERSION = 1
_SCHEMA = f"""
BEGIN;
CREATE TABLE objects (
    group_resource TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    uid TEXT NOT NULL UNIQUE,
    body BLOB NOT NULL,
    PRIMARY KEY (group_resource, namespace, name)
) STRICT;
CREATE TABLE owners (
    owner_uid TEXT NOT NULL,
    uid TEXT NOT NULL REFERENCES objects (uid) ON DELETE CASCADE,
    PRIMARY KEY (owner_uid, uid)
) STRICT, WITHOUT ROWID;
CREATE INDEX owners_by_dependent ON owners (uid);
CREATE TABLE latest (resource_version INTEGER NOT NULL) STRICT;
INSERT INTO latest VALUES (0);
PRAGMA user_version = {_SCHEMA_VERSION};
COMMIT;
"""
_MAX_BODY_BYTES = 1536 * 1024  # etcd's default limit of a request
_COLUMNS = "group_resource, namespace, name, objects.uid, body"


class Row(msgspec.Struct, frozen=True):
    """One stored object. `namespace` is "" for a cluster-scoped one. `body` is JSON."""

    group_resource: str
    namespace: str
    name: str
    uid: str
    body: bytes


class Database:
    """Locks the SQLite file for this process. Raises: StateError if it cannot be used"""

    def __init__(self, path: Path, *, max_bytes: int) -> None:
        try:
            self._connection = sqlite3.connect(path, isolation_level=None, timeout=0)
        except sqlite3.Error as error:
            raise StateError(f"{path}: cannot be opened ({error})") from error
        try:
            self._configure(max_bytes)
        except (sqlite3.Error, StateError) as error:
            self._connection.close()
            raise StateError(_unusable_store(path, error)) from error

    def _configure(self, max_bytes: int) -> None:
        run = self._connection.execute
        run("PRAGMA locking_mode = EXCLUSIVE")
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = NORMAL")
        run("PRAGMA foreign_keys = ON")
        (page_bytes,) = run("PRAGMA page_size").fetchone()
        run(f"PRAGMA max_page_count = {max(max_bytes // page_bytes, 1)}")
        (version,) = run("PRAGMA user_version").fetchone()
        if version == 0:
            self._connection.executescript(_SCHEMA)
        elif version != _SCHEMA_VERSION:
            raise StateError(f"it has format {version}, this program reads {_SCHEMA_VERSION}")
        # This write takes the lock. If the file is read-only, the write fails now and not later.
        run("UPDATE latest SET resource_version = resource_version")

    def close(self) -> None:
        self._connection.close()

    def resource_version(self) -> int:
        (version,) = self._connection.execute("SELECT resource_version FROM latest").fetchone()
        return int(version)

    def body(self, group_resource: str, namespace: str, name: str) -> bytes | None:
        row = self._connection.execute(
            "SELECT body FROM objects WHERE group_resource = ? AND namespace = ? AND name = ?",
            (group_resource, namespace, name),
        ).fetchone()
        return None if row is None else bytes(row[0])

    def rows(
        self, group_resource: str, namespace: str = "", *, after: tuple[str, str] = ("", "")
    ) -> Iterator[Row]:
        """The rows of one resource, ordered by (namespace, name).

        Args:
            namespace: "" means all namespaces
            after: only rows whose (namespace, name) comes later
        """
        where, values = _range(group_resource, namespace, after)
        query = f"SELECT {_COLUMNS} FROM objects WHERE {where} ORDER BY namespace, name"
        return (Row(*row) for row in self._connection.execute(query, values))

    def count(self, group_resource: str, namespace: str, *, after: tuple[str, str]) -> int:
        where, values = _range(group_resource, namespace, after)
        query = f"SELECT count(*) FROM objects WHERE {where}"
        (count,) = self._connection.execute(query, values).fetchone()
        return int(count)

    def by_uid(self, uid: str) -> Row | None:
        query = f"SELECT {_COLUMNS} FROM objects WHERE uid = ?"
        row = self._connection.execute(query, (uid,)).fetchone()
        return None if row is None else Row(*row)

    def dependents(self, owner_uid: str) -> list[Row]:
        query = f"SELECT {_COLUMNS} FROM owners JOIN objects USING (uid) WHERE owner_uid = ?"
        return [Row(*row) for row in self._connection.execute(query, (owner_uid,))]

    def write(self, row: Row, owner_uids: Iterable[str], resource_version: int) -> None:
        """Insert or replace one object and its entries in the table of owners.

        Raises: errors.EtcdTooLarge, OutOfSpace, InternalError; the file then stays unchanged
        """
        if len(row.body) > _MAX_BODY_BYTES:
            raise errors.EtcdTooLarge
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO objects VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT (group_resource, namespace, name) DO UPDATE SET body = excluded.body",
                (row.group_resource, row.namespace, row.name, row.uid, row.body),
            )
            connection.execute("DELETE FROM owners WHERE uid = ?", (row.uid,))
            connection.executemany(
                "INSERT OR IGNORE INTO owners VALUES (?, ?)",
                [(owner_uid, row.uid) for owner_uid in owner_uids],
            )
            connection.execute("UPDATE latest SET resource_version = ?", (resource_version,))

    def remove(self, row: Row, resource_version: int) -> None:
        """Raises: errors.OutOfSpace, errors.InternalError; the file then stays unchanged"""
        with self._transaction() as connection:
            connection.execute("DELETE FROM objects WHERE uid = ?", (row.uid,))
            connection.execute("UPDATE latest SET resource_version = ?", (resource_version,))

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield self._connection
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            if self._connection.in_transaction:  # SQLite rolls back by itself when the disk is full
                self._connection.execute("ROLLBACK")
            is_full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
            refusal = errors.OutOfSpace if is_full else errors.InternalError
            raise refusal(f"the cluster's state cannot be written: {error}") from error


def _range(
    group_resource: str, namespace: str, after: tuple[str, str]
) -> tuple[str, tuple[str, ...]]:
    where = "group_resource = ? AND (namespace, name) > (?, ?)"
    if not namespace:
        return where, (group_resource, *after)
    return f"{where} AND namespace = ?", (group_resource, *after, namespace)


def _unusable_store(path: Path, error: Exception) -> str:
    code = getattr(error, "sqlite_errorcode", None)
    damaged = "it is damaged: move it away to start with an empty cluster"
    advice = {
        sqlite3.SQLITE_BUSY: "another cluster uses it: stop that one, or choose another directory",
        sqlite3.SQLITE_NOTADB: damaged,
        sqlite3.SQLITE_CORRUPT: damaged,
        sqlite3.SQLITE_CANTOPEN: "the directory must exist and be writable",
        sqlite3.SQLITE_READONLY: "it must be writable",
        sqlite3.SQLITE_FULL: "the disk is full",
    }.get(code or 0, "choose another directory")
    return f"{path}: cannot be used ({error}): {advice}"
