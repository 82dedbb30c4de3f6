"""Directories with the content of Models, on disks that lose what was not synced.

The shipped store works on real files. Python's audit hooks tell of each operation on a name (open,
rename, remove, …), and stand-ins for the functions of `os` of each sync. At one of these steps a
process can end: its work goes on, and reaches no disk. After a power cut a name is what it was at
the last sync of the directory or at any step since, and content is `torn`.
"""

import functools
import os
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.simulation.torn import torn

PLENTY: Final = 2**40
_READS: Final = ("os.listdir", "os.scandir")


class _State(NamedTuple):
    """What a disk has. Files have numbers."""

    names: list[dict[str, int]]
    """The names at the last sync of the directory, and at each step since."""
    contents: dict[int, bytes]
    durable: dict[int, bytes]
    """At the last sync of the file."""


class ContentDisk:
    """Args: root: an empty directory, best in memory"""

    def __init__(self, root: Path) -> None:
        self._root, self._generation = root, 0
        self.free_bytes = PLENTY
        self.ends_after = 0  # steps until the process ends; 0: it goes on
        self.at_end: _State | None = None  # the process ends when its present work is done
        self.steps = 0
        self._is_looking = False
        self._names: list[dict[str, int]] = []
        self._durable: dict[int, bytes] = {}
        self._begin(_State([{}], {}, {}))

    @property
    def is_frozen(self) -> bool:
        return self.at_end is not None

    def note_step(self) -> None:
        """An operation on a name, or a sync, follows."""
        if self._is_looking or self.is_frozen:
            return
        self.steps += 1
        self._look()
        if self.ends_after:
            self.ends_after -= 1
            if not self.ends_after:
                self.at_end = self._state()

    def note_sync(self, path: Path) -> None:
        self.note_step()
        if self.is_frozen:
            return
        if path == self.directory:
            self._names = self._names[-1:]
        else:
            number = path.stat().st_ino
            self._durable[number] = self._read(number)

    def end_process(self) -> None:
        self._begin(self.at_end or self._state())

    def cut_power(self, random_: random.Random) -> None:
        state = self.at_end or self._state()
        names = random_.choice(state.names)
        contents = {
            number: torn(state.durable.get(number, b""), state.contents[number], random_)
            for number in names.values()
        }
        self._begin(_State([names], contents, contents))

    def lose(self) -> None:
        self._begin(_State([{}], {}, {}))

    def close(self) -> None:
        content_disks.pop(str(self.directory), None)

    # ---------------------------------------------------------------------------------------------

    def _begin(self, state: _State) -> None:
        """Give the next process a directory with what the names say last."""
        if self._generation:
            self.close()
        self._generation += 1
        self.directory = self._root / f"{self._generation}" / "content"
        self._files = self.directory.parent / "files"  # all that a power cut may bring back
        self.at_end, self.ends_after, self._is_looking = None, 0, True
        self.directory.mkdir(parents=True)
        self._files.mkdir()
        numbers: dict[int, int] = {}
        for number, content in state.contents.items():
            file = self._files / "new"
            file.write_bytes(content)
            numbers[number] = file.stat().st_ino
            file.rename(self._files / str(numbers[number]))
        self._names = [{k: numbers[v] for k, v in names.items()} for names in state.names]
        self._durable = {numbers[k]: v for k, v in state.durable.items() if k in numbers}
        for name, number in self._names[-1].items():
            (self.directory / name).hardlink_to(self._files / str(number))
        self._is_looking = False
        content_disks[str(self.directory)] = self

    def _look(self) -> None:
        """Note the present names, and keep their files."""
        self._is_looking = True
        names = {file.name: file.stat().st_ino for file in self.directory.iterdir()}
        if names != self._names[-1]:
            for name, number in names.items():
                file = self._files / str(number)
                if not file.exists():
                    file.hardlink_to(self.directory / name)
            self._names.append(names)
        self._is_looking = False

    def _state(self) -> _State:
        self._look()
        numbers = {number for names in self._names for number in names.values()}
        contents = {number: self._read(number) for number in sorted(numbers)}
        return _State(list(self._names), contents, dict(self._durable))

    def _read(self, number: int) -> bytes:
        self._is_looking = True
        content = (self._files / str(number)).read_bytes()
        self._is_looking = False
        return content


content_disks: Final[dict[str, ContentDisk]] = {}  # by directory


def _disk_of(path: Any) -> ContentDisk | None:
    return content_disks.get(str(path)) or content_disks.get(os.path.dirname(str(path)))


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if event != "open" and (not event.startswith("os.") or event in _READS):
        return
    for each in args[:2] if content_disks else ():
        if isinstance(each, str | os.PathLike) and (disk := _disk_of(each)) is not None:
            disk.note_step()
            return


def _noting(sync: Callable[[Any], None]) -> Callable[[Any], None]:
    def noting(fd: Any) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{fd}")) if content_disks else Path()
        disk = _disk_of(path)
        if disk is None:
            sync(fd)
        else:
            disk.note_sync(path)

    return noting


@functools.cache
def install() -> None:
    """Let `content_disks` hear of what happens in their directories."""
    usage = shutil.disk_usage

    def disk_usage(path: Any) -> Any:
        disk = _disk_of(path)
        found = usage(path)
        return found if disk is None else found._replace(free=disk.free_bytes)

    stand_ins: dict[Any, dict[str, Any]] = {
        os: {"fsync": _noting(os.fsync), "fdatasync": _noting(os.fdatasync)},
        shutil: {"disk_usage": disk_usage},
    }
    for module, functions in stand_ins.items():
        vars(module).update(functions)
    sys.addaudithook(_audit)
