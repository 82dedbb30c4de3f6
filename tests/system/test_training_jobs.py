"""PyTorchJobs and TFJobs on the local cluster, with real processes that find each other."""

import json
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from edgeai.cli.api import Object
from edgeai.cli.environment import Environment
from tests.support.waiting import PATIENCE_S, eventually

NAMESPACE: Final = "default"
GROUP: Final = f"/apis/kubeflow.org/v1/namespaces/{NAMESPACE}"

# The master hears each worker's rank; the last worker is killed once, when it has told its rank.
RENDEZVOUS: Final = """
import json, os, pathlib, signal, socket, sys, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    listener = socket.create_server(place)
    ranks = {0}
    while len(ranks) < world:
        told = listener.accept()[0].recv(10)
        if told:  # a worker that waits for the port says nothing
            ranks.add(int(told))
    print("ranks", sorted(ranks), flush=True)
    time.sleep(3)  # long enough to be seen running
else:
    socket.create_connection(place).sendall(str(rank).encode())
    marker = pathlib.Path(sys.argv[1])
    if rank == world - 1 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)
"""

KILLED_ONCE: Final = """
import os, pathlib, signal, sys, time
marker = pathlib.Path(sys.argv[1])
if not marker.exists():
    marker.touch()
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(600)
"""

# Each task listens where TF_CONFIG says that it is, and connects to all others. It ends when it has
# heard all of them: whoever ends before that is never met by a slow one.
MESH: Final = """
import json, os, socket, time
config = json.loads(os.environ["TF_CONFIG"])
task = config["task"]
hosts = [host for hosts in config["cluster"].values() for host in hosts]
own = config["cluster"][task["type"]][task["index"]]
listener = socket.create_server((own.split(":")[0], int(own.split(":")[1])))
left = set(hosts)
while left:
    for host in sorted(left):
        try:
            place = (host.split(":")[0], int(host.split(":")[1]))
            with socket.create_connection(place, 1) as met:
                met.sendall(own.encode())
            left.discard(host)
        except OSError:
            time.sleep(0.1)
heard = set()
while heard != {host.encode() for host in hosts}:
    if told := listener.accept()[0].recv(100):  # else who gave up before it said a word
        heard.add(told)
print("met", len(hosts), flush=True)
if task["type"] == "ps":
    time.sleep(600)
"""


