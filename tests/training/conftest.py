"""The Pythons of the runtimes. A test that needs a runtime that cannot be installed is skipped."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgeai.cli import environment
from edgeai.cli.api import Object, path_of
from edgeai.cli.environment import Environment
from edgeai.demo.distributed_training import data
from edgeai.demo.distributed_training.manifests import Placement
from edgeai.demo.manifests import resource
from tests.support.runtimes import INSTALL_S, python_with
from tests.support.waiting import eventually
from tests.training.jobs import pods


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(INSTALL_S))


@pytest.fixture(scope="session")
def pytorch() -> Path:
    return python_with("pytorch")


@pytest.fixture(scope="session")
def tensorflow() -> Path:
    return python_with("tensorflow")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    state_dir = tmp_path_factory.mktemp("edgeai") / "state"
    yield environment.up(state_dir)
    environment.down(state_dir)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    data.write(tmp_path / "files")
    return tmp_path / "files"


@pytest.fixture
def submit(running: Environment, python: Path, files: Path) -> Iterator[Any]:
    """Function that creates the job of a template and returns it. The job ends with the test.

    The fixture `python` of the module is the Python of its runtime.
    """
    made: list[Object] = []

    def create(template: Path, **settings: Any) -> Object:
        placement = Placement(files=files, python=python, **settings)
        made.append(running.api.apply(resource(template, placement)))
        return made[-1]

    yield create
    for each in made:
        running.api.delete(path_of(each))
        eventually("the end of the pods", lambda: not pods(running))
