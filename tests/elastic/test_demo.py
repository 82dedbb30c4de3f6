"""`edgeai demo elastic-training`, as a newcomer runs it. It needs no Horovod."""

from pathlib import Path

import pytest

from tests.system.demos import Demo, interrupt, left_of, play


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    return play("elastic-training", tmp_path_factory.mktemp("demo"))


def test_demo_succeeds(demo: Demo) -> None:
    assert demo.process.returncode == 0, demo.process.stdout + demo.process.stderr


def test_the_network_is_trained_to_its_end_while_workers_come_and_go(demo: Demo) -> None:
    outcome = demo.outcome
    assert [*outcome] == [
        *("workers_over_time", "steps", "final_accuracy", "interruptions_survived"),
    ]
    sizes = outcome["workers_over_time"]
    assert sizes[-1] == 3
    assert max(sizes) == 4
    assert outcome["steps"] == 1000
    assert outcome["final_accuracy"] >= 0.95
    assert outcome["interruptions_survived"] == 1


@pytest.mark.parametrize(
    "text",
    [
        "killed elastic-training-worker-3",
        "applied ScaleOut two-more",
        "applied ScaleIn without-worker-1",
        "TrainingJob: Succeeded",
    ],
)
def test_demo_shows(demo: Demo, text: str) -> None:
    assert text in demo.process.stdout


def test_nothing_is_left(demo: Demo) -> None:
    assert left_of(demo.directory) == []


def test_an_interrupted_demo_leaves_nothing(tmp_path: Path) -> None:
    interrupt("elastic-training", tmp_path, after="applied TrainingJob")
