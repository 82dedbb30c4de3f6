"""Kills every container when the cluster's process has ended, for whatever reason.

    python -I -S reaper.py DIRECTORY < pipe

Run by process as a script, never imported. Reads "+PGID" and "-PGID" lines, from the
containers' shims and from the cluster. End of file means that the cluster died: it alone keeps the
write end open. A group is withdrawn before its leader is reaped, so no number on the list can be
that of another group. DIRECTORY is the state directory; it is there for `ps` to show.
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
