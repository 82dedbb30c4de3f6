"""Runs the code of a notebook in this process: python -m tests.examples.notebooks FILE

A notebook is JSON, and the notebooks of the examples use neither magic commands nor `await`. So a
test needs no Jupyter (docs/decisions/0006-dependencies.md).
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
NOTEBOOKS: Final = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def cells(file: Path) -> list[dict[str, Any]]:
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    assert content["nbformat"] == 4, file
    return list(content["cells"])


def code(file: Path) -> list[str]:
    """The source of each cell with code."""
    return ["".join(each["source"]) for each in cells(file) if each["cell_type"] == "code"]


def run(file: Path) -> None:
    """Raises: the exception of the first cell that fails, whose traceback names the cell"""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for number, source in enumerate(code(file), 1):
        exec(compile(source, f"{file.name}, cell {number}", "exec"), namespace)


def printed(file: Path, kubeconfig: Path, directory: Path, *, timeout_s: float = 100) -> str:
    """What the notebook prints in a process of its own. Raises: AssertionError when it fails

    Args: directory: empty; for its files
    """
    variables = {"KUBECONFIG": str(kubeconfig), "TMPDIR": str(directory)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.examples.notebooks", str(file)],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


if __name__ == "__main__":
    run(Path(sys.argv[1]))
