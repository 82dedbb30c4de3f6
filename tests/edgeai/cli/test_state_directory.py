"""Which directories `edgeai up` and `edgeai down` take, and whose files they leave alone."""

import os
from pathlib import Path

import pytest

from edgeai.cli import environment
from edgeai.errors import EdgeAIError, StateError
from tests.edgeai.cli.command import edgeai


@pytest.mark.parametrize("command", ["up", "down"])
def test_a_directory_with_somebodys_files_is_refused_and_left_alone(
    command: str, tmp_path: Path
) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    (tmp_path / "cluster.log").touch()  # not enough to be a cluster's
    ended = edgeai(command, "--state-dir", str(tmp_path))
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert "'thesis.txt'" in line
    assert "give an empty or new one" in line
    assert sorted(os.listdir(tmp_path)) == ["cluster.log", "thesis.txt"]


@pytest.mark.parametrize("command", ["up", "down"])
def test_a_file_is_no_directory(command: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    ended = edgeai(command, "--state-dir", str(tmp_path / "file"))
    assert (ended.returncode, len(ended.stderr.splitlines())) == (1, 1)
    assert "Not a directory" in ended.stderr
    assert (tmp_path / "file").read_text() == "mine"


def test_where_nothing_can_be_made_one_line_says_so() -> None:
    ended = edgeai("up", "--state-dir", "/proc/edgeai")
    assert (ended.returncode, len(ended.stderr.splitlines())) == (1, 1)
    assert "/proc/edgeai" in ended.stderr


def test_without_a_cluster_there_is_nothing_to_connect_to(tmp_path: Path) -> None:
    with pytest.raises(EdgeAIError, match="edgeai up"):
        environment.connect(tmp_path)


def test_down_removes_what_a_failed_start_left(tmp_path: Path) -> None:
    (tmp_path / "cluster.log").touch()
    (tmp_path / ".kubeconfig.4711").touch()  # killed while it was written
    assert environment.down(tmp_path)
    assert not tmp_path.exists()


def test_a_name_like_a_draft_is_somebodys(tmp_path: Path) -> None:
    (tmp_path / ".thesis.4711").touch()
    with pytest.raises(StateError, match="thesis"):
        environment.down(tmp_path)
