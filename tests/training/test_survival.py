"""A training job ends as it should, whatever is killed, lost or changed on its way."""

import http.client
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from edgeai.cli.api import Object
from edgeai.cli.environment import Environment
from tests.support.waiting import eventually
from tests.system.manager import kill_manager, stopped_manager

_PROCESS: Final = """
import os, pathlib, select, signal, socket, sys, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
finish, crash = map(pathlib.Path, sys.argv[1:])
if rank == 0:
    listener = socket.create_server(place)
    peers = {}
    while len(peers) < world - 1:
        peer = listener.accept()[0]
        told = peer.recv(10)
        if told:  # a worker that waits for the port says nothing
            peers[int(told)] = peer
    print("training", world, flush=True)
    while not finish.exists():
        if select.select(peers.values(), [], [], 0.1)[0]:
            sys.exit("lost a worker")
    for peer in peers.values():
        peer.sendall(b"done")
else:
    master = socket.create_connection(place)
    master.sendall(str(rank).encode())
    if rank == world - 1 and crash.exists():
        crash.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    if not master.recv(10):
        sys.exit("lost the master")
"""
"""Collective training without PyTorch: who loses a peer before the end ends with 1, as in gloo."""


def spec(finish: Path, crash: Path | None = None, **of_workers: Any) -> dict[str, Any]:
    """The spec of a PyTorchJob of a master and two workers that all restart together.

    Args:
        finish: the file that ends the training
        crash: while this file exists, the last worker removes it and crashes
        of_workers: further fields of the workers' pods
    """
    command = [sys.executable, "-c", _PROCESS, str(finish), str(crash or finish)]
    container = {"name": "pytorch", "image": "edgeai/test", "command": command}
    pod = {"containers": [container], "terminationGracePeriodSeconds": 1}
    return {
        "runPolicy": {"cleanPodPolicy": "All", "restartScope": "Job"},
        "pytorchReplicaSpecs": {
            "Master": {"template": {"spec": pod}},
            "Worker": {"replicas": 2, "template": {"spec": {**pod, **of_workers}}},
        },
    }


NAMESPACE: Final = "default"
JOBS: Final = f"/apis/kubeflow.org/v1/namespaces/{NAMESPACE}/pytorchjobs"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
PATIENCE_S: Final = 200.0
WORKERS: Final = {"worker-0", "worker-1"}
REPLICAS: Final = {"master-0", *WORKERS}

pytestmark = pytest.mark.timeout(600)


class LongJob:
    """A PyTorchJob, and its pods since its creation."""

    def __init__(self, running: Environment, name: str, spec: dict[str, Any]) -> None:
        self._api = running.api
        self._name = name
        self._since = self._api.get(PODS)["metadata"]["resourceVersion"]
        self.path = f"{JOBS}/{name}"
        metadata = {"name": name, "namespace": NAMESPACE}
        job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
        self._api.create({**job, "metadata": metadata, "spec": spec})

    @property
    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self._api.get(self.path).get("status", {})
        return status

    @property
    def state(self) -> str:
        listed = self.status.get("conditions", [])
        return str(listed[-1]["type"]) if listed else ""

    def pods(self) -> dict[str, Object]:
        """By the end of their names: "master-0"."""
        found = self._api.get(PODS)["items"]
        own = [pod for pod in found if pod["metadata"]["name"].startswith(f"{self._name}-")]
        return {pod["metadata"]["name"].removeprefix(f"{self._name}-"): pod for pod in own}

    def pods_made(self) -> Counter[str]:
        """How many pods each name has had so far."""
        server = self._api.url.split("/")[2]
        connection = http.client.HTTPConnection(server, timeout=60)
        path = f"{PODS}?watch=true&resourceVersion={self._since}&timeoutSeconds=1"
        connection.request("GET", path, headers={"Authorization": f"Bearer {self._api.token}"})
        events = [json.loads(line) for line in connection.getresponse()]
        connection.close()
        assert all(event["type"] != "ERROR" for event in events), events[-1]
        marks = {(e["object"]["metadata"]["name"], e["object"]["metadata"]["uid"]) for e in events}
        own = [name for name, _ in marks if name.startswith(f"{self._name}-")]
        return Counter(name.removeprefix(f"{self._name}-") for name in own)

    def wait_for(self, what: str, check: Callable[[], Any]) -> None:
        def told() -> bool:
            phases = {name: pod["status"].get("phase") for name, pod in self.pods().items()}
            assert check(), (phases, self.status)
            return True

        eventually(f"{what} of {self._name}", told, timeout_s=PATIENCE_S)

    def wait_for_training(self, restarts: int) -> None:
        def runs() -> bool:
            pods = self.pods()
            phases = {pod["status"].get("phase") for pod in pods.values()}
            is_settled = self.status.get("jobRestarts", 0) == restarts and phases == {"Running"}
            lines = self._api.log(NAMESPACE, f"{self._name}-master-0") if is_settled else []
            return any("training" in line for line in lines)

        self.wait_for("training", runs)

    def wait_for_end_of_pods(self) -> None:
        eventually(f"the end of the pods of {self._name}", lambda: not self.pods())

    def require_one_good_end(self) -> None:
        """Exactly one terminal condition, and no pod is left."""
        self.wait_for("success", lambda: self.state == "Succeeded")
        self.wait_for_end_of_pods()
        listed = [(one["type"], one["status"]) for one in self.status["conditions"]]
        ends = [one for one in listed if one[0] in ("Succeeded", "Failed")]
        assert ends == [("Succeeded", "True")], listed
        assert ("Running", "True") not in listed


