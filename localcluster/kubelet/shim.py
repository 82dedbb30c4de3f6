"""Becomes a container's process. Run by process as a script, never imported.

    python -I -S shim.py REAPER_FD EXECUTABLE ARGV…

First it sends its process group to the reaper, then it executes the program. So the reaper knows
every container from its first instruction on.
"""

import os
import signal
import sys

if __name__ == "__main__":
    descriptor, executable, *argv = sys.argv[1:]
    os.write(int(descriptor), b"+%d\n" % os.getpid())
    os.close(int(descriptor))
    # Python ignores these two signals; the program expects their default.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        os.execv(executable, argv)
    except OSError as error:
        sys.stderr.write(f"cannot execute {executable}: {error.strerror}\n")
        sys.exit(126)
