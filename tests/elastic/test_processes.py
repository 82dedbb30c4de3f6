"""Elastic jobs on the local cluster: horovodrun in the launcher, PyTorch in the workers."""

import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from edgeai.cli import environment
from edgeai.cli.api import Object, path_of
from edgeai.cli.environment import Environment
from tests.elastic.course import Course, check_the_whole_course
from tests.elastic.places import NAMESPACE, Processes
from tests.elastic.progress import shown
from tests.support.waiting import eventually

REPLACED_LIMIT_S: Final = 1.0
"""Median of the time from a worker's death to the creation of another worker."""
KILLS: Final = 3
"""So many workers of a job are replaced without a pause, however young they are."""
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"


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


def test_a_killed_worker_is_replaced_at_once(running: Environment) -> None:
    job = running.api.apply(_sleeping_job("kills"))

    def pods() -> dict[str, Object]:
        return {pod["metadata"]["name"]: pod for pod in running.api.get(PODS)["items"]}

    def process(name: str) -> int:
        """The id of the pod's process; 0 while the pod does not run."""
        status = pods().get(name, {}).get("status", {})
        if status.get("phase") != "Running":
            return 0
        return int(status["containerStatuses"][0]["containerID"].removeprefix("process://"))

    def is_there(name: str) -> bool:
        return name in pods()

    eventually("the launcher", partial(process, "kills-launcher"))
    found_s = []
    for index in range(1, 1 + KILLS):
        victim = eventually("the worker", partial(process, f"kills-worker-{index}"))
        killed = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        eventually("the new pod", partial(is_there, f"kills-worker-{index + 1}"), poll_s=0.01)
        found_s.append(time.monotonic() - killed)
    running.api.delete(path_of(job))
    assert shown("from a worker's death to its replacement", found_s) <= REPLACED_LIMIT_S


def _sleeping_job(name: str) -> Object:
    container = {"name": "main", "image": "none", "command": ["sleep", "infinity"]}
    spec = {"terminationGracePeriodSeconds": 0, "containers": [container]}
    template = {"spec": spec}
    worker = {"replicas": 2, "restartPolicy": "OnFailure", "template": template}
    roles = {"launcher": {"template": template}, "worker": worker}
    return {
        "apiVersion": "kai.alibabacloud.com/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"etReplicaSpecs": roles, "launcherAttachMode": "kubexec"},
    }
