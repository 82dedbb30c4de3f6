"""Elastic jobs on the local cluster: horovodrun in the launcher, PyTorch in the workers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from edgeai import environment
from edgeai.environment import Environment
from tests.elastic.course import Course, check_the_whole_course
from tests.elastic.places import Processes


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    state_dir = tmp_path_factory.mktemp("edgeai") / "state"
    yield environment.up(state_dir)
    environment.down(state_dir)


@pytest.fixture
def course(running: Environment, python: Path, files: Path, tmp_path: Path) -> Iterator[Course]:
    directory = tmp_path / "bin"
    directory.mkdir()
    made = Course(Processes(running, python, files, directory), "kubexec")
    yield made
    made.remove()


def test_workers_come_and_go_and_one_is_killed(course: Course) -> None:
    check_the_whole_course(course)
