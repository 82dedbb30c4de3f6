"""The content of Models on this node's disk: whole content by its digest, and parts of content.

Content is verified before it gets its name, and never changes afterwards. It is here as long as a
Model of the node has it. What a crash leaves is whole content of a Model, or a part that a later
call goes on with. The directory contains:

    <sha256>         whole content
    <model>.model    the versions of one Model, newest first
    <model>.part     the bytes that have come of its next version
    <model>.mark     how many of them are on the disk for sure, and which content they belong to

All methods that write run on threads.
"""

import contextlib
import errno
import hashlib
import os
import re
import shutil
import threading
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from common.logs import get_logger
from edgeai.errors import EdgeAIError
from edgeai.ids import TaskKey, Uid, parse_task_key

log = get_logger(__name__)

NAMESPACE_SHARE: Final = 2  # the Models of one namespace get this part of the space, a half
SYNC_BYTES: Final = 16 * 1024 * 1024
_READ_BYTES: Final = 1024 * 1024
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class NoSpace(EdgeAIError):
    """The content does not fit beside the content that workers need. The text says the bounds."""


class ContentVersion(msgspec.Struct, frozen=True):
    """Whole content of a Model. `generation` is that of the Model's spec."""

    generation: int
    digest: str
    size: int
    name: str
    """Of the file, for libraries that read the format from it."""


class ModelRecord(msgspec.Struct, frozen=True):
    """The versions of a Model that this node has, newest first: the newest, and the one that a
    worker has loaded, or else the one before.
    """

    key: TaskKey
    uid: Uid
    versions: tuple[ContentVersion, ...]
    loaded: str = ""
    """Digest of the newest version that a worker has loaded."""

    @property
    def namespace(self) -> str:
        return parse_task_key(self.key).namespace

    def without_spare(self) -> "ModelRecord":
        """Without the version before the newest one, unless workers need it."""
        newest, *before = self.versions
        needed = (version for version in before if version.digest == self.loaded)
        return msgspec.structs.replace(self, versions=(newest, *needed))

    def with_newest(self, version: ContentVersion) -> "ModelRecord":
        """With this version, and all before it. Content that returns takes the place of what came
        after it: that was taken back, and no worker may fall back on it.
        """
        digests = [other.digest for other in self.versions]
        begin = digests.index(version.digest) + 1 if version.digest in digests else 0
        return msgspec.structs.replace(self, versions=(version, *self.versions[begin:]))

    def without_former(self) -> "ModelRecord":
        """With the newest version, and one before."""
        newest, *before = self.versions
        # Two broken versions in a row must not drive out the one that workers can load.
        before.sort(key=lambda other: other.digest != self.loaded)
        return msgspec.structs.replace(self, versions=(newest, *before[:1]))


class _Mark(msgspec.Struct, frozen=True):
    content: str
    tag: str
    bytes: int
    whole_bytes: int | None


