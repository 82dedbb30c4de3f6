"""The samples that edge workers found hard, with the answers of the cloud, as lines of a file.

A cloud worker keeps them where the spec of its service says so. Each line is a JSON object:

    {"sample": nested lists of numbers, "dtype": "float32", "answer": what the estimator answered}

The file has a bound. When it is full, the older half goes.
"""

import contextlib
import fcntl
import logging
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from edgeai.worker.environment import wrong
from edgeai.worker.tensors import DTYPES, Array

log = logging.getLogger(__name__)


class HardExample(NamedTuple):
    sample: Array
    answer: Any
    """Of the cloud's estimator; lists in place of arrays."""


class _Line(msgspec.Struct, frozen=True):
    sample: Any
    dtype: str
    answer: Any


class HardExampleFile:
    """Appends hard examples to a file. Several threads and processes may append to one file.

    Raises: SettingsError if the file cannot be written
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path, self._max_bytes = path, max_bytes
        self._lock = threading.Lock()
        self._is_failing = False
        try:
            with self._locked():
                self._end_last_line()
        except OSError as error:
            problem = f"is {path}, which cannot be written ({error.strerror})"
            remedy = "let the container's user write it, or remove hardExamples from the spec"
            raise wrong("HARD_EXAMPLES_PATH", f"{problem}; {remedy}") from error

    def append(self, samples: Array, answers: Sequence[Any] | Array) -> None:
        """Append a line for each sample. A full or broken disk loses them, and raises nothing:
        the answers matter more.
        """
        try:
            self._write(b"".join(map(_line, samples, answers)))
            self._is_failing = False
        except (OSError, TypeError, ValueError) as error:
            # Once, and not for each request.
            if not self._is_failing:
                log.warning("hard examples are lost: path=%s error=%s", self._path, error)
            self._is_failing = True

    def _write(self, lines: bytes) -> None:
        if len(lines) > self._max_bytes:
            raise ValueError(f"a request has {len(lines)} bytes, the file {self._max_bytes}")
        with self._locked():
            if self._path.stat().st_size + len(lines) > self._max_bytes:
                self._drop_older(min(self._max_bytes // 2, self._max_bytes - len(lines)))
            with self._path.open("ab", buffering=0) as file:
                size = file.tell()
                if file.write(lines) != len(lines):
                    file.truncate(size)  # a part of a line would spoil the next one
                    raise OSError("the disk is full")

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """No other thread or process changes the file."""
        # On a file of its own, because `_drop_older` puts another file in place of this one.
        lock_path = self._path.with_name(f"{self._path.name}.lock")
        with self._lock, lock_path.open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _end_last_line(self) -> None:
        """Make the file. End the line in which a kill has stopped a process."""
        with self._path.open("ab+") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                file.write(b"" if file.read(1) == b"\n" else b"\n")

    def _drop_older(self, max_bytes: int) -> None:
        """Leave the newest whole lines, at most `max_bytes` of them."""
        newer = self._path.with_name(f"{self._path.name}.newer")
        with self._path.open("rb") as file, newer.open("wb") as copy:
            file.seek(max(0, file.seek(0, os.SEEK_END) - max_bytes - 1))
            file.readline()
            shutil.copyfileobj(file, copy)
        newer.replace(self._path)


def hard_examples(path: Path) -> Iterator[HardExample]:
    """The hard examples in a file, the oldest first. Leaves out lines that are none.

    Raises: OSError
    """
    with path.open("rb") as file:
        for text in file:
            # The last line may be there in part while a cloud worker writes.
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, ValueError):
                line = msgspec.json.decode(text, type=_Line)
                if line.dtype in DTYPES:
                    yield HardExample(np.array(line.sample, dtype=line.dtype), line.answer)


def _line(sample: Array, answer: Any) -> bytes:
    line = _Line(sample.tolist(), sample.dtype.name, answer)
    return msgspec.json.encode(line, enc_hook=_plain) + b"\n"


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"type {type(value).__name__} is neither a plain value nor an array")