@pytest.fixture
def submit(running: Environment) -> Iterator[Callable[..., LongJob]]:
    made: list[LongJob] = []

    def create(name: str, spec: dict[str, Any]) -> LongJob:
        made.append(LongJob(running, name, spec))
        return made[-1]

    yield create
    for job in made:
        running.api.delete(job.path)
    for job in made:
        job.wait_for_end_of_pods()


def test_the_global_manager_is_killed_at_each_step_of_a_job(
    running: Environment, submit: Callable[..., LongJob], tmp_path: Path
) -> None:
    finish, crash = tmp_path / "finish", tmp_path / "crash"
    crash.touch()
    job = submit("steps", spec(finish, crash))
    kill_manager(running)  # before the first step
    job.wait_for("the first pod", job.pods)
    kill_manager(running)
    job.wait_for("the crash", lambda: not crash.exists())
    kill_manager(running)
    job.wait_for_training(restarts=1)
    kill_manager(running)
    with stopped_manager(running):  # so that nobody sees the end of the master before the kill
        finish.touch()
        job.wait_for("the end of the master", lambda: phase(job, "master-0") == "Succeeded")
    job.require_one_good_end()
    assert job.status["jobRestarts"] == 1
    assert job.pods_made() == dict.fromkeys(REPLICAS, 2)


def test_the_global_manager_is_killed_at_random_moments_of_many_jobs(
    running: Environment, submit: Callable[..., LongJob], tmp_path: Path
) -> None:
    seed = random.randrange(10**6)
    print("seed", seed)  # shown when the test fails
    chance = random.Random(seed)
    finish = tmp_path / "finish"
    jobs = []
    kills = sorted(chance.sample(range(6), 3))
    for number in range(6):
        crash = tmp_path / f"crash-{number}"
        crash.touch()
        jobs.append(submit(f"random-{number}", spec(finish, crash)))
        time.sleep(chance.uniform(0, 2))
        if number in kills:
            kill_manager(running)
    for job in jobs:
        job.wait_for_training(restarts=1)
    finish.touch()
    time.sleep(chance.uniform(0, 1))
    kill_manager(running)
    for job in jobs:
        job.require_one_good_end()
        assert job.status["jobRestarts"] == 1
        assert job.pods_made() == dict.fromkeys(REPLICAS, 2)


def test_the_number_of_workers_is_changed_while_the_job_runs(
    running: Environment, submit: Callable[..., LongJob], tmp_path: Path
) -> None:
    finish = tmp_path / "finish"
    job = submit("scaled", spec(finish))
    job.wait_for_training(restarts=0)
    running.api.patch(f"{job.path}/scale", {"spec": {"replicas": 3}})
    job.wait_for("one more pod", lambda: set(job.pods()) == {*REPLICAS, "worker-2"})
    running.api.patch(f"{job.path}/scale", {"spec": {"replicas": 1}})
    # The master loses a worker, so the job starts anew with the processes that are left.
    job.wait_for_training(restarts=1)
    job.wait_for("the end of the others", lambda: set(job.pods()) == {"master-0", "worker-0"})
    assert running.api.log(NAMESPACE, "scaled-master-0")[-1] == "training 2"
    finish.touch()
    job.require_one_good_end()


def test_the_node_of_the_workers_is_lost(
    running: Environment, submit: Callable[..., LongJob], tmp_path: Path
) -> None:
    """The last test of this module: the cluster lacks a node from now on."""
    finish = tmp_path / "finish"
    edge = {"node-role.kubernetes.io/edge": ""}
    job = submit("moved", spec(finish, nodeSelector=edge))
    job.wait_for_training(restarts=0)
    assert nodes(job) == {"edge0"}
    running.api.delete("/api/v1/nodes/edge0")
    job.wait_for("other pods", lambda: nodes(job) == {"edge1"})
    job.wait_for_training(restarts=1)  # the master has lost the workers
    finish.touch()
    job.require_one_good_end()
    assert job.status["jobRestarts"] == 1


def phase(job: LongJob, name: str) -> str:
    return str(job.pods().get(name, {}).get("status", {}).get("phase", ""))


def nodes(job: LongJob) -> set[str]:
    """The nodes of the workers."""
    pods = job.pods()
    return {str(pods.get(name, {}).get("spec", {}).get("nodeName")) for name in WORKERS}
