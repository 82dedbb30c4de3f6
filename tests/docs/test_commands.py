"""The commands of README.md do what it says, in the order in which it says them."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```sh\n(?P<commands>.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on the PATH")
def test_readme_commands_run(tmp_path: Path) -> None:
    (commands,) = [match["commands"] for match in BLOCK.finditer((ROOT / "README.md").read_text())]
    commands = commands.replace("/tmp/edgeai-example", str(tmp_path / "example"))
    # The environment that runs this test is the one that the page activates.
    commands = commands.replace(". .venv/bin/activate\n", "")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    process = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", commands],
        cwd=ROOT,
        env={"HOME": str(tmp_path), "PATH": path},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    if process.returncode:
        subprocess.run(["edgeai", "down"], env={"HOME": str(tmp_path), "PATH": path}, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
    assert re.search(r"digits +Running", process.stdout), "kubectl get jis shows the phase"
    assert re.search(r"edge0 +connected", process.stdout), "edgeai status shows the session"


def test_make_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_ci_calls_what_the_readme_names() -> None:
    assert "make lint types test" in (ROOT / ".ci" / "run").read_text()
