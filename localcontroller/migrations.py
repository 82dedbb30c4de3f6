"""The ledger's schema, as steps that are never changed once released; add another instead.

Applied by `storage` in order, each in one transaction with the record of it. All tables are
STRICT: SQLite refuses a value of a wrong type instead of keeping it.
"""

from typing import Final

from sqlite_utils import Database, Migrations

MIGRATIONS: Final = Migrations("localcontroller")


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
