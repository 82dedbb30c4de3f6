"""A standard output that cannot be written is told in one line."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.edgeai.cli.command import CHECKOUT, edgeai
from tests.edgeai.kube.test_plugin import kubeconfig_with


@pytest.mark.parametrize(
    ("redirection", "words"),
    [("> /dev/full", "cannot be written: No space left"), (">&-", "is closed")],
)
@pytest.mark.parametrize("command", ["doctor", "doctor -o json"])
def test_an_output_that_cannot_be_written_is_told(
    tmp_path: Path, redirection: str, words: str, command: str
) -> None:
    script = f"{sys.executable} -m edgeai {command} --kubeconfig {tmp_path}/none {redirection}"
    done = subprocess.run(
        ["sh", "-c", script], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert words in done.stderr.splitlines()[-1]


def test_an_error_of_a_stranger_does_not_steer_the_terminal(tmp_path: Path) -> None:
    script = "printf 'no \\033]0;title\\007\\033[2J login' >&2; exit 1"
    kubeconfig = kubeconfig_with(tmp_path / "config", script)
    done = edgeai("status", "--kubeconfig", str(kubeconfig))
    (line,) = done.stderr.splitlines()
    assert (done.returncode, line.isprintable()) == (1, True)
    assert line.endswith("no ]0;title[2J login")
