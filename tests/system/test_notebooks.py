"""The notebooks of the examples run to their end on a local cluster."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from edgeai import environment
from edgeai.environment import Environment
from tests.examples.notebooks import NOTEBOOKS, printed

SHOWN: Final = {
    "elastic_training": ("ScaleSucceeded", "4 workers train", "Succeeded"),
    "joint_inference": ("does not exist", "Running on edge0", "'seen': "),
    "federated_learning": ("round 5", "Succeeded with accuracy 0."),
}
"""Notebook -> words that it prints. tests/training runs the one that needs PyTorch."""


@pytest.fixture(scope="module")
def three_edges(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    state_dir = tmp_path_factory.mktemp("edgeai") / "state"
    yield environment.up(state_dir, edges=("edge0", "edge1", "edge2"))
    environment.down(state_dir)


@pytest.mark.parametrize(
    "file", [each for each in NOTEBOOKS if each.stem in SHOWN], ids=lambda file: file.stem
)
def test_a_notebook_runs(three_edges: Environment, file: Path, tmp_path: Path) -> None:
    text = printed(file, three_edges.kubeconfig, tmp_path)
    for words in SHOWN[file.stem]:
        assert words in text, text
