"""`edgeai demo joint-inference`, as a newcomer runs it."""

import pytest

from tests.system.demos import Demo, left_of, play


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    return play("joint-inference", tmp_path_factory.mktemp("demo"))


def test_demo_succeeds(demo: Demo) -> None:
    assert demo.process.returncode == 0, demo.process.stdout + demo.process.stderr


def test_joint_inference_is_worth_it(demo: Demo) -> None:
    outcome = demo.outcome
    assert outcome["joint_accuracy"] >= outcome["edge_accuracy"] + 0.03
    assert outcome["cloud_accuracy"] >= outcome["joint_accuracy"] - 0.01
    assert outcome["upload_ratio"] <= 0.4
    assert outcome["status_upload_count"] == outcome["worker_upload_count"] > 0
    assert outcome["samples"] >= 500


@pytest.mark.parametrize("text", ["edge only", "joint", "cloud only", "p95", "uploadCount "])
def test_demo_shows(demo: Demo, text: str) -> None:
    assert text in demo.process.stdout


def test_the_demo_fits_on_one_screen(demo: Demo) -> None:
    assert len(demo.process.stdout.splitlines()) <= 24


def test_nothing_is_left(demo: Demo) -> None:
    assert left_of(demo.directory) == []