def template(container: str, script: str, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-c", script, *arguments]
    one = {"name": container, "image": "edgeai/test", "command": command}
    return {"spec": {"containers": [one], "terminationGracePeriodSeconds": 1}}


@pytest.fixture
def apply(running: Environment) -> Iterator[Any]:
    """Function that creates a job. The job is deleted after the test."""
    made: list[str] = []

    def create(
        kind: str,
        plural: str,
        name: str,
        spec: dict[str, Any],
        annotations: dict[str, str] | None = None,
    ) -> str:
        path = f"{GROUP}/{plural}/{name}"
        made.append(path)
        metadata = {"name": name, "namespace": NAMESPACE, "annotations": annotations or {}}
        running.api.apply(
            {"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": metadata, "spec": spec}
        )
        return path

    yield create
    for path in made:
        running.api.delete(path)
    eventually("the end of the jobs", lambda: not any(pods(running, ".") for _ in made))


def pods(running: Environment, part: str) -> dict[str, Object]:
    items = running.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
    return {
        each["metadata"]["name"]: each
        for each in items
        if part in each["metadata"]["name"] or part == "."
    }


def wait_for_last(running: Environment, path: str, state: str) -> Object:
    """The job, once its last condition is `state`."""

    def check() -> Object:
        job: Object = running.api.get(path)
        listed = job.get("status", {}).get("conditions", [])
        told = [f"{one['type']}={one['status']}: {one['message']}" for one in listed]
        last = listed[-1]["type"] if listed else ""
        assert last == state, f"{told}, {phases()}"
        return job

    def phases() -> dict[str, str]:
        return {name: pod["status"].get("phase", "") for name, pod in pods(running, ".").items()}

    return eventually(f"{path} to be {state}", check, timeout_s=120)


def test_processes_meet_by_the_masters_name_and_a_killed_worker_comes_back(
    running: Environment, apply: Any, tmp_path: Path
) -> None:
    script = template("pytorch", RENDEZVOUS, str(tmp_path / "killed"))
    replicas = {
        "Master": {"template": script},
        "Worker": {"replicas": 2, "restartPolicy": "ExitCode", "template": script},
    }
    path = apply(
        "PyTorchJob",
        "pytorchjobs",
        "meet",
        {"pytorchReplicaSpecs": replicas, "runPolicy": {"cleanPodPolicy": "Running"}},
    )
    job = wait_for_last(running, path, "Succeeded")
    types = [one["type"] for one in job["status"]["conditions"]]
    assert types[0] == "Created"
    assert types[-2:] in (["Running", "Succeeded"], ["Restarting", "Succeeded"])
    assert job["status"]["replicaStatuses"]["Master"]["succeeded"] == 1
    eventually("the workers' end", lambda: [*pods(running, "meet-")] == ["meet-master-0"])


def test_a_killed_worker_is_made_anew_once(
    running: Environment, apply: Any, tmp_path: Path
) -> None:
    waiting = template("pytorch", "import time; time.sleep(600)")
    killed = template("pytorch", KILLED_ONCE, str(tmp_path / "killed"))
    replicas = {
        "Master": {"template": waiting},
        "Worker": {"restartPolicy": "ExitCode", "template": killed},
    }
    path = apply(
        "PyTorchJob",
        "pytorchjobs",
        "again",
        {"pytorchReplicaSpecs": replicas},
        {"edgeai.io/wait-for-master": "false"},  # this master listens nowhere
    )

    def check() -> bool:
        status = running.api.get(path).get("status", {})
        assert status.get("restarts") == {"again-worker-0": 1}, status
        pod = pods(running, "again-").get("again-worker-0", {})
        assert pod.get("status", {}).get("phase") == "Running", pod.get("status")
        return True

    eventually("the worker's second attempt", check)
    wait_for_last(running, path, "Running")


def test_tasks_meet_by_tf_config_and_the_parameter_server_is_ended(
    running: Environment, apply: Any
) -> None:
    script = template("tensorflow", MESH)
    replicas = {
        "Chief": {"template": script},
        "Worker": {"replicas": 2, "template": script},
        "PS": {"template": script},
    }
    spec = {"tfReplicaSpecs": replicas, "runPolicy": {"cleanPodPolicy": "Running"}}
    job = wait_for_last(running, apply("TFJob", "tfjobs", "mesh", spec), "Succeeded")
    assert job["status"]["replicaStatuses"]["Chief"]["succeeded"] == 1
    eventually("the parameter server's end", lambda: "mesh-ps-0" not in pods(running, "mesh-"))


def test_a_deadline_and_a_time_to_live_fire_on_a_quiet_job(
    running: Environment, apply: Any
) -> None:
    quiet = template("pytorch", "import time; time.sleep(600)")
    policy = {"activeDeadlineSeconds": 2, "ttlSecondsAfterFinished": 2, "cleanPodPolicy": "All"}
    jobs = f"{GROUP}/pytorchjobs"
    since = running.api.get(jobs)["metadata"]["resourceVersion"]
    path = apply(
        "PyTorchJob",
        "pytorchjobs",
        "quiet",
        {"pytorchReplicaSpecs": {"Master": {"template": quiet}}, "runPolicy": policy},
    )
    eventually("the deletion of the job", lambda: running.api.find(path) is None)
    assert last_state(running, jobs, since) == "Failed"


def last_state(running: Environment, jobs: str, since: str) -> str:
    """Of the job that was deleted last, by the history: it is there for a short time only."""
    request = urllib.request.Request(
        f"{running.api.url}{jobs}?watch=true&resourceVersion={since}&timeoutSeconds=1",
        headers={"Authorization": f"Bearer {running.api.token}"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        events = [json.loads(line) for line in answer]
    (deleted,) = (event["object"] for event in events if event["type"] == "DELETED")
    return str(deleted["status"]["conditions"][-1]["type"])


def test_an_elastic_job_has_an_autoscaler_until_it_is_suspended(
    running: Environment, apply: Any
) -> None:
    target = {"type": "Utilization", "averageUtilization": 80}
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    worker = {"replicas": 1, "template": template("pytorch", "import time; time.sleep(600)")}
    spec = {
        "pytorchReplicaSpecs": {"Worker": worker},
        "elasticPolicy": {"minReplicas": 1, "maxReplicas": 2, "metrics": metrics},
    }
    path = apply("PyTorchJob", "pytorchjobs", "elastic", spec)
    wait_for_last(running, path, "Running")
    autoscaler = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers/elastic"
    made = running.api.get(autoscaler)["spec"]
    assert made["scaleTargetRef"]["name"] == "elastic"
    assert (made["minReplicas"], made["maxReplicas"], made["metrics"]) == (1, 2, metrics)
    running.api.patch(path, {"spec": {"runPolicy": {"suspend": True}}})
    wait_for_last(running, path, "Suspended")
    eventually("the end of the autoscaler", lambda: running.api.find(autoscaler) is None)
