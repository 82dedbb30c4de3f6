"""Lets the kernel of this machine start programs of another architecture, by qemu-user-static."""

import subprocess
from pathlib import Path
from typing import Final

from edgeai.cli import debian
from tests.cluster.binaries import Unavailable

_REGISTRY: Final = Path("/proc/sys/fs/binfmt_misc")
_FORMATS: Final = Path("/usr/lib/binfmt.d")


def enable(machine: str) -> None:
    """Until this machine restarts, in containers too: the kernel opens qemu now.

    Args: machine: as the kernel names it, like "aarch64"
    Raises: Unavailable
    """
    name = f"qemu-{machine}"
    try:
        if not (_REGISTRY / "register").exists():
            mount = ("mount", "--types", "binfmt_misc", "binfmt_misc", str(_REGISTRY))
            subprocess.run(mount, check=True, capture_output=True)
        if not (_REGISTRY / name).exists():
            debian.install(["qemu-user-static"])
            (_REGISTRY / "register").write_text((_FORMATS / f"{name}.conf").read_text())
    except (debian.PackagesUnavailable, OSError, subprocess.CalledProcessError) as error:
        raise Unavailable(f"programs for {machine} cannot run here: {error}") from error
