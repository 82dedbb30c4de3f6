"""Builds the documentation as a site. A broken link, a missing anchor or a page without a place in
the navigation of mkdocs.yml is an error.

    python docs/build.py [DIRECTORY]    default: build/site
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from edgeai.cli.runtimes import RuntimeUnavailable, runtime

ROOT: Final = Path(__file__).parents[1]


def main(arguments: list[str]) -> int:
    """Returns: exit code"""
    directory = Path(*arguments[:1] or [ROOT / "build" / "site"]).absolute()
    try:
        python = runtime("docs").install()
    except RuntimeUnavailable as error:
        sys.stderr.write(f"{error}\n")
        return 1
    command = [python, "-m", "mkdocs", "build", "--site-dir", directory]
    # The theme advertises its successor on each run.
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    process = subprocess.run(
        command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True, check=False
    )
    # Not by its option --quiet, with which a warning is no error.
    warnings = [
        line for line in process.stderr.splitlines(keepends=True) if not line.startswith("INFO")
    ]
    sys.stderr.writelines(warnings)
    if process.returncode == 0:
        sys.stdout.write(f"{directory}/index.html\n")
    return process.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
