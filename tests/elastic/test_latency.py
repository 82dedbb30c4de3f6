"""How fast a TrainingJob changes on genuine kubelets. Prints the figures of docs/performance.md."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from edgeai.cli.api import Object, path_of
from tests.cluster.images import BASE
from tests.elastic.places import NAMESPACE, kill_container
from tests.elastic.progress import shown
from tests.support.cluster import EDGES, Cluster
from tests.support.manager import GlobalManager
from tests.support.waiting import eventually

CHANGES: Final = 12
KILLS: Final = 3
"""The first so many workers of a job are replaced without a pause, however young they are."""
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
SEEN_LIMIT_S: Final = 5.0
"""Median of the time until the launcher sees a new worker, without the start of its pod."""
KUBELET_S: Final = 1.0
"""The kubelet looks once in this time for containers that have ended (plegRelistPeriod)."""
REPLACED_LIMIT_S: Final = 1.0
"""Median of the time from the report of a worker's death to the creation of another worker."""

# Says each new content of the list of hosts with the time on this machine's clock.
_READER: Final = """
import json, time
last = None
while True:
    try:
        found = open("/etc/edl/hostfile").read()
    except OSError:
        continue
    if found != last:
        print(json.dumps([time.time(), found]), flush=True)
        last = found
    time.sleep(0.01)
"""


def job(name: str) -> Object:
    def template(*command: str) -> Object:
        container = {
            "name": "main",
            "image": BASE,
            "imagePullPolicy": "Never",
            "command": [*command],
        }
        return {
            "spec": {
                "nodeName": EDGES[0],
                "terminationGracePeriodSeconds": 0,
                "containers": [container],
            }
        }

    worker = {
        "replicas": 2,
        "restartPolicy": "OnFailure",
        "template": template("sleep", "infinity"),
    }
    roles = {"launcher": {"template": template("python3", "-c", _READER)}, "worker": worker}
    return _object("TrainingJob", name, {"etReplicaSpecs": roles, "launcherAttachMode": "kubexec"})


def _object(kind: str, name: str, spec: Any) -> Object:
    metadata = {"name": name, "namespace": NAMESPACE}
    version = "kai.alibabacloud.com/v1alpha1"
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


class Pods:
    """Notes when each pod of the job is there, is ready, and has failed, by a watch."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.created: dict[str, float] = {}
        self.ready: dict[str, float] = {}
        self.failed: dict[str, float] = {}

    def __enter__(self) -> "Pods":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def wait_until_ready(self, name: str) -> None:
        eventually(f"the readiness of {name}", lambda: name in self.ready, timeout_s=300)

    def _run(self) -> None:
        listed = self._cluster.client.get(PODS)
        for pod in listed["items"]:
            self._note(pod)
        since = listed["metadata"]["resourceVersion"]
        while not self._stopping.is_set():
            where = {"resourceVersion": since, "timeoutSeconds": 1}
            with self._cluster.client.watch(PODS, **where) as stream:
                for event in stream.rest():
                    self._note(event["object"])
                    since = event["object"]["metadata"]["resourceVersion"]

    def _note(self, pod: Object) -> None:
        now, name, status = time.time(), pod["metadata"]["name"], pod["status"]
        self.created.setdefault(name, now)
        if status.get("phase") == "Failed":
            self.failed.setdefault(name, now)
        conditions = status.get("conditions", ())
        if any(one["type"] == "Ready" and one["status"] == "True" for one in conditions):
            self.ready.setdefault(name, now)


@contextmanager
def launched(cluster: Cluster, name: str) -> Iterator[None]:
    """While a job runs whose launcher sees two workers."""
    made = cluster.client.create(job(name))
    wait_for_list(cluster, name, worker(name, 0), worker(name, 1))
    yield
    cluster.client.delete(path_of(made))
    eventually("the end of the pods", lambda: not cluster.client.list(PODS), timeout_s=300)


def worker(job: str, index: int) -> str:
    return f"{job}-worker-{index}"


def wait_for_list(cluster: Cluster, job: str, *names: str) -> float:
    """Returns: when the launcher first saw all of these workers"""

    def check() -> float:
        said = cluster.control_plane.kubectl("logs", f"{job}-launcher").stdout
        seen = [json.loads(line) for line in said.splitlines() if line.startswith("[")]
        for at, text in seen:
            if {*names} <= {line.partition(":")[0] for line in text.splitlines()}:
                return float(at)
        raise AssertionError(f"{seen[-1:]}")

    return eventually(f"{names} in the launcher's list", check, timeout_s=300, poll_s=0.2)


def test_the_launcher_sees_a_new_worker_soon_after_a_scale_out(
    cluster: Cluster, manager: GlobalManager
) -> None:
    beyond_s = []
    with launched(cluster, "latency"), Pods(cluster) as pods:
        for number in range(CHANGES):
            name = worker("latency", 2 + number)
            applied = time.time()
            spec = {"selector": {"name": "latency"}, "toAdd": {"count": 1}}
            cluster.client.create(_object("ScaleOut", f"out-{number}", spec))
            seen = wait_for_list(cluster, "latency", name)
            pods.wait_until_ready(name)
            start_s = pods.ready[name] - pods.created[name]
            beyond_s.append(seen - applied - start_s)
    median = shown("from a ScaleOut to the launcher's list, without the start of the pod", beyond_s)
    assert median <= SEEN_LIMIT_S


def test_a_killed_worker_is_replaced_at_once(cluster: Cluster, manager: GlobalManager) -> None:
    from_report_s: list[float] = []
    from_death_s: list[float] = []
    for number in range(CHANGES // KILLS):
        name = f"kills-{number}"
        with launched(cluster, name), Pods(cluster) as pods:
            for index in range(1, 1 + KILLS):
                victim, replacement = worker(name, index), worker(name, index + 1)
                # The kubelet has just looked, and would always need the whole second.
                time.sleep(len(from_death_s) / CHANGES)
                killed = kill_container(cluster, victim)
                pods.wait_until_ready(replacement)
                from_death_s.append(pods.created[replacement] - killed)
                from_report_s.append(pods.created[replacement] - pods.failed[victim])
    from_report = shown("from the kubelet's report of the death to the new pod", from_report_s)
    from_death = shown("from a worker's death to the new pod", from_death_s)
    assert from_report <= REPLACED_LIMIT_S
    assert from_death <= REPLACED_LIMIT_S + KUBELET_S
