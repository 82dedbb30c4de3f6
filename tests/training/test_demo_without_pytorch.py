"""What `edgeai demo distributed-training` says where it finds no PyTorch."""

import subprocess
from pathlib import Path

import pytest

from tests.system.demos import command, environ

pytestmark = pytest.mark.timeout(300)  # each makes virtual environments


def test_a_demo_that_cannot_install_pytorch_says_what_to_do(tmp_path: Path) -> None:
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_CONFIG_FILE": "/dev/null"}
    nothing_installed = {"PATH": str(tmp_path)}  # neither another Python nor apt-get
    done = subprocess.run(
        command("distributed-training"),
        capture_output=True,
        text=True,
        check=False,
        env=environ(tmp_path) | offline | nothing_installed,
        cwd=tmp_path,
    )
    assert done.returncode == 1
    assert f"it is installed, once, into {tmp_path}" in done.stdout.replace("\n", " ")
    assert "pytorch cannot be installed" in done.stderr
    assert "Debian's packages python3-torch python3-numpy are missing" in done.stderr
    assert "edgeai demo distributed-training --python PATH" in done.stderr


def test_a_python_without_pytorch_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "python").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "python").chmod(0o755)
    for python in (tmp_path / "python", tmp_path / "missing"):
        done = subprocess.run(
            [*command("distributed-training"), "--python", str(python)],
            capture_output=True,
            text=True,
            check=False,
            env=environ(tmp_path),
            cwd=tmp_path,
        )
        assert done.returncode == 1
        assert f"--python {python}: cannot import torch and numpy" in done.stderr
