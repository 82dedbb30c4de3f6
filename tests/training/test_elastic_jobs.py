"""TrainingJobs on the local cluster, whose launchers do something trivial."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgeai.cli.api import Object, path_of
from edgeai.cli.environment import Environment
from tests.globalmanager.kinds.elastic.world import JOB, LAUNCHER, example, worker
from tests.support.waiting import eventually
from tests.training.jobs import pods, wait_for_end

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
        made.append(running.api.create(job))
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


def test_a_job_loses_a_worker_and_its_launcher_and_goes_on(
    running: Environment, submit: Any, tmp_path: Path
) -> None:
    """The launcher ends well once the file is there."""
    done = tmp_path / "done"
    job = submit(f"until [ -e {done} ]; do sleep 0.2; done", restartPolicy="OnFailure")

    def wait_for(expected: dict[str, Any]) -> None:
        def check() -> bool:
            told = running.api.get(path_of(job)).get("status", {})
            found = {key: told.get(key) for key in expected}
            assert found == expected, found
            return True

        eventually(f"{expected}", check)

    wait_for({"phase": "Running", "currentWorkers": [worker(0), worker(1)]})
    kill(running, worker(1))
    wait_for({"targetWorkers": [worker(0), worker(2)], "replacedWorkers": 1})
    kill(running, LAUNCHER)
    wait_for({"phase": "Running", "restartCount": 1})
    done.touch()
    wait_for({"phase": "Succeeded", "targetWorkers": [worker(0), worker(2)]})


def kill(running: Environment, pod: str) -> None:
    """End the process of the pod's container by SIGKILL."""
    state = pods(running)[pod]["status"]["containerStatuses"][0]
    os.kill(int(state["containerID"].removeprefix("process://")), signal.SIGKILL)


def test_a_job_scales_with_a_script_and_lets_a_busy_worker_finish(
    running: Environment, submit: Any, tmp_path: Path
) -> None:
    """The launcher has a process with a worker's name, as ssh would be, until it is told to end."""
    free, done, told = tmp_path / "free", tmp_path / "done", tmp_path / "told"
    script = tmp_path / "scale.sh"
    script.write_text(f'echo "$1 $TOKEN" > {told}\n')
    wait = "until [ -e {} ]; do sleep 0.2; done"
    connection = f"sh -c '{wait.format(free)}' ssh {worker(1)}"
    job = submit(f"{connection} & {wait.format(done)}; cat /etc/edl/hostfile")
    wait_for_status(running, job, {"phase": "Running"})

    env = [{"name": "TOKEN", "value": "a 'secret'"}]
    out = scaler("ScaleOut", {"toAdd": {"count": 1}, "script": str(script), "env": env})
    running.api.create(out)
    wait_for_status(running, out, {"phase": "ScaleSucceeded", "addPods": [worker(2)]})
    assert told.read_text() == f"{worker(2)}:1 a 'secret'\n"

    scale_in = scaler("ScaleIn", {"toDelete": {"podNames": [worker(1)]}, "timeout": 300})
    running.api.create(scale_in)
    left = [worker(0), worker(2)]
    wait_for_status(running, job, {"phase": "Scaling", "currentWorkers": left})
    wait_for_status(running, scale_in, {"phase": "ScriptExecuted"})
    assert worker(1) in pods(running)
    free.touch()
    wait_for_status(running, scale_in, {"phase": "ScaleSucceeded"})
    assert worker(1) not in pods(running)
    wait_for_status(running, job, {"phase": "Running", "targetWorkers": left})
    done.touch()
    wait_for_status(running, job, {"phase": "Succeeded"})
    assert running.api.log("default", LAUNCHER) == [f"{name}:1" for name in left]
    running.api.delete(path_of(out))
    running.api.delete(path_of(scale_in))


def scaler(kind: str, spec: dict[str, Any]) -> Object:
    return {
        "apiVersion": "kai.alibabacloud.com/v1alpha1",
        "kind": kind,
        "metadata": {"name": f"a-{kind.lower()}", "namespace": "default"},
        "spec": {"selector": {"name": JOB}, **spec},
    }


def wait_for_status(running: Environment, object_: Object, expected: dict[str, Any]) -> None:
    def check() -> bool:
        told = running.api.get(path_of(object_)).get("status", {})
        found = {key: told.get(key) for key in expected}
        assert found == expected, told
        return True

    eventually(f"{expected} of {object_['kind']}", check)