class ContentStore:
    """Thread-safe.

    Args:
        max_bytes: of all content, whole and in parts
        sync_bytes: a crash loses at most so much of a part
    """

    def __init__(self, directory: Path, *, max_bytes: int, sync_bytes: int = SYNC_BYTES) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self.sync_bytes = sync_bytes
        self._lock = threading.Lock()
        self._uids: Mapping[TaskKey, Uid] | None = None  # of the Models of the node; None: unknown
        self._records: dict[TaskKey, ModelRecord] = {}
        try:
            self._records = {record.key: record for record in self._read_records()}
            self._delete_remains()
            self._sync_directory()  # what a killed process has renamed counts from now on
        except FileNotFoundError:
            pass  # there is no content yet
        except OSError as error:
            # The LocalController goes on: a bad disk for content must not take control away.
            log.warning("cannot tidy the content of Models", reason=str(error))

    def versions(self, key: TaskKey) -> tuple[ContentVersion, ...]:
        """The versions of the Model that are here, newest first."""
        record = self._records.get(key)
        return record.versions if record else ()

    def version(self, key: TaskKey, uid: Uid, generation: int) -> ContentVersion | None:
        """The version of this generation, when it is the newest one and its content is here."""
        record = self._records.get(key)
        if record is None or record.uid != uid or record.versions[0].generation != generation:
            return None
        return record.versions[0] if self._is_whole(record.versions[0]) else None

    def size(self, digest: str, namespace: str) -> int | None:
        """The bytes of content that a Model of the namespace has; None: none has it. Another tenant
        would get content for nothing but its digest.
        """
        for record in list(self._records.values()):
            for version in record.versions if record.namespace == namespace else ():
                if version.digest == digest and self._is_whole(version):
                    return version.size
        return None

    def read(self, digest: str, offset: int, max_bytes: int) -> bytes:
        """Bytes of whole content; b"" at its end. Raises: OSError"""
        with self._path(digest).open("rb") as file:
            file.seek(offset)
            return file.read(max_bytes)

    def switch(
        self, key: TaskKey, uid: Uid, version: ContentVersion, part: Path | None = None
    ) -> None:
        """Let the Model have this version. Its content is in `part`, or is here already. Atomic,
        also in a power cut.

        Raises: OSError, also for a Model that is not of the node any more, or has a later version
        """
        with self._lock:
            record = self._records.get(key)
            if record is None or record.uid != uid:
                record = ModelRecord(key, uid, ())
            is_late = any(version.generation < other.generation for other in record.versions[:1])
            if is_late or (self._uids is not None and self._uids.get(key) != uid):
                raise OSError(errno.ESTALE, "another version is wanted now")
            if _size(part or self._path(version.digest)) != version.size:
                raise OSError(errno.EIO, "the content has gone")
            record = record.with_newest(version)
            if part is None:  # what has come of other content would take room for ever
                for suffix in (".part", ".mark"):
                    (self._directory / f"{_file_name(key)}{suffix}").unlink(missing_ok=True)
            # The record comes first: without its content it does not count, and content without a
            # record is deleted. It has all versions: a kill must not take the newest of them away.
            self._write(record)
            if part is not None:
                part.replace(self._path(version.digest))
                self._path(version.digest).chmod(0o444)
                self._sync_directory()
            self._records[key] = record.without_former()
            self._delete_unused()

    def loaded(self, key: TaskKey, digest: str) -> None:
        """A worker has loaded this version of the Model. Raises: OSError"""
        with self._lock:
            record = self._records.get(key)
            for version in record.versions if record else ():
                if record is None or version.digest == record.loaded:
                    return  # it is known, or a newer one is loaded, too
                if version.digest == digest:
                    self._put(msgspec.structs.replace(record, loaded=digest))
                    return

    def keep_only(self, uids: Mapping[TaskKey, Uid]) -> None:
        """Forget all other Models, and delete their content. Raises: OSError"""
        with self._lock:
            self._uids = dict(uids)
            for key in self._records.keys() - uids.keys():
                del self._records[key]
            names = set(map(_file_name, uids))
            for file in self._files(".model", ".part", ".mark"):
                if file.stem not in names:
                    file.unlink(missing_ok=True)
            self._delete_unused()

    def open_part(self, key: TaskKey, content: str) -> "ContentPart":
        """The part of the Model's next version. One caller at a time opens it, and closes it.

        Args: content: identifies the content; a part of other content is not gone on with
        Raises: OSError
        """
        # Not before: on a full disk the LocalController starts, and the Model tells the problem.
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return ContentPart(self, key, self._directory / f"{_file_name(key)}.part", content)

    def make_room(self, namespace: str, bytes_: int) -> None:
        """Let more bytes fit, by deleting unneeded versions of this namespace, if that is enough.

        Raises: NoSpace, OSError
        """
        with self._lock:
            after = dict(self._records)
            for key, record in self._records.items():
                if self._room(after.values(), namespace) < bytes_ and record.namespace == namespace:
                    after[key] = record.without_spare()
            if self._room(after.values(), namespace) < bytes_:
                raise NoSpace(
                    f"{bytes_} more bytes do not fit on the disk, or into --model-max-bytes "
                    f"({self._max_bytes}), of which one namespace gets a half"
                )
            changed = [record for key, record in after.items() if record != self._records[key]]
            for record in changed:
                self._put(record)
            if changed:
                self._delete_unused()

    def _room(self, records: Collection[ModelRecord], namespace: str) -> int:
        """The bytes that may come for a Model of the namespace, if the store had these records."""
        whole = _whole_bytes(records)
        own = _whole_bytes([record for record in records if record.namespace == namespace])
        parts = {file.name: _size(file) for file in self._files(".part")}
        own += sum(size for name, size in parts.items() if name.startswith(_prefix(namespace)))
        deleted = _whole_bytes(self._records.values()) - whole
        return min(
            shutil.disk_usage(self._directory).free + deleted,
            self._max_bytes // NAMESPACE_SHARE - own,
            self._max_bytes - whole - sum(parts.values()),
        )

    def _delete_unused(self) -> None:
        records = self._records.values()
        used = {version.digest for record in records for version in record.versions}
        for file in self._files(""):
            if _DIGEST.fullmatch(file.name) and file.name not in used:
                log.info("content deleted", file=file.name)
                file.unlink(missing_ok=True)

    def _path(self, digest: str) -> Path:
        """Raises: FileNotFoundError for a text that is no digest, for example a path"""
        if not _DIGEST.fullmatch(digest):
            raise FileNotFoundError(errno.ENOENT, "no digest")
        return self._directory / digest

    def _files(self, *suffixes: str) -> list[Path]:
        """Empty when no content has come yet."""
        files = self._directory.iterdir() if self._directory.exists() else ()
        return [file for file in files if file.suffix in suffixes]

    def _put(self, record: ModelRecord) -> None:
        self._write(record)
        self._records[record.key] = record

    def _write(self, record: ModelRecord) -> None:
        path = self._directory / f"{_file_name(record.key)}.model"
        write_atomically(path, msgspec.json.encode(record))
        self._sync_directory()

    def _read_records(self) -> Iterator[ModelRecord]:
        for file in self._directory.glob("*.model"):
            try:
                record = msgspec.json.decode(file.read_bytes(), type=ModelRecord)
            except (OSError, msgspec.DecodeError) as error:
                log.warning("cannot read what content a Model has", reason=str(error))
                continue
            # Whole content has its size. Else a crash, a person or a bad disk was at work.
            versions = tuple(filter(self._is_whole, record.versions))
            if versions:
                yield msgspec.structs.replace(record, versions=versions).without_former()

    def _is_whole(self, version: ContentVersion) -> bool:
        return _size(self._directory / version.digest) == version.size

    def _delete_remains(self) -> None:
        """Delete what a crash has left beside the content of Models and parts."""
        for file in self._files(".mark", ".new"):
            if file.suffix == ".new" or not file.with_suffix(".part").exists():
                file.unlink()
        self._delete_unused()

    def _sync_directory(self) -> None:
        fd = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


