"""The notebooks of the examples run to their end on a local cluster."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from edgeai.cli import environment
from edgeai.cli.environment import Environment
from edgeai.client import Client, Model, ModelSpec
from edgeai.client.objects import CLASSES
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
def test_a_notebook_runs_and_deletes_what_it_made(
    three_edges: Environment, file: Path, tmp_path: Path
) -> None:
    with Client(three_edges.kubeconfig) as client:
        client.apply(Model.of("of-somebody-else", ModelSpec(url="/models/a.npz")))
        before = _objects(client)
        text = printed(file, three_edges.kubeconfig, tmp_path)
        assert _objects(client) == before
    for words in SHOWN[file.stem]:
        assert words in text, text


def _objects(client: Client) -> set[str]:
    return {str(each) for kind in CLASSES for each in client.list(kind)}
