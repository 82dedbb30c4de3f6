"""TrainingJobs on the local cluster, whose launchers do something trivial."""

from collections.abc import Iterator
from typing import Any

import pytest

from edgeai.api import Object, collection_of, path_of
from edgeai.environment import Environment
from tests.globalmanager.kinds.elastic import LAUNCHER, example, worker
from tests.training.jobs import pods, wait_for_end
from tests.waiting import eventually

WAITS = ["sleep", "3600"]


@pytest.fixture
def submit(running: Environment) -> Iterator[Any]:
    """Function that creates a job and returns it. The job ends with the test."""
    made: list[Object] = []

    def create(launcher: str, **changes: Any) -> Object:
        job = example(**changes)
        del job["metadata"]["uid"], job["metadata"]["generation"]
        replicas = job["spec"]["etReplicaSpecs"]
        replicas["launcher"]["template"]["spec"]["containers"][0]["command"] = [
            "sh",
            "-c",
            launcher,
        ]
        replicas["worker"]["template"]["spec"]["containers"][0]["command"] = WAITS
        made.append(running.api.create(collection_of(job), job))
        return made[-1]

    yield create
    for each in made:
        running.api.delete(path_of(each))
        eventually("the end of the pods", lambda: not pods(running))


def test_the_example_runs_to_its_end(running: Environment, submit: Any) -> None:
    job = submit("cat /etc/edl/hostfile; ls /root/.ssh")
    ended = wait_for_end(running, job)
    assert ended["status"]["phase"] == "Succeeded"
    assert ended["status"]["currentWorkers"] == [worker(0), worker(1)]
    assert running.api.log("default", LAUNCHER) == [
        *(f"{worker(index)}:1" for index in range(2)),
        *("authorized_keys", "config", "id_rsa", "id_rsa.pub"),
    ]
    eventually("the end of the workers", lambda: list(pods(running)) == [LAUNCHER])
