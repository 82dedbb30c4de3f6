"""Runs a program of edgeai with a thread that writes down where the program's memory is.

    python -m tests.soak.probe FILE MODULE ARGUMENT…

Each line of FILE is a JSON object: a sample (`Sample`) every SAMPLE_S seconds, and a census of the
objects every CENSUS_S seconds. For diagnosis alone: a census stops the program for some 0.1 s.
"""

import collections
import ctypes
import gc
import json
import runpy
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TextIO

SAMPLE_S: Final = 10.0
CENSUS_S: Final = 300.0
MANY: Final = 500  # entries from which on a collection is named in a census
MAX_NAMED: Final = 40
_MALLINFO: Final = (
    *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
    *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
)
_KIB: Final = 1024


class _Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in _MALLINFO]


def sample() -> dict[str, Any]:
    """Where the memory is, in KiB: the kernel's, glibc's and Python's view of it."""
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = _Mallinfo2
    told = libc.mallinfo2()
    return {
        "at_s": round(time.monotonic(), 1),
        **dict(_resident()),
        # of glibc: its main arena, what of it is in use, and what has mappings of its own
        "heap_kib": told.arena // _KIB,
        "heap_used_kib": told.uordblks // _KIB,
        "mapped_kib": told.hblkhd // _KIB,
        "blocks": sys.getallocatedblocks(),  # small ones, in Python's own arenas
        "collections": [generation["collections"] for generation in gc.get_stats()],
    }


def _resident() -> Iterator[tuple[str, int]]:
    names = {"VmRSS": "resident_kib", "RssAnon": "anonymous_kib", "RssFile": "file_kib"}
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in names:
            yield names[name], int(value.split()[0])


def census() -> dict[str, Any]:
    """How many objects of each type there are that the garbage collector knows, and the largest
    collections. What nothing refers to is collected before.
    """
    gc.collect()
    objects = gc.get_objects()
    types = collections.Counter(f"{type(e).__module__}.{type(e).__qualname__}" for e in objects)
    large = sorted(map(_described, filter(_is_large, objects)), reverse=True)[:MAX_NAMED]
    return {"objects": dict(types.most_common()), "large": large}


def _is_large(each: object) -> bool:
    return isinstance(each, dict | list | set | collections.deque) and len(each) >= MANY


def _described(each: Any) -> tuple[int, str, int, str]:
    one = repr(next(iter(each.copy())))[:80]
    return sys.getsizeof(each), type(each).__name__, len(each), one


def watch(file: TextIO, *, sample_s: float = SAMPLE_S, census_s: float = CENSUS_S) -> None:
    """Write samples and censuses for ever."""
    census_at = time.monotonic() + census_s
    while True:
        told = sample()
        if time.monotonic() >= census_at:
            census_at += census_s
            told |= census()
        file.write(json.dumps(told) + "\n")
        file.flush()
        time.sleep(sample_s)


def main() -> None:
    _, path, module, *arguments = sys.argv
    file = Path(path).open("a")  # noqa: SIM115 - as long as the process
    threading.Thread(target=watch, args=(file,), name="probe", daemon=True).start()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
