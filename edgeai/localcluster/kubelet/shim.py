"""Becomes a container's process. `process` runs this file as a script and never imports it.

    python -I -S shim.py REAPER_FD EXECUTABLE ARGV…

The script first sends its process group to the reaper. Then the script executes the program. So the
reaper knows every container before the container's program begins.
"""

import os
import signal
import sys

if __name__ == "__main__":
    descriptor, executable, *argv = sys.argv[1:]
    os.write(int(descriptor), b"+%d\n" % os.getpid())
    os.close(int(descriptor))
    # Python ignores these two signals. The program expects the default action of each signal.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        os.execv(executable, argv)
    except OSError as error:
        sys.stderr.write(f"cannot execute {executable}: {error.strerror}\n")
        sys.exit(126)
