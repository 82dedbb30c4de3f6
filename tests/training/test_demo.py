"""`edgeai demo distributed-training`, as a newcomer runs it when PyTorch is installed."""

from pathlib import Path

import pytest

from tests.system.demos import Demo, interrupt, left_of, play


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory, pytorch: Path) -> Demo:
    directory = tmp_path_factory.mktemp("demo")
    return play("distributed-training", directory, "--python", str(pytorch), timeout_s=600)


def test_demo_succeeds(demo: Demo) -> None:
    assert demo.process.returncode == 0, demo.process.stdout + demo.process.stderr


def test_the_network_is_trained_to_its_end_in_spite_of_a_lost_worker(demo: Demo) -> None:
    outcome = demo.outcome
    assert [*outcome] == ["world_size", "steps", "accuracy", "restarts", "seconds"]
    assert outcome["world_size"] == 3
    assert outcome["steps"] == 20 * 23, "20 epochs: what was trained before the restart counts"
    assert outcome["accuracy"] >= 0.95
    assert outcome["restarts"] == 1


@pytest.mark.parametrize("text", ["digits-worker-1 was killed", "PyTorchJob: Succeeded", "loss 0."])
def test_demo_shows(demo: Demo, text: str) -> None:
    assert text in demo.process.stdout


def test_nothing_is_left(demo: Demo) -> None:
    assert left_of(demo.directory) == []


def test_an_interrupted_demo_leaves_nothing(tmp_path: Path, pytorch: Path) -> None:
    flags = ("--python", str(pytorch))
    interrupt("distributed-training", tmp_path, *flags, after="applied PyTorchJob")
