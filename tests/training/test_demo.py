"""`edgeai demo distributed-training`, as a newcomer runs it when PyTorch is installed."""

import signal
import subprocess
from pathlib import Path

import pytest

from tests.system.demos import Demo, command, environ, left_of


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory, pytorch: Path) -> Demo:
    directory = tmp_path_factory.mktemp("demo")
    process = subprocess.run(
        [*command("distributed-training"), "--python", str(pytorch)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env=environ(directory),
        cwd=directory,
    )
    return Demo(process, directory)


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
    with subprocess.Popen(
        [*command("distributed-training"), "--python", str(pytorch)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environ(tmp_path),
        cwd=tmp_path,
    ) as process:
        assert process.stdout is not None
        next(line for line in process.stdout if "applied PyTorchJob" in line)
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
        assert process.wait(180) == 128 + signal.SIGTERM
    assert left_of(tmp_path) == []
