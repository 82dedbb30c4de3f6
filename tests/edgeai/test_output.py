"""A standard output that cannot be written is told in one line."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.edgeai.command import CHECKOUT


@pytest.mark.parametrize(
    ("redirection", "words"),
    [("> /dev/full", "cannot be written: No space left"), (">&-", "is closed")],
)
@pytest.mark.parametrize("command", ["doctor", "doctor -o json", "install"])
def test_an_output_that_cannot_be_written_is_told(
    tmp_path: Path, redirection: str, words: str, command: str
) -> None:
    where = "" if command == "install" else f"--kubeconfig {tmp_path}/none"
    script = f"{sys.executable} -m edgeai {command} {where} {redirection}"
    done = subprocess.run(
        ["sh", "-c", script], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert words in done.stderr.splitlines()[-1]