class ContentPart:
    """Content that comes piece by piece. `size` bytes of it are here, which belong to `tag`, of
    `whole_size` bytes; None: not known. One call at a time.

    Raises: OSError, NoSpace
    """

    def __init__(self, store: ContentStore, key: TaskKey, path: Path, content: str) -> None:
        self._store = store
        self._key, self._namespace = key, parse_task_key(key).namespace
        self._path, self._content = path, content
        self._mark_path = path.with_suffix(".mark")
        path.touch(mode=0o600)
        self._file = path.open("r+b", buffering=0)
        mark = self._read_mark()
        self.tag, self.size, self.whole_size = mark.tag, mark.bytes, mark.whole_bytes
        self._file.truncate(self.size)
        self._hash = hashlib.sha256()
        while chunk := self._file.read(_READ_BYTES):
            self._hash.update(chunk)
        self._synced = self.size

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def begin(self, tag: str, whole_size: int | None) -> None:
        """Begin again, with content of this tag."""
        self._file.seek(0)
        self._file.truncate()
        self.tag, self.size, self.whole_size = tag, 0, whole_size
        self._synced, self._hash = 0, hashlib.sha256()
        self._write_mark()

    def write(self, chunk: bytes) -> None:
        self._store.make_room(self._namespace, len(chunk))
        self._file.seek(self.size)
        rest = memoryview(chunk)
        while rest:
            rest = rest[self._file.write(rest) :]
        self._hash.update(chunk)
        self.size += len(chunk)
        if self.size - self._synced >= self._store.sync_bytes:
            self._sync()

    def make_room(self, bytes_: int) -> None:
        self._store.make_room(self._namespace, bytes_)

    def commit(self, uid: Uid, generation: int, name: str) -> ContentVersion:
        """The content is whole and has the right digest: let the Model have it."""
        self._sync()
        version = ContentVersion(generation, self.digest, self.size, name)
        self._store.switch(self._key, uid, version, self._path)
        self._mark_path.unlink(missing_ok=True)
        return version

    def discard(self) -> None:
        self._mark_path.unlink(missing_ok=True)
        self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Keep what has come."""
        with contextlib.suppress(OSError):
            if self.size > self._synced and self._path.exists():
                self._sync()
        with contextlib.suppress(OSError):
            self._file.close()

    def _sync(self) -> None:
        """Let a later part of this Model go on from here, also after a power cut."""
        os.fdatasync(self._file.fileno())
        self._synced = self.size
        self._write_mark()

    def _read_mark(self) -> _Mark:
        nothing = _Mark(self._content, "", 0, None)
        try:
            mark = msgspec.json.decode(self._mark_path.read_bytes(), type=_Mark)
        except (OSError, msgspec.DecodeError):
            return nothing
        is_here = mark.bytes <= os.fstat(self._file.fileno()).st_size
        return mark if is_here and mark.content == self._content else nothing

    def _write_mark(self) -> None:
        mark = _Mark(self._content, self.tag, self.size, self.whole_size)
        write_atomically(self._mark_path, msgspec.json.encode(mark))


def _prefix(namespace: str) -> str:
    """Of the files of all Models of a namespace."""
    return hashlib.sha256(namespace.encode()).hexdigest()[:16]


def _file_name(key: TaskKey) -> str:
    name = hashlib.sha256(key.encode()).hexdigest()[:32]
    return f"{_prefix(parse_task_key(key).namespace)}-{name}"


def _whole_bytes(records: Collection[ModelRecord]) -> int:
    contents = {version.digest: version.size for record in records for version in record.versions}
    return sum(contents.values())


def _size(file: Path) -> int:
    """The bytes of a file; -1: there is none."""
    with contextlib.suppress(OSError):
        return file.stat().st_size
    return -1


def write_atomically(path: Path, data: bytes) -> None:
    """Raises: OSError; then the file is as before"""
    new = path.with_name(f"{path.name}.new")
    with new.open("wb") as file:
        file.write(data)
        file.flush()
        os.fdatasync(file.fileno())
    new.replace(path)
