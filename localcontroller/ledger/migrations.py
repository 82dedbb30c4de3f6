"""The ledger's schema, as steps that are never changed once released; add another instead.

Loaded by `schema` when a ledger is opened that misses a step. Each step is one transaction with the
record of it. All tables are STRICT: SQLite refuses a value of a wrong type instead of keeping it.

A release that is rolled back leaves its ledger to the one before it. So a step only adds: a table,
an index, or a column with a default that means "not known", for rows that the older release writes.
What an older one cannot live with takes two releases: the first adds and writes both forms, the
second removes the old one and says, with `require`, which schema the file needs from then on. The
same is true of what the bodies within the rows hold: further fields, but no further values of
those that are known.
"""

import sqlite3
from typing import Final

from sqlite_utils import Database, Migrations

from localcontroller.ledger.schema import SET

MIGRATIONS: Final = Migrations(SET)  # each step's name stands in schema.STEPS, too


def apply(connection: sqlite3.Connection) -> None:
    """Take the steps that are missing."""
    MIGRATIONS.apply(Database(connection, execute_plugins=False))


def require(db: Database, schema: int) -> None:
    """From this step on the file is of no use to a build that knows fewer than `schema` steps."""
    db.execute(f"PRAGMA user_version = {schema}")


@MIGRATIONS()
def tasks_and_workers(db: Database) -> None:
    _create(
        db,
        "meta",
        {"id": int, "instance": str, "epoch": int, "revision": int},
        pk="id",
    )
    _create(db, "tasks", {"key": str, "uid": str, "version": int, "body": bytes}, pk="key")
    _create(
        db,
        "grants",
        {"uid": str, "worker": str, "secret_hash": str},
        pk=("uid", "worker"),
    )
    _create(
        db,
        "workers",
        {
            "uid": str,
            "worker": str,
            "attempt": int,
            "instance": str,
            "heartbeat_s": float,
            "settled": bytes,
            "body": bytes,
            "revision": int,
            "acked_revision": int,
        },
        pk=("uid", "worker"),
        nullable={"instance"},
    )
    _create(
        db,
        "processes",
        {
            "uid": str,
            "worker": str,
            "instance": str,
            "attempt": int,
            "sequence": int,
            "counts": bytes,
        },
        pk=("uid", "worker", "instance"),
        nullable={"sequence"},
    )


def _create(
    db: Database,
    table: str,
    columns: dict[str, type],
    *,
    pk: str | tuple[str, ...],
    nullable: frozenset[str] | set[str] = frozenset(),
) -> None:
    db.table(table).create(columns, pk=pk, not_null=set(columns) - nullable, strict=True)
