"""The commands of the pages do what they say, in the order in which they say them."""

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
@pytest.mark.parametrize(
    ("page", "shows"),
    [
        ("docs/kubernetes-in-short.md", [r"digits +Running", r"edge0 +connected"]),
        (
            "docs/federated-learning.md",
            [r"digits +Succeeded +40 +40", r"round 40/40, accuracy 0\.9"],
        ),
        (
            "docs/cli.md",
            [
                r"JointInferenceService default/digits: succeeded",
                r"digits-deployment-edge\S+ +edge +edge0 +Running +1 ",
                r"^succeeded$",
                r"edge0 +connected",
            ],
        ),
    ],
)
def test_commands_run(page: str, shows: list[str], tmp_path: Path) -> None:
    output = run_commands(page, tmp_path)
    for pattern in shows:
        assert re.search(pattern, output, re.MULTILINE), pattern
    assert not (tmp_path / "example").exists()


def run_commands(page: str, home: Path, *, timeout_s: float = 110, **environment: str) -> str:
    """What the page's only block of commands prints.

    Args: environment: variables beside HOME and PATH
    """
    (commands,) = [match["commands"] for match in BLOCK.finditer((ROOT / page).read_text())]
    commands = re.sub(r"/tmp/edgeai-[a-z]+", str(home / "example"), commands)
    # The environment that runs this test is the one that the page activates.
    activated, commands = commands.split(". .venv/bin/activate\n")
    assert not activated
    commands += 'test -z "${KUBECONFIG-}"  # it would name a file that is gone'
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    process = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", commands],
        cwd=ROOT,
        env={"HOME": str(home), "PATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if process.returncode:
        subprocess.run(["edgeai", "down"], env={"HOME": str(home), "PATH": path}, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout
