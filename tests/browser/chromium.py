"""Obtains what a browser test needs: Playwright for Python, and Debian's Chromium."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

LOCK: Final = Path(__file__).parents[2] / "requirements" / "browser.lock"
CHROMIUM: Final = "/usr/bin/chromium"
FLAGS: Final = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)
_INSTALL: Final = ("apt-get", "install", "--yes", "-qq", "--no-install-recommends", "chromium")


def main() -> int:
    """Install what is missing. Returns: exit code"""
    pip = (sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check")
    commands = [[*pip, "--require-hashes", "-r", str(LOCK)]]
    if not shutil.which(CHROMIUM):
        commands += [["apt-get", "update", "-qq"], list(_INSTALL)]
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"`{' '.join(command[:4])} …` failed: {done.stderr.strip()[-500:]}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
