"""A whole edgeai in a local cluster, shared by the tests of one module; models trained once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from edgeai import environment
from edgeai.environment import Environment
from examples.joint_inference import train


@pytest.fixture(scope="session")
def model_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory with both models and the held-out images."""
    directory = tmp_path_factory.mktemp("files")
    train.train(directory)
    return directory


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    state_dir = tmp_path_factory.mktemp("edgeai") / "state"
    yield environment.up(state_dir)
    environment.down(state_dir)
