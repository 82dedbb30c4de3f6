"""JointInferenceServices on the local cluster, with real workers: deleted, edited, unready."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from edgeai.cli import system
from edgeai.cli.api import Object, path_of
from edgeai.cli.environment import Environment
from tests.support.inference_rules import InferenceRules, InferenceService, ManagerDown
from tests.system import counting_worker, processes
from tests.system.manager import stopped_manager

NAMESPACE: Final = "default"
CHECKOUT: Final = Path(__file__).parents[2]
SETTLE_S: Final = 60.0
NODES: Final = {"edge": "edge0", "cloud": system.CLOUD}
SLEEPING: Final = ["sleep", "infinity"]
COUNTING: Final = [sys.executable, "-m", counting_worker.__name__, "digits"]


class Service(InferenceService):
    """Each worker is ready for as long as there is a file in the service's directory."""

    def __init__(
        self, running: Environment, name: str, directory: Path, *, edge: list[str]
    ) -> None:
        self._running, self._directory = running, directory
        directory.mkdir()
        commands = {"edge": edge, "cloud": SLEEPING}
        self.models = {role: self._model(name, role) for role in NODES}
        spec = {f"{role}Worker": self._worker(name, role, commands[role]) for role in NODES}
        manifest = _object("JointInferenceService", name, spec)
        super().__init__(running.api, running.api.apply, manifest, timeout_s=SETTLE_S)

    def apply(self) -> None:
        for model in self.models.values():
            self._running.api.apply(model)
        self.create()
        self.wait_for("phase", "Running")

    def remove(self) -> None:
        for path in (self.path, *map(path_of, self.models.values())):
            self.api.delete(path)
        self.wait_until_gone()

    def set_ready(self, role: str, *, ready: bool) -> None:
        if ready:
            self._ready_file(role).touch()
        else:
            self._ready_file(role).unlink()

    def _ready_file(self, role: str) -> Path:
        return self._directory / f"{role}-is-ready"

    def _model(self, name: str, role: str) -> Object:
        spec = {"url": str(self._directory / role), "format": "none"}
        return _object("Model", f"{name}-{role}", spec)

    def _worker(self, name: str, role: str, command: list[str]) -> Object:
        self.set_ready(role, ready=True)
        container = {
            "name": "worker",
            "image": "edgeai/test",
            "command": command,
            "workingDir": str(CHECKOUT),
            "readinessProbe": {
                "exec": {"command": ["test", "-e", str(self._ready_file(role))]},
                "periodSeconds": 1,
                "failureThreshold": 1,
            },
        }
        spec = {
            "nodeName": NODES[role],
            "containers": [container],
            "terminationGracePeriodSeconds": 1,
        }
        return {"model": {"name": f"{name}-{role}"}, "template": {"spec": spec}}


def _object(kind: str, name: str, spec: Object) -> Object:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "edgeai.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


@pytest.fixture
def service(running: Environment, tmp_path: Path) -> Iterator[Service]:
    made = Service(running, "digits", tmp_path / "digits", edge=SLEEPING)
    try:
        made.apply()
        yield made
    finally:
        made.remove()


@pytest.fixture(scope="module")
def neighbour(running: Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    made = Service(running, "neighbour", tmp_path_factory.mktemp("n") / "neighbour", edge=SLEEPING)
    try:
        made.apply()
        yield made
    finally:
        made.remove()


@pytest.fixture
def manager_down(running: Environment) -> ManagerDown:
    return partial(stopped_manager, running)


class TestOnTheLocalCluster(InferenceRules):
    pass


# ---- counts -------------------------------------------------------------------------------------


@pytest.fixture
def counting(running: Environment, tmp_path: Path) -> Iterator[Service]:
    """One whose edge worker counts; the CR says so already."""
    made = Service(running, "digits", tmp_path / "digits", edge=COUNTING)
    try:
        made.apply()
        wait_for_counts(made)
        yield made
    finally:
        made.remove()


def test_what_a_first_life_counted_is_not_in_the_second(
    running: Environment, counting: Service
) -> None:
    counting.delete()
    counting.create()
    wait_for_counts(counting)
    counting.wait_for("uploadCount", finish(running, counting))
    (entry,) = counting.status()["workers"].values()
    assert entry["attempt"] == 1


def test_while_one_pod_follows_another_the_counts_of_both_are_added_up(
    running: Environment, counting: Service
) -> None:
    """They report under one name, in turns; the roll is held up until both have told all."""
    counting.set_ready("edge", ready=False)
    counting.set_env("edge", "yes")

    def check() -> bool:
        pids = pids_of_edge(running)
        assert len(pids) == 2, f"{len(pids)} of 2 run"
        return True

    counting.eventually("two edge workers", check)
    wait_for_counts(counting, more_than=counting.status()["uploadCount"])
    uploaded = finish(running, counting)
    counting.wait_for("uploadCount", uploaded)
    counting.set_ready("edge", ready=True)
    counting.eventually("one edge worker", lambda: len(pids_of_edge(running)) == 1)
    assert counting.status()["uploadCount"] == uploaded


def wait_for_counts(service: Service, *, more_than: int = 0) -> None:
    def check() -> bool:
        count = service.status().get("uploadCount") or 0
        assert count > more_than, f"uploadCount is {count}"
        return True

    service.eventually(f"more than {more_than} uploads in the CR", check)


def pids_of_edge(running: Environment) -> list[int]:
    return processes.pids_of(running, counting_worker.__name__, "digits")


def finish(running: Environment, service: Service) -> int:
    """Stop all counting. Returns: how many uploads its edge workers counted"""
    pods = [pod["metadata"]["name"] for pod in service.made()["Pod/digits-edge"]]
    for pod in pods:  # before that the signal would end the process
        wait_for_line(running, pod, counting_worker.READY)
    for pid in pids_of_edge(running):
        os.kill(pid, signal.SIGUSR1)
    return sum(json.loads(wait_for_line(running, pod, "{"))["uploaded"] for pod in pods)


def wait_for_line(running: Environment, pod: str, beginning: str) -> str:
    log = running.api.follow_log(NAMESPACE, pod, silence_s=SETTLE_S)
    return next(line for line in log if line.startswith(beginning))
