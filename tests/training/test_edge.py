"""Training jobs with a replica on an edge node, on the local cluster: real workers, real managers.

The node of the local cluster has no kubelet that can fall silent. So where a test needs this, the
test marks the pod as the node controller of Kubernetes does.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from edgeai.cli.api import Object
from edgeai.demo.joint_inference.story import EDGE_NODE
from edgeai.times import rfc3339, utc_now
from tests.support.waiting import eventually
from tests.system import processes
from tests.system.line import LOCALCONTROLLER, Line, up_with_line

NAMESPACE: Final = "default"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
GRACE: Final = "edgeai.io/edge-grace-period-seconds"

# A replica ends with the exit code that somebody writes into its file.
ENDS_WHEN_TOLD: Final = """
import pathlib, sys, time
file = pathlib.Path(sys.argv[1])
while not (code := file.read_text() if file.exists() else ""):
    time.sleep(0.1)
file.unlink()
sys.exit(int(code))
"""


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    with up_with_line(tmp_path_factory.mktemp("edge") / "state", contact_grace_s=1) as line:
        yield line


class EdgeJob:
    """A job with one replica in the cloud, which leads, and one on the edge node."""

    def __init__(self, api: Any, kind: str, directory: Path, *, grace: str) -> None:
        self._api = api
        self._directory = directory
        plural, specs, leader, container = {
            "PyTorchJob": ("pytorchjobs", "pytorchReplicaSpecs", "Master", "pytorch"),
            "TFJob": ("tfjobs", "tfReplicaSpecs", "Chief", "tensorflow"),
        }[kind]
        name = f"{kind.lower()}-{directory.name[-1]}"
        self.path = f"/apis/kubeflow.org/v1/namespaces/{NAMESPACE}/{plural}/{name}"
        self.leader, self.worker = f"{name}-{leader.lower()}-0", f"{name}-worker-0"
        self.container = container
        selector = {"kubernetes.io/hostname": EDGE_NODE}
        replicas = {
            leader: {"template": self._template(self.leader), "restartPolicy": "ExitCode"},
            "Worker": {
                "template": self._template(self.worker, nodeSelector=selector),
                "restartPolicy": "ExitCode",
            },
        }
        notes = {GRACE: grace, "edgeai.io/wait-for-master": "false"}
        api.apply(
            {
                "apiVersion": "kubeflow.org/v1",
                "kind": kind,
                "metadata": {"name": name, "namespace": NAMESPACE, "annotations": notes},
                "spec": {specs: replicas},
            }
        )

    def _template(self, replica: str, **spec: Any) -> dict[str, Any]:
        command = [sys.executable, "-c", ENDS_WHEN_TOLD, str(self._directory / replica)]
        one = {"name": self.container, "image": "edgeai/test", "command": command}
        return {"spec": {"containers": [one], "terminationGracePeriodSeconds": 1, **spec}}

    def end(self, replica: str, code: int) -> None:
        (self._directory / replica).write_text(str(code))

    @property
    def status(self) -> Object:
        status: Object = self._api.get(self.path).get("status", {})
        return status

    def uid(self, replica: str) -> str:
        """Of the replica's pod; "" while there is none."""
        pod = self._api.find(f"{PODS}/{replica}")
        return "" if pod is None else str(pod["metadata"]["uid"])

    def is_running(self) -> bool:
        listed = self.status.get("conditions", [])
        return bool(listed) and (listed[-1]["type"], listed[-1]["status"]) == ("Running", "True")

    def wait_for(self, what: str, check: Callable[[Object], object]) -> Object:
        """Until `check` is true of the status. Returns: the status"""

        def holds() -> Object:
            status = self.status
            pods = [
                (pod["metadata"]["name"], pod["status"].get("phase"))
                for pod in self._api.get(PODS)["items"]
            ]
            assert check(status), f"{status}, {pods}"
            return status

        return eventually(f"{self.path}: {what}", holds, timeout_s=120)

    def wait_for_word(self, status: str, codes: str = "") -> Object:
        """Until the LocalController has said this of the worker's pod. Returns: its words"""

        def check(known: Object) -> bool:
            entry = known.get("workers", {}).get(self.worker, {})
            told = entry.get("details", {}).get("exitCodes", "")
            return (entry.get("status"), told) == (status, codes)

        known = self.wait_for(f"worker {status} {codes}", check)
        entry: Object = known["workers"][self.worker]
        assert entry["node"] == EDGE_NODE
        return entry

    def wait_for_contact(self, truth: str, reason: str) -> Object:
        def check(status: Object) -> bool:
            found = of_type(status, "EdgeConnected")
            return (found.get("status"), found.get("reason")) == (truth, reason)

        return of_type(self.wait_for(f"EdgeConnected {truth} {reason}", check), "EdgeConnected")

    def wait_for_last(self, state: str) -> Object:
        return self.wait_for(state, lambda status: last(status) == state)

    def silence_kubelet(self) -> None:
        """Mark the worker's pod as the node controller does for a node that it has lost."""
        ready = {"type": "Ready", "status": "False", "lastTransitionTime": rfc3339(utc_now())}
        self._mark(ready)

    def hear_kubelet(self) -> None:
        self._mark({"type": "Ready", "status": "True", "lastTransitionTime": rfc3339(utc_now())})

    def _mark(self, ready: Object) -> None:
        pod = self._api.get(f"{PODS}/{self.worker}")
        known = pod["status"].get("conditions", [])
        others = [one for one in known if one["type"] != "Ready"]
        patch = {"status": {"conditions": [*others, ready]}}
        self._api.patch(f"{PODS}/{self.worker}/status", patch)


