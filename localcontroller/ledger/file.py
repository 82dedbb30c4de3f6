"""The ledger's file: opens it, locks it, replaces it when damaged, and keeps a disk reserve.

`Ledger.open` opens a LedgerFile on a thread; after that only the writer's thread uses the
LedgerFile. A commit is durable: the module checks that SQLite uses WAL with synchronous=FULL, and
syncs the directory after it opens the file. One process owns the directory (flock), so the
connection keeps its lock on the file and needs no shared memory file. The directory contains:

    lock             flock of the LocalController that uses the directory
    ledger.db, -wal  the ledger and its write-ahead log
    ledger.db.damaged-<n>, …-wal   damaged ledgers, kept for a person to look at
    reserve          disk space that is released when the disk is full, so that final states fit
"""

import contextlib
import fcntl
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from common.logs import get_logger
from edgeai.errors import EdgeAIError, StateError, Unavailable
from localcontroller.ledger.schema import SchemaTooNew, update_schema
from localcontroller.ledger.tables import LedgerDamaged, LedgerFull, LedgerTables, LedgerView

log = get_logger(__name__)

T = TypeVar("T")
LedgerOperation = Callable[[LedgerTables], Any]

LEDGER: Final = "ledger.db"
_OWN_FILES: Final = ("lock", LEDGER, "reserve")  # and names that go on after these
_OTHERS: Final = 0o077  # rights of group and others
MAX_DAMAGED: Final = 3  # the newest damaged ledgers that are kept; older ones are deleted
WAL_PAGES: Final = 256  # pages between checkpoints; keeps the log near WAL_BYTES
WAL_BYTES: Final = 1024 * 1024
_SHORT_BYTES: Final = 2 * WAL_BYTES  # the log and a checkpoint of it

_SQLITE_PRIMARY: Final = 0xFF  # mask: an error code without its details
_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_NOT_DAMAGE: Final = frozenset(
    {
        sqlite3.SQLITE_AUTH,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
    }
)


def _sqlite_code(error: BaseException) -> int:
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)


def is_full(error: BaseException) -> bool:
    """Whether the disk has no space. For a full quota SQLite reports IOERR_WRITE, not FULL."""
    code = _sqlite_code(error)
    return code & _SQLITE_PRIMARY == sqlite3.SQLITE_FULL or code == sqlite3.SQLITE_IOERR_WRITE


def is_damage(error: BaseException) -> bool:
    """Whether the ledger file is damaged and must be replaced."""
    return isinstance(error, LedgerDamaged) or _sqlite_code(error) & _SQLITE_PRIMARY in _DAMAGE


def random_id() -> str:
    return secrets.token_hex(16)


