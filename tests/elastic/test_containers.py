"""Elastic jobs on genuine kubelets: horovodrun in the launcher, PyTorch in the workers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.binaries import Unavailable
from tests.cluster.cluster import Cluster, prepared
from tests.cluster.conftest import SYSTEM_NAMESPACE, install_crds
from tests.cluster.manager import GlobalManager
from tests.e2e.images import recipes
from tests.elastic import progress
from tests.elastic.course import Course
from tests.elastic.places import Containers


@pytest.fixture(scope="module")
def cluster(python: Path) -> Iterator[Cluster]:
    """It starts after Horovod is built, because its nodes see the files of this machine."""
    try:
        cluster = prepared([each for each in recipes() if each.target == "example"])
    except Unavailable as error:
        pytest.skip(str(error))
    cluster.start()
    try:
        yield cluster
        cluster.check_alive()
    finally:
        cluster.stop()


@pytest.fixture(scope="module")
def manager(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GlobalManager]:
    install_crds(cluster.control_plane)
    name = {"name": SYSTEM_NAMESPACE}
    cluster.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": name})
    manager = GlobalManager(
        kubeconfig=cluster.control_plane.kubeconfig,
        system_namespace=SYSTEM_NAMESPACE,
        directory=tmp_path_factory.mktemp("globalmanager"),
    )
    try:
        manager.start()
        yield manager
    finally:
        manager.stop()


@pytest.fixture
def place(cluster: Cluster, manager: GlobalManager, python: Path, images: Path) -> Containers:
    made = Containers(cluster, python, images)
    made.copy_files()
    return made


@pytest.fixture(params=["ssh"])
def course(request: pytest.FixtureRequest, place: Containers) -> Iterator[Course]:
    made = Course(place, request.param)
    yield made
    made.remove()


def test_two_workers_train_to_the_end(course: Course) -> None:
    course.wait_for_workers(0, 1)
    result = course.end()
    assert result["event"] == "result"
    assert result["accuracy"] >= 0.95
    progress.check_steps(course.events())
