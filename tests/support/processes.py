"""What the kernel says of a process. Programs whose memory is measured import this module."""

import os
from pathlib import Path


def memory_kib(pid: int | str = "self") -> dict[str, int]:
    """By the names of proc(5), like VmRSS; {} of a process that has ended and is not reaped."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = (line.partition(":") for line in lines)
    return {name: int(text.split()[0]) for name, _, text in fields if text.endswith(" kB")}


def processor_s(pid: int) -> float:
    """Seconds of processor time of a process since its start."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime, stime
