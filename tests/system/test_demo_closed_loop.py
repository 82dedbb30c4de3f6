"""`edgeai demo closed-loop`, as a newcomer runs it, to its end and interrupted."""

from pathlib import Path

import pytest

from tests.system.demos import Demo, interrupt, left_of, play


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    return play("closed-loop", tmp_path_factory.mktemp("demo"), timeout_s=180)


def test_demo_succeeds_and_leaves_nothing(demo: Demo) -> None:
    assert demo.process.returncode == 0, demo.process.stdout + demo.process.stderr
    assert left_of(demo.directory) == []


def test_the_edges_learn_what_they_found_hard(demo: Demo) -> None:
    outcome = demo.outcome
    assert outcome["accuracy_after"] >= outcome["accuracy_before"] + 0.10
    assert outcome["hard_samples"] >= 50


def test_the_model_goes_out_in_waves_and_a_broken_one_is_taken_back(demo: Demo) -> None:
    assert demo.outcome["waves"] == 2
    assert demo.outcome["rolled_back"] is True
    assert "hard is 1" in demo.process.stdout, "the figures of the guard"
    assert "has never had the broken version" in demo.process.stdout


def test_an_interrupted_demo_leaves_nothing(tmp_path: Path) -> None:
    interrupt("closed-loop", tmp_path, after="applied Model")
