"""Runs a program of edgeai in a process that has much resident memory, as if it leaked.

    python -m tests.monitoring.balloon MIB MODULE [ARGUMENT …]

The memory is one file of 1 MiB that is mapped again and again, so the machine loses only 1 MiB.
"""

import mmap
import runpy
import sys
import tempfile

_MIB = 1024 * 1024


def main() -> None:
    count, module = int(sys.argv[1]), sys.argv[2]
    del sys.argv[1:3]
    with tempfile.TemporaryFile() as file:
        file.write(bytes(_MIB))
        file.flush()
        maps = [mmap.mmap(file.fileno(), _MIB, prot=mmap.PROT_READ) for _ in range(count)]
        for each in maps:
            for page in range(0, _MIB, mmap.PAGESIZE):
                each[page]
        runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
