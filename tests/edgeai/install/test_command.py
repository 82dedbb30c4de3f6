"""`edgeai install` as a command: from a checkout and from the wheel."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.edgeai.command import CHECKOUT, edgeai

EVERYTHING: Final = ("--set", "celRules=true", "--set", "monitoring=true")
"""Values for which a file of each directory is read."""


@pytest.fixture(scope="module")
def printed() -> str:
    done = edgeai("install", *EVERYTHING)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_command_prints_all_objects_and_no_secret(printed: str) -> None:
    kinds = [each["kind"] for each in yaml.safe_load_all(printed)]
    assert kinds[0] == "Namespace"
    assert kinds.count("CustomResourceDefinition") == len([*(CHECKOUT / "deploy/crds").iterdir()])
    assert "Secret" not in kinds


def test_a_bad_value_is_one_line_on_stderr(tmp_path: Path) -> None:
    done = edgeai("install", "--values", str(tmp_path / "absent.yaml"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("edgeai: values file ")
    assert len(done.stderr.splitlines()) == 1


def test_the_wheel_holds_what_the_command_renders(tmp_path: Path, printed: str) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=CHECKOUT, check=True, capture_output=True, timeout=60)
    (wheel,) = tmp_path.glob("*.whl")
    installed = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    done = subprocess.run(
        [sys.executable, "-m", "edgeai", "install", *EVERYTHING],
        cwd=installed,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == printed
    assert f"{CHECKOUT}/" not in done.stderr
