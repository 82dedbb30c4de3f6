"""A machine inside this one, with a network, files, processes and a name of its own.

Nodes of the test cluster are made of these (node.py). One process holds everything: when it ends,
also because the test run was killed, the kernel ends every process of the machine and takes its
mounts and network interfaces away. What the machine writes outside its own directory stays in
memory; the files of this machine show through and are never changed.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.cluster.programs import Program
from tests.support.waiting import eventually

_RUN_S: Final = 120.0
_BOOT: Final = """
set -eu
mkdir "$DIRECTORY/files"
mount -t tmpfs machine "$DIRECTORY/files"
cd "$DIRECTORY/files"
mkdir changed work root
mount -t overlay machine -o "lowerdir=/,upperdir=$PWD/changed,workdir=$PWD/work" root
cd root
for each in proc sys dev; do mount --rbind "/$each" "./$each"; done
mount -t tmpfs machine ./run
for each in "$DIRECTORY" $VISIBLE; do
  mkdir -p "./$each"
  mount --bind "$each" "./$each"
done
rm -f ./etc/resolv.conf  # names of this machine's network are not known on that one
mkdir old
pivot_root . old
umount -l /old
rmdir /old
hostname "$NAME"
ip link set lo up
touch "$DIRECTORY/booted"
while :; do sleep 3600 & wait $!; done
"""
_FORGET: Final = """
set -eu
cut -d ' ' -f 5 /proc/self/mountinfo | grep -E '^(/run|/var/lib/kubelet)/' | sort -r |
while read -r mount; do umount -l "$mount"; done
rm -rf /run/*
"""


class Machine:
    """Args:
    name: its host name
    directory: empty; the same path is seen inside, on disk
    visible: more directories of this machine to be seen inside, where they are mounts
    """

    def __init__(self, name: str, directory: Path, *, visible: Sequence[Path] = ()) -> None:
        self.name = name
        self.directory = directory
        environment = {
            "NAME": name,
            "DIRECTORY": str(directory),
            "VISIBLE": " ".join(map(str, visible)),
        }
        spaces = ("--mount", "--net", "--uts", "--ipc", "--pid", "--fork")
        argv = ["unshare", *spaces, "--kill-child", "--mount-proc", "sh", "-c", _BOOT]
        self._program = Program(argv, log=directory / "machine.log", environment=environment)
        self._first_process = 0  # pid of the one inside that holds everything, 0: none

    def start(self) -> None:
        """Raises: ProgramEnded, NeverHappened"""
        self._program.start()
        booted = self.directory / "booted"
        self._program.eventually("the boot", booted.exists)
        (self._first_process,) = _children(self._program.pid)

    def stop(self) -> None:
        """Kill whatever runs in it, and wait until that has ended."""
        self._program.stop(signal.SIGKILL)
        pid, self._first_process = self._first_process, 0
        if pid:
            eventually(f"the end of machine {self.name}, process {pid}", lambda: not _runs(pid))

    def kill_all(self) -> None:
        """Whatever runs in it, as a power cut does, but for the process that holds it.

        The mounts of what ran, and /run, are gone, too. Other files stay as they are.
        """
        eventually(f"the end of all on machine {self.name}", self._is_bare)
        self.run("sh", "-c", _FORGET)

    def _is_bare(self) -> bool:
        """Kill what runs. Returns: whether nothing did"""
        others = _members(self.pid)
        for pid in others:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not others

    def check_alive(self) -> None:
        self._program.check_alive()

    @property
    def pid(self) -> int:
        """Of a process inside, as `ip link … netns PID` wants it."""
        assert self._first_process, f"machine {self.name} is not running"
        return self._first_process

    def program(self, *argv: str, log: Path) -> Program:
        """One to be started inside; stopping it kills."""
        return Program(self.inside("setpriv", "--pdeathsig", "KILL", "--", *argv), log=log)

    def run(self, *argv: str, stdin: bytes | None = None) -> str:
        """What the command, run inside, says. Raises: AssertionError when it fails"""
        done = subprocess.run(
            self.inside(*argv), input=stdin, capture_output=True, timeout=_RUN_S, check=False
        )
        said = done.stdout.decode(errors="replace")
        assert done.returncode == 0, (
            f"{' '.join(argv)} on {self.name} ended with {done.returncode}:\n"
            f"{said}{done.stderr.decode(errors='replace')}"
        )
        return said

    def inside(self, *argv: str) -> list[str]:
        """The command that runs `argv` inside."""
        spaces = ("--mount", "--net", "--uts", "--ipc", "--pid")
        return ["nsenter", "--target", str(self.pid), *spaces, "--", *argv]


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _runs(pid: int) -> bool:
    """Whether it exists and is no zombie; the first of a machine ends after all others."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _members(first: int) -> list[int]:
    """All processes of a machine, those of its containers too, but for `first` and its sleep."""
    space = os.readlink(f"/proc/{first}/ns/pid")
    parents: dict[int, int] = {}
    members: set[int] = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(ValueError, OSError):
            pid = int(entry.name)
            fields = (entry / "stat").read_text()
            name, rest = fields.partition("(")[2].rsplit(")", 1)
            state, parent = rest.split()[:2]
            if state == "Z" or (name, int(parent)) == ("sleep", first):
                continue
            parents[pid] = int(parent)
            if os.readlink(entry / "ns" / "pid") == space:
                members.add(pid)
    members.discard(first)
    below = {pid for pid in parents if first in _ancestors(pid, parents)}
    return sorted(members | below)


def _ancestors(pid: int, parents: dict[int, int]) -> set[int]:
    found: set[int] = set()
    while (pid := parents.get(pid, 0)) and pid not in found:
        found.add(pid)
    return found
