"""The Pythons of the runtimes. A test that needs a runtime that cannot be installed is skipped."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from edgeai import environment
from edgeai.environment import Environment
from tests.runtimes import INSTALL_S, python_with


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
