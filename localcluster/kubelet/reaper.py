"""Kills every container when the cluster's process has ended, after any kind of end.

    python -I -S reaper.py DIRECTORY < pipe

`process` runs this file as a script and never imports it. The script keeps a list of process
groups. The shim of a container sends "+PGID" to add the container's group. The cluster sends
"-PGID" to withdraw a group. Only the cluster keeps the write end of the pipe open, so end of file
means that the cluster died. The cluster withdraws a group before it reaps the group's first
process. So no other group can have a number of the list. DIRECTORY is the state directory, which
`ps` shows.
"""

import contextlib
import os
import signal
import sys

if __name__ == "__main__":
    groups = set()
    for line in sys.stdin.buffer:
        if line[:1] == b"+":
            groups.add(int(line[1:]))
        else:
            groups.discard(int(line[1:]))
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
