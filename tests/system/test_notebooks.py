"""Every notebook of the examples runs to its end on a local cluster."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from edgeai import environment
from edgeai.environment import Environment
from tests.examples.notebooks import NOTEBOOKS

ROOT: Final = Path(__file__).parents[2]
SHOWN: Final = {
    "joint_inference": ("does not exist", "Running on edge0", "'seen': "),
    "federated_learning": ("round 5", "Succeeded with accuracy 0."),
}


@pytest.fixture(scope="module")
def three_edges(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    state_dir = tmp_path_factory.mktemp("edgeai") / "state"
    yield environment.up(state_dir, edges=("edge0", "edge1", "edge2"))
    environment.down(state_dir)


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_runs(three_edges: Environment, file: Path, tmp_path: Path) -> None:
    variables = {"KUBECONFIG": str(three_edges.kubeconfig), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.examples.notebooks", str(file)],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for words in SHOWN[file.stem]:
        assert words in done.stdout, done.stdout
