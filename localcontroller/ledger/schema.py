"""Which schema a ledger has, and whether steps of it are missing.

Asked each time a ledger is opened. The steps themselves are loaded only where one is due, for
sqlite-utils takes 5 MiB, and 15 where numpy is installed.
"""

import sqlite3
from typing import Final

from common.errors import EdgeAIError
from common.logs import get_logger

log = get_logger(__name__)

SET: Final = "localcontroller"
STEPS: Final = ["tasks_and_workers"]  # names of the steps in `migrations`, in their order


class TooNew(EdgeAIError):
    """The ledger needs a newer schema than this build knows; its numbers count the steps."""

    def __init__(self, *, needed: int, known: int) -> None:
        super().__init__(f"needs schema {needed}, this localcontroller knows {known}")


def update(connection: sqlite3.Connection) -> bool:
    """Take the steps that are missing. Returns: whether any was

    Raises: TooNew, and nothing was changed
    """
    needed = connection.execute("PRAGMA user_version").fetchone()[0]
    if needed > len(STEPS):
        raise TooNew(needed=needed, known=len(STEPS))
    taken = _taken(connection)
    is_due = any(step not in taken for step in STEPS)
    if is_due:
        from localcontroller.ledger import migrations

        migrations.apply(connection)
    newer = [step for step in taken if step not in STEPS]
    if newer:
        log.info("ledger has additions of a newer localcontroller, kept as they are", steps=newer)
    return is_due


def _taken(connection: sqlite3.Connection) -> list[str]:
    """The names that sqlite-utils has noted of steps taken."""
    is_there = connection.execute(
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '_sqlite_migrations'"
    ).fetchone()
    if is_there is None:
        return []
    rows = connection.execute(
        "SELECT name FROM _sqlite_migrations WHERE migration_set = ? ORDER BY rowid", (SET,)
    )
    return [name for (name,) in rows]
