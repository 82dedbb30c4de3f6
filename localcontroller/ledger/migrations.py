"""The ledger's schema, as steps that are never changed once released; add another instead.

Brought up to date by `LedgerFile` when it opens the file. Each step is one transaction with the
record of it. All tables are STRICT: SQLite refuses a value of a wrong type instead of keeping it.

A release that is rolled back leaves its ledger to the one before it. So a step only adds: a table,
an index, or a column with a default that means "not known", for rows that the older release writes.
What an older one cannot live with takes two releases: the first adds and writes both forms, the
second removes the old one and says, with `require`, which schema the file needs from then on. The
same is true of what the bodies within the rows hold: further fields, but no further values of
those that are known.
"""

from typing import Final

from sqlite_utils import Database, Migrations

from common.errors import EdgeAIError
from common.logs import get_logger

log = get_logger(__name__)

MIGRATIONS: Final = Migrations("localcontroller")


class TooNew(EdgeAIError):
    """The ledger needs a newer schema than this build knows; its numbers count the steps."""

    def __init__(self, *, needed: int, known: int) -> None:
        super().__init__(f"needs schema {needed}, this localcontroller knows {known}")


def migrate(db: Database) -> None:
    """Take the steps that are missing. Raises: TooNew, and nothing was changed"""
    known, needed = len(MIGRATIONS._migrations), db.execute("PRAGMA user_version").fetchone()[0]
    if needed > known:
        raise TooNew(needed=needed, known=known)
    MIGRATIONS.apply(db)
    names = {migration.name for migration in MIGRATIONS._migrations}
    newer = [applied.name for applied in MIGRATIONS.applied(db) if applied.name not in names]
    if newer:
        log.info("ledger has additions of a newer localcontroller, kept as they are", steps=newer)


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
