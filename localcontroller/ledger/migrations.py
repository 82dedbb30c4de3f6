"""The migration steps of the ledger's schema. Never change a released step: add a new one.

`schema` imports this module when it opens a ledger that misses a step. Each step is one transaction
together with its record. All tables are STRICT: SQLite refuses a value of a wrong type.

After a rollback the older release uses the same ledger file. So a step may only add: a table, an
index, or a column whose default means "not known", because the older release writes rows without
this column. A change that the older release cannot use takes two releases: the first release adds
the new form and writes both forms; the second release removes the old form and calls `require` with
the schema that the file needs from then on. The same rule holds for the msgpack bodies in the rows:
new fields may be added, but a known field gets no new values.
"""

import sqlite3
from typing import Final

from sqlite_utils import Database, Migrations

from localcontroller.ledger.schema import SET

MIGRATIONS: Final = Migrations(SET)  # schema.STEPS lists the name of each step, too


def apply(connection: sqlite3.Connection) -> None:
    MIGRATIONS.apply(Database(connection, execute_plugins=False))


def require(db: Database, schema: int) -> None:
    """From this step on, builds that know fewer than `schema` steps refuse the file."""
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
