"""A whole edgeai in a local cluster, shared by the tests of one module; models trained once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from edgeai.cli import environment
from edgeai.cli.environment import Environment
from edgeai.demo.joint_inference import train

IMAGES = 400  # of those held out; what is tested here takes time, not images


@pytest.fixture(scope="session")
def model_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory with both models and some of the held-out images."""
    files = train.train(tmp_path_factory.mktemp("files"))
    lines = files.dataset.read_text().splitlines(keepends=True)
    files.dataset.write_text("".join(lines[: IMAGES + 1]))
    return files.dataset.parent


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    state_dir = tmp_path_factory.mktemp("edgeai") / "state"
    yield environment.up(state_dir)
    environment.down(state_dir)
