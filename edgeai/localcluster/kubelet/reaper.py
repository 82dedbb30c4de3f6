"""Kills every container when the cluster's process has ended, after any kind of end.

    python -I -S reaper.py DIRECTORY < pipe

`process` runs this file as a script. The script keeps a list of process groups. The shim of a
container sends "+PGID" to add the container's group. The cluster sends "-PGID" to withdraw a group.
Only the cluster keeps the write end of the pipe open, so end of file means that the cluster died.
The cluster withdraws a group before it reaps the group's first process. So no other group can have
a number of the list. DIRECTORY is the state directory, which `ps` shows.

A process may leave its group: torchrun starts processes in sessions of their own. Such a process
still writes to the pipe of its container. `kill_writers` finds it so.
"""

import contextlib
import os
import signal
import sys


def kill_writers(pipes: set[str]) -> None:
    """Kill every process whose stdout or stderr is one of these pipes, each like "pipe:[4711]"."""
    for name in os.listdir("/proc"):
        if name.isdecimal() and not pipes.isdisjoint(outputs(name)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(int(name), signal.SIGKILL)


def outputs(pid: object) -> list[str]:
    """The targets of stdout and stderr of a process that has not ended."""
    targets = []
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            targets.append(os.readlink(f"/proc/{pid}/fd/{descriptor}"))
    return targets


if __name__ == "__main__":
    groups = set()
    for line in sys.stdin.buffer:
        if line[:1] == b"+":
            groups.add(int(line[1:]))
        else:
            groups.discard(int(line[1:]))
    pipes = {text for group in groups for text in outputs(group) if text.startswith("pipe:")}
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    kill_writers(pipes)
