"""The example of elastic training, with processes of this machine for workers."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from edgeai.demo import digits_source
from edgeai.demo.distributed_training import data
from edgeai.demo.elastic_training import network
from edgeai.demo.elastic_training.launcher import COMMIT_EVERY, Training
from tests.support.waiting import eventually

CHECKOUT: Final = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("images")
    data.write(directory)
    return directory


@pytest.fixture
def files(tmp_path: Path, images: Path) -> Path:
    made = tmp_path / "files"
    made.mkdir()
    for each in images.iterdir():
        (made / each.name).symlink_to(each)
    return made


class Launcher:
    """The launcher as a process. Its agent starts workers on this machine."""

    def __init__(self, directory: Path, files: Path, *hosts: str) -> None:
        self._list = directory / "hostfile"
        self.list_hosts(*hosts)
        script = self._script(directory / "discover.sh", f"cat {shlex.quote(str(self._list))}")
        agent = self._script(directory / "agent.sh", 'shift; exec sh -c "$*"')
        arguments = [files, "--hosts", script, "--agent", agent, "--pause-s", "0.02"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "edgeai.demo.elastic_training.launcher", *map(str, arguments)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=CHECKOUT,
        )
        self.events: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def list_hosts(self, *hosts: str) -> None:
        new = self._list.with_suffix(".new")
        new.write_text("".join(f"{host}:1\n" for host in hosts))
        new.replace(self._list)

    def wait_for_workers(self, count: int) -> None:
        def check() -> bool:
            steps = [event for event in self.events if event["event"] == "progress"]
            assert steps, "no progress"
            assert steps[-1]["workers"] == count, steps[-1]
            return True

        eventually(f"{count} workers", check)

    def kill(self, host: str) -> None:
        os.kill(self.pid_of(host), signal.SIGKILL)

    def pid_of(self, host: str) -> int:
        """Of the worker process, a child of the launcher."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        for pid in children.split():
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if host.encode() in words:
                return int(pid)
        raise AssertionError(f"no worker {host}")

    def end(self) -> dict[str, Any]:
        """The result."""
        assert self.process.wait(100) == 0
        self._reader.join()
        (result,) = (event for event in self.events if event["event"] == "result")
        return result

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.events.append(json.loads(line))

    @staticmethod
    def _script(path: Path, body: str) -> Path:
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return path


@pytest.fixture
def launcher(tmp_path: Path, files: Path) -> Iterator[Launcher]:
    made = Launcher(tmp_path, files, "worker-0", "worker-1")
    yield made
    made.stop()


def test_workers_come_and_go_and_one_is_killed(launcher: Launcher, files: Path) -> None:
    launcher.wait_for_workers(2)
    launcher.list_hosts("worker-0", "worker-1", "worker-2", "worker-3")
    launcher.wait_for_workers(4)
    launcher.kill("worker-3")
    launcher.wait_for_workers(4)  # it is started anew, because it is still listed
    launcher.list_hosts("worker-0", "worker-2", "worker-3")
    launcher.wait_for_workers(3)
    (files / "hurry").touch()
    result = launcher.end()
    assert result["accuracy"] >= 0.95
    assert result["losses"] == 1
    assert [e["worker"] for e in launcher.events if e["event"] == "lost"] == ["worker-3"]
    steps = [event["step"] for event in launcher.events if "step" in event]
    assert steps == sorted(steps)
    assert result["step"] == 460


def test_a_launcher_goes_on_from_its_checkpoint(
    launcher: Launcher, files: Path, tmp_path: Path
) -> None:
    launcher.wait_for_workers(2)
    launcher.stop()
    done = launcher.events[-1]["step"]
    (files / "hurry").touch()
    again = Launcher(tmp_path, files, "worker-0")
    try:
        result = again.end()
    finally:
        again.stop()
    start = again.events[0]
    assert start["event"] == "start"
    assert done <= start["step"] <= done + COMMIT_EVERY
    assert result["accuracy"] >= 0.95


def test_a_launcher_without_workers_waits(tmp_path: Path, files: Path) -> None:
    launcher = Launcher(tmp_path, files)
    try:
        eventually("the start", lambda: launcher.events)
        launcher.list_hosts("worker-0")
        launcher.wait_for_workers(1)
    finally:
        launcher.stop()


def test_a_stranger_takes_no_part(launcher: Launcher) -> None:
    """Whoever has no token gets no weights, and is no worker."""
    launcher.wait_for_workers(2)
    command = Path(f"/proc/{launcher.pid_of('worker-0')}/cmdline").read_text().split("\0")
    address, port = next(
        (word, command[index + 1])
        for index, word in enumerate(command)
        if re.fullmatch(r"127(\.\d+){3}", word)
    )
    with socket.create_connection((address, int(port))) as stranger:
        stranger.sendall(json.dumps({"host": "worker-0", "token": "guessed"}).encode() + b"\n")
        assert stranger.recv(1) == b""
    launcher.wait_for_workers(2)
    assert not [event for event in launcher.events if event["event"] == "lost"]


def test_shares_of_a_batch_add_up_to_the_gradient_of_the_batch() -> None:
    images, weights = digits_source.load(), network.initial()
    whole, loss = network.gradient(weights, images)
    halves = [
        network.gradient(weights, digits_source.part(images, np.arange(len(images))[half]))
        for half in (slice(0, 700), slice(700, None))
    ]
    assert np.allclose(sum(gradient for gradient, _ in halves), whole, rtol=1e-3, atol=1e-2)
    assert sum(loss for _, loss in halves) == pytest.approx(loss)


def test_the_gradient_is_the_slope_of_the_loss() -> None:
    images = digits_source.part(digits_source.load(), np.arange(20))
    weights = network.initial()
    gradient, _ = network.gradient(weights, images)
    direction = np.random.default_rng(1).normal(size=network.SIZE).astype(np.float32)
    small = np.float32(1e-3)
    _, before = network.gradient(weights - small * direction, images)
    _, after = network.gradient(weights + small * direction, images)
    slope = float(gradient @ direction)
    assert (after - before) / (2 * small) == pytest.approx(slope, rel=0.02)


def test_an_epoch_has_each_image_at_most_once(files: Path) -> None:
    training = Training(files)
    seen: list[int] = []
    for step in range(len(training.images) // 60):
        training.step = step
        seen += training.batch().tolist()
    assert len(set(seen)) == len(seen)
    assert len(seen) > len(training.images) - 60
