"""Elastic jobs on genuine kubelets: horovodrun in the launcher, PyTorch in the workers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.elastic.course import Course, check_the_whole_course
from tests.elastic.places import Containers
from tests.support.cluster import Cluster
from tests.support.manager import GlobalManager


@pytest.fixture
def place(cluster: Cluster, manager: GlobalManager, python: Path, images: Path) -> Containers:
    made = Containers(cluster, python, images)
    made.copy_files()
    return made


@pytest.fixture(params=["kubexec", "ssh"])
def course(request: pytest.FixtureRequest, place: Containers) -> Iterator[Course]:
    made = Course(place, request.param)
    yield made
    made.remove()


def test_workers_come_and_go_and_one_is_killed(course: Course) -> None:
    check_the_whole_course(course)
