"""Horovod and the images of the example. Where Horovod cannot be had, its tests are skipped."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from edgeai.demo.distributed_training import data
from tests.cluster.binaries import Unavailable
from tests.e2e.images import recipes
from tests.elastic import horovod
from tests.support.cluster import Cluster, prepared
from tests.support.manager import GlobalManager

BUILD_S: Final = 1800
"""Timeout of a test that may have to build Horovod first."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(BUILD_S))


@pytest.fixture(scope="session")
def python() -> Path:
    """A Python that has horovod.torch; horovodrun is beside it."""
    try:
        return horovod.obtain()
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("images")
    data.write(directory)
    return directory


@pytest.fixture
def files(tmp_path: Path, images: Path) -> Path:
    made = tmp_path / "files"
    made.mkdir()
    for each in images.iterdir():
        (made / each.name).write_bytes(each.read_bytes())
    return made


@pytest.fixture(scope="session")
def built() -> None:
    with suppress(Unavailable):  # only the tests with Horovod are skipped
        horovod.obtain()


@pytest.fixture(scope="session")
def cluster(built: None) -> Iterator[Cluster]:
    """Kubernetes with nodes. It starts after Horovod is built, because the nodes see the files that
    this machine has when they start.
    """
    try:
        cluster = prepared([each for each in recipes() if each.target == "example"])
    except Unavailable as error:
        pytest.skip(str(error))
    with cluster.running():
        yield cluster


@pytest.fixture(scope="session")
def manager(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GlobalManager]:
    cluster.control_plane.prepare()
    manager = GlobalManager(
        kubeconfig=cluster.control_plane.kubeconfig,
        directory=tmp_path_factory.mktemp("globalmanager"),
    )
    with manager.running():
        yield manager
