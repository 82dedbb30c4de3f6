"""The Pythons of the runtimes. A test that needs a runtime that cannot be installed is skipped."""

from pathlib import Path

import pytest

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
