"""Finds out which schema a ledger file has, and applies the missing migration steps.

LedgerFile calls this each time it opens a ledger. `migrations` is imported only if a step is
missing, because sqlite-utils takes 5 MiB of memory, and 15 MiB where numpy is installed.
"""

import sqlite3
from typing import Final

from common.logs import get_logger
from edgeai.errors import EdgeAIError

log = get_logger(__name__)

SET: Final = "localcontroller"
STEPS: Final = ["tasks_and_workers"]  # names of the steps in `migrations`, in order


class SchemaTooNew(EdgeAIError):
    """The ledger file needs a newer schema than this build knows."""

    def __init__(self, *, version: int, newest: int) -> None:
        """Args: numbers of migration steps"""
        super().__init__(f"needs schema {version}, this localcontroller supports {newest}")


def update_schema(connection: sqlite3.Connection) -> bool:
    """Apply the missing migration steps. Returns: whether any step was missing.

    Raises: SchemaTooNew; then nothing was changed
    """
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > len(STEPS):
        raise SchemaTooNew(version=version, newest=len(STEPS))
    applied = _applied_steps(connection)
    is_step_missing = any(step not in applied for step in STEPS)
    if is_step_missing:
        from localcontroller.ledger import migrations

        migrations.apply(connection)
    newer = [step for step in applied if step not in STEPS]
    if newer:
        log.info("ledger has additions of a newer localcontroller, kept as they are", steps=newer)
    return is_step_missing


def _applied_steps(connection: sqlite3.Connection) -> list[str]:
    """The names of the applied steps, as sqlite-utils recorded them in the file."""
    has_record = connection.execute(
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '_sqlite_migrations'"
    ).fetchone()
    if has_record is None:
        return []
    rows = connection.execute(
        "SELECT name FROM _sqlite_migrations WHERE migration_set = ? ORDER BY rowid", (SET,)
    )
    return [name for (name,) in rows]