class LedgerFile:
    """Raises: StateError when the directory cannot be used, or is in use; LedgerFull"""

    def __init__(
        self,
        directory: Path,
        *,
        max_bytes: int,
        reserve_bytes: int,
        new_id: Callable[[], str] = random_id,
    ) -> None:
        self._directory = directory
        self._new_id = new_id
        self._path = directory / LEDGER
        self.max_bytes = max_bytes
        self.reserve = DiskReserve(directory / "reserve", reserve_bytes)
        self._lock_fd = _lock_state_dir(directory)
        self._db: sqlite3.Connection | None = None
        self._stamps: tuple[_Stamp, ...] = ()  # of the files after this process's last write
        self.was_updated = False  # opening ran a migration, which loads sqlite-utils
        try:
            self._open_or_replace()
        except BaseException:
            self.close()
            raise
        self.reserve.fill()

    @property
    def used_bytes(self) -> int:
        """Bytes on disk: the ledger file and its write-ahead log."""
        files = (self._path, self._path.with_name(LEDGER + "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    @property
    def set_aside(self) -> int:
        """Number of damaged ledgers that the directory keeps."""
        return len(_set_aside_numbers(self._path))

    @property
    def changes(self) -> int:
        """Rows changed since the file was opened."""
        return 0 if self._db is None else self._db.total_changes

    def transact(self, operations: Sequence[LedgerOperation]) -> list[Any]:
        """Run `operations` in one transaction.

        Returns: for each operation its result, or the EdgeAIError that it raised
        Raises:
            sqlite3.Error, LedgerDamaged: no operation has an effect
            Unavailable: no ledger is open
        """
        db, tables = self._opened()
        # Nobody else writes these files. SQLite would go on with the pages that it has in memory.
        if _stamps(self._path) != self._stamps:
            raise LedgerDamaged(f"{LEDGER} was overwritten, removed or replaced while in use")
        inodes = [stamp.inode for stamp in self._stamps]
        try:
            with _transaction(db):
                results = [_result_or_error(operation, tables) for operation in operations]
        finally:
            self._stamps = _stamps(self._path)
        if [stamp.inode for stamp in self._stamps] != inodes:
            raise LedgerDamaged(f"{LEDGER} was removed or replaced while in use")
        return results

    def view(self, last: LedgerView | None = None) -> LedgerView:
        return self._opened()[1].view(last)

    def replace_damaged(self, reason: str) -> None:
        """Set the damaged ledger aside and begin an empty one. Raises: StateError, LedgerFull"""
        self._close_database()
        try:
            kept_as = _set_aside(self._path)
        except OSError as error:
            raise StateError(
                self._directory,
                f"cannot set the damaged {LEDGER} aside: {error.strerror}",
                "make it a writable directory again, or restart with another --state-dir",
            ) from error
        log.error("ledger damaged, started a new one", reason=reason, kept_as=str(kept_as))
        self._open()

    def close(self) -> None:
        self._close_database()
        os.close(self._lock_fd)

    @property
    def is_disk_short(self) -> bool:
        """Whether the disk may be full, so that only a write can tell."""
        try:
            disk = os.statvfs(self._directory)
        except OSError:
            return True
        return not self.reserve.is_filled or disk.f_bavail * disk.f_frsize < _SHORT_BYTES

    # ---- opening --------------------------------------------------------------------------------

    def _opened(self) -> tuple[sqlite3.Connection, LedgerTables]:
        if self._db is None:
            try:
                self._open_or_replace()
            except StateError as error:
                raise Unavailable(str(error)) from error
        assert self._db is not None
        return self._db, self._tables

    def _open_or_replace(self) -> None:
        try:
            self._open()
        except (sqlite3.DatabaseError, LedgerDamaged) as error:
            self.replace_damaged(str(error))

    def _open(self) -> None:
        """Raises: StateError, LedgerFull; any other error of SQLite means damage"""
        try:
            self._db, self._tables = self._connect()
        except sqlite3.DatabaseError as error:
            if not is_full(error):
                raise self._unusable(error) from error
            if not self.reserve.release():
                raise LedgerFull(f"no space to open {self._path}") from error
            self._open()
        _sync_ledger_directory(self._directory)
        self._stamps = _stamps(self._path)

    def _unusable(self, error: sqlite3.DatabaseError) -> Exception:
        if _sqlite_code(error) & _SQLITE_PRIMARY not in _NOT_DAMAGE:
            return error
        return StateError(
            self._directory,
            f"cannot open {LEDGER}: {error}",
            "make it writable for this process, and close programs that have the file open",
        )

    def _connect(self) -> tuple[sqlite3.Connection, LedgerTables]:
        # SQLite would make the file readable for all. It gives the log the mode of the file.
        with contextlib.suppress(OSError):  # SQLite says what is wrong
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            _prepare_connection(db, self._directory)
            (page_bytes,) = db.execute("PRAGMA page_size").fetchone()
            db.execute(f"PRAGMA max_page_count = {self.max_bytes // page_bytes}")
            self.was_updated |= _update_schema(db, self._directory)
            tables = LedgerTables(db, max_bytes=self.max_bytes)
            with _transaction(db):
                tables.ensure_ledger_id(self._new_id())
                tables.check()
        except BaseException:
            db.close()
            raise
        return db, tables

    def _close_database(self) -> None:
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error):  # the closing checkpoint may fail
                self._db.close()
            self._db = None


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Commit at the end; roll back if the body or the commit fails."""
    db.execute("BEGIN")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # after some errors SQLite has rolled back already
            db.execute("ROLLBACK")
        raise


def _result_or_error(operation: LedgerOperation, tables: LedgerTables) -> Any:
    """Run one operation. An EdgeAIError comes before its first write, so the batch can go on."""
    try:
        return operation(tables)
    except EdgeAIError as error:
        return error


class _Stamp(NamedTuple):
    """What of a file changes when somebody removes, replaces or writes it. It does not change with
    the rights and the number of names, which a backup changes.
    """

    inode: int | None = None
    size: int = 0
    written_ns: int = 0


def _stamps(path: Path) -> tuple[_Stamp, ...]:
    """The stamps of ledger and log."""
    return tuple(_stamp(file) for file in (path, path.with_name(f"{path.name}-wal")))


def _stamp(file: Path) -> _Stamp:
    try:
        stat = file.stat()
    except OSError:
        return _Stamp()
    return _Stamp(stat.st_ino, stat.st_size, stat.st_mtime_ns)


def _prepare_connection(db: sqlite3.Connection, directory: Path) -> None:
    db.execute("PRAGMA locking_mode = EXCLUSIVE")
    journal = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    db.execute("PRAGMA synchronous = FULL")
    synchronous = db.execute("PRAGMA synchronous").fetchone()[0]
    if (journal, synchronous) != ("wal", 2):
        raise StateError(
            directory,
            f"its file system keeps no durable ledger (journal {journal}, sync {synchronous})",
            "put it on a local disk",
        )
    db.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
    db.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
    verdict = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    if verdict != "ok":
        raise LedgerDamaged(verdict)


def _update_schema(db: sqlite3.Connection, directory: Path) -> bool:
    """Apply missing migration steps. Returns: whether a step was missing. Raises: StateError"""
    try:
        return update_schema(db)
    except SchemaTooNew as error:
        raise StateError(
            directory,
            f"{LEDGER} {error}",
            "install the release that ran here last, or the one before it; or move the file away "
            "to start from what the cloud knows, without what it was not told yet",
        ) from error


def _tighten(directory: Path) -> None:
    """Take the rights of group and others from the files of the ledger, and from the directory when
    it has nothing else. An earlier release, or the kubelet, may have made them readable for all.
    """
    paths = [path for path in directory.iterdir() if path.name.startswith(_OWN_FILES)]
    is_dedicated = len(paths) == sum(1 for _ in directory.iterdir())
    for path in (*paths, *([directory] if is_dedicated else [])):
        stat = path.lstat()
        if stat.st_uid == os.geteuid() and stat.st_mode & _OTHERS and not path.is_symlink():
            path.chmod(stat.st_mode & ~_OTHERS & 0o7777)


def _lock_state_dir(directory: Path) -> int:
    """Lock the directory until the returned descriptor is closed, or the process ends."""
    try:
        if not directory.is_dir():
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _sync_ledger_directory(directory.parent)
        _tighten(directory)
        fd = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StateError(
            directory,
            f"cannot be written: {error.strerror}",
            "give --state-dir a directory on a writable disk that this process owns",
        ) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        raise StateError(
            directory,
            "is used by another localcontroller",
            "stop that one, or give this one its own --state-dir",
        ) from error
    return fd


def _sync_ledger_directory(directory: Path) -> None:
    """Sync the directory: a new file survives a power cut only with its directory entry."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _set_aside(path: Path) -> Path:
    """Give the damaged ledger and its log new names. Keep the newest MAX_DAMAGED such ledgers."""
    numbers = _set_aside_numbers(path)
    number = numbers[-1] + 1 if numbers else 1
    for old in numbers[: max(0, len(numbers) + 1 - MAX_DAMAGED)]:
        for suffix in ("", "-wal"):
            _damaged_path(path, old, suffix).unlink(missing_ok=True)
    for suffix in ("", "-wal"):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(_damaged_path(path, number, suffix))
    _sync_ledger_directory(path.parent)
    return _damaged_path(path, number, "")


def _set_aside_numbers(path: Path) -> list[int]:
    """The numbers of the damaged ledgers that are kept, the oldest first."""
    return sorted(
        int(suffix)
        for file in path.parent.glob(f"{path.name}.damaged-*")
        if (suffix := file.name.rpartition("-")[2]).isdecimal()
    )


def _damaged_path(path: Path, number: int, suffix: str) -> Path:
    return path.with_name(f"{path.name}.damaged-{number}{suffix}")


class DiskReserve:
    """A file that occupies disk space. Deleting it makes room for final states on a full disk."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self._path = path
        self._size_bytes = size_bytes
        self.is_filled = False

    def fill(self) -> bool:
        """Allocate all of the space, or none. Returns: whether the space is allocated."""
        if self.is_filled:
            return True
        try:
            self._allocate()
        except OSError:
            self.release()
            return False
        self.is_filled = True
        return True

    def _allocate(self) -> None:
        if not self._size_bytes:
            return
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, self._size_bytes)
            os.fsync(fd)
        finally:
            os.close(fd)

    def release(self) -> bool:
        """Delete the file. Returns: whether there was a file."""
        self.is_filled = False
        try:
            self._path.unlink()
        except OSError:
            return False
        return True