def of_type(status: Object, type_: str) -> Object:
    return next((one for one in status.get("conditions", []) if one["type"] == type_), {})


def last(status: Object) -> str:
    return str((status.get("conditions") or [{"type": ""}])[-1]["type"])


@pytest.fixture(params=["PyTorchJob", "TFJob"])
def create(
    request: pytest.FixtureRequest, edge: Line, tmp_path: Path
) -> Iterator[Callable[[str], EdgeJob]]:
    """Function from a grace time to a job, whose replicas run."""
    made: list[EdgeJob] = []

    def begin(grace: str) -> EdgeJob:
        job = EdgeJob(edge.running.api, request.param, tmp_path, grace=grace)
        made.append(job)
        job.wait_for_last("Running")
        job.wait_for_word("running")
        return job

    yield begin
    edge.proxy.mend()
    for job in made:
        edge.running.api.delete(job.path)
    eventually("the end of the pods", lambda: not edge.running.api.get(PODS)["items"])
    edge.wait_for_session()


def test_a_job_goes_on_through_a_cut_and_a_killed_localcontroller(
    edge: Line, create: Callable[[str], EdgeJob]
) -> None:
    job = create("600")
    uids = job.uid(job.leader), job.uid(job.worker)
    said = job.wait_for_word("running")
    assert said["details"]["podUid"] == uids[1]
    job.wait_for_contact("True", "Connected")

    edge.cut()
    job.wait_for_contact("False", "NoContact")
    killed = processes.kill(edge.running, *LOCALCONTROLLER)
    processes.wait_for_successor(edge.running, killed, *LOCALCONTROLLER)
    job.end(job.worker, 0)
    job.wait_for("the worker's end", lambda status: status.get("finished") == [job.worker])
    assert job.is_running(), job.status
    assert job.status["workers"][job.worker]["status"] == "running", "no report passes the cut"

    edge.mend()
    said = job.wait_for_word("completed", f"{job.container}=0")
    assert said["details"]["podUid"] == uids[1]
    assert (job.uid(job.leader), job.uid(job.worker)) == uids, "a pod was made anew"
    job.end(job.leader, 0)
    status = job.wait_for_last("Succeeded")
    assert "restarts" not in status
    assert not of_type(status, "EdgeConnected")


def test_an_exit_code_comes_up_and_the_next_pod_after_it(
    edge: Line, create: Callable[[str], EdgeJob]
) -> None:
    job = create("600")
    first = job.uid(job.worker)
    job.end(job.worker, 137)
    job.wait_for("a restart", lambda status: status.get("restarts") == {job.worker: 1})
    job.end(job.worker, 0)
    eventually("the next pod", lambda: job.uid(job.worker) not in ("", first))
    said = job.wait_for_word("completed", f"{job.container}=0")
    assert said["details"]["podUid"] == job.uid(job.worker)
    job.end(job.leader, 0)
    job.wait_for_last("Succeeded")


def test_a_node_that_is_back_within_the_grace_time_keeps_its_replica(
    edge: Line, create: Callable[[str], EdgeJob]
) -> None:
    job = create("600")
    uid = job.uid(job.worker)
    edge.cut()
    job.silence_kubelet()
    contact = job.wait_for_contact("False", "ReplicasOutOfContact")
    assert f"{job.worker} since " in contact["message"]
    assert job.is_running(), job.status
    edge.mend()
    job.hear_kubelet()
    job.wait_for_contact("True", "Connected")
    job.end(job.worker, 0)
    job.end(job.leader, 0)
    status = job.wait_for_last("Succeeded")
    assert job.uid(job.worker) == uid
    assert "restarts" not in status


def test_a_node_that_is_lost_for_longer_has_its_replica_made_anew(
    edge: Line, create: Callable[[str], EdgeJob]
) -> None:
    job = create("5")
    uid = job.uid(job.worker)
    edge.cut()
    job.silence_kubelet()
    status = job.wait_for("a restart", lambda status: status.get("restarts"))
    assert status["restarts"] == {job.worker: 1}
    eventually("another pod", lambda: job.uid(job.worker) not in ("", uid))
    job.wait_for_last("Running")
    edge.mend()
    said = job.wait_for(
        "a report of the new pod",
        lambda status: status["workers"][job.worker]["details"]["podUid"] == job.uid(job.worker),
    )
    assert said["restarts"] == {job.worker: 1}
    job.end(job.worker, 0)
    job.end(job.leader, 0)
    job.wait_for_last("Succeeded")
