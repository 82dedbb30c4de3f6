"""What a user's own process imports works beside the user's files, whatever their names."""

import subprocess
import sys
from pathlib import Path

import pytest

OF_THE_USER = (
    "common.py",
    "kube.py",
    "globalmanager.py",
    "localcontroller.py",
    "examples/__init__.py",
)
IMPORT_ALL = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    importlib.import_module(module.name)
"""


@pytest.mark.parametrize("package", ["edgeai.api", "edgeai.client", "edgeai.worker"])
def test_files_of_the_user_hide_no_module(package: str, tmp_path: Path) -> None:
    for name in OF_THE_USER:
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("raise RuntimeError('the file of the user')\n")
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, package],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
