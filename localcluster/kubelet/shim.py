"""Becomes a container's process. Run by process as a script, never imported.

    python -I -S shim.py REAPER_FD EXECUTABLE ARGV…

Before it becomes the program it tells the reaper of its process group, so there is no instant at
which a container runs that would outlive its cluster.
"""

import os
import signal
import sys

if __name__ == "__main__":
    descriptor, executable, *argv = sys.argv[1:]
    os.write(int(descriptor), b"+%d\n" % os.getpid())
    os.close(int(descriptor))
    # Python ignores these two; a program expects the default.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        os.execv(executable, argv)
    except OSError as error:
        sys.stderr.write(f"cannot execute {executable}: {error.strerror}\n")
        sys.exit(126)
