"""Obtains what a browser test needs: Playwright for Python, and Debian's Chromium."""

import subprocess
import sys
from pathlib import Path
from typing import Final

from edgeai.cli import debian
from tests.cluster.binaries import locked

LOCK: Final = Path(__file__).parents[2] / "requirements" / "browser.lock"
CHROMIUM: Final = "/usr/bin/chromium"
FLAGS: Final = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)


def main() -> int:
    """Install what is missing. Another process that does the same waits. Returns: exit code"""
    with locked(Path(sys.prefix) / "browser.lock"):
        return _install()


def _install() -> int:
    pip = (sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check")
    command = [*pip, "--require-hashes", "-r", str(LOCK)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"`{' '.join(command[:4])} …` failed: {done.stderr.strip()[-500:]}")
        return 1
    if not Path(CHROMIUM).exists():
        try:
            debian.install(["chromium"])
        except debian.PackagesUnavailable as error:
            print(error)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
