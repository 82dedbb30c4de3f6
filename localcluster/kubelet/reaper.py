"""Kills every container when the cluster's process is gone, however it went.

    python -I -S reaper.py DIRECTORY < pipe

Run by process as a script, never imported. Reads "+PGID" and "-PGID" lines, from the
containers' shims and from the cluster. End of file means that the cluster died: the pipe's write
end is nowhere else. A group is withdrawn before its leader is reaped, so a number that is on the
list is never somebody else's. DIRECTORY is the cluster's, for people who look at processes.
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
