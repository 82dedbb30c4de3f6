"""`edgeai demo joint-inference`, as a newcomer runs it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest


class Demo(NamedTuple):
    """The finished command and the directory that was its HOME and TMPDIR."""

    process: subprocess.CompletedProcess[str]
    directory: Path


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    directory = tmp_path_factory.mktemp("demo")
    process = subprocess.run(
        [sys.executable, "-m", "edgeai", "demo", "joint-inference"],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": str(directory), "TMPDIR": str(directory)},
        cwd=directory,
    )
    return Demo(process, directory)


def test_demo_succeeds(demo: Demo) -> None:
    assert demo.process.returncode == 0, demo.process.stdout + demo.process.stderr


def test_joint_inference_is_worth_it(demo: Demo) -> None:
    outcome = json.loads(demo.process.stdout.splitlines()[-1])
    assert outcome["joint_accuracy"] >= outcome["edge_accuracy"] + 0.03
    assert outcome["cloud_accuracy"] >= outcome["joint_accuracy"] - 0.01
    assert outcome["upload_ratio"] <= 0.4
    assert outcome["status_upload_count"] == outcome["worker_upload_count"] > 0
    assert outcome["samples"] >= 500


@pytest.mark.parametrize("text", ["edge only", "joint", "cloud only", "p95", "uploadCount: "])
def test_demo_shows(demo: Demo, text: str) -> None:
    assert text in demo.process.stdout


def test_nothing_is_left(demo: Demo) -> None:
    assert list(demo.directory.iterdir()) == []
    mine = str(demo.directory).encode()
    processes = [entry for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    assert [entry.name for entry in processes if mine in _told_of(entry)] == []


def _told_of(process: Path) -> bytes:
    """Its environment and its arguments: what guards the containers has no environment."""
    try:
        return (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
    except OSError:
        return b""  # it ended meanwhile, or is somebody else's
