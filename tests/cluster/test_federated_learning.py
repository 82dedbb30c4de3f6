"""FederatedLearningJobs on a real control plane: made, healed, edited, deleted.

No kubelet runs here: what is bound to a node is deleted only by somebody who acts as one.
"""

import threading
from collections.abc import Iterator
from http.client import HTTPException
from typing import Any, Final

import pytest

from edgeai.api import ApiError, Object, path_of, wait_until
from tests.cluster.client import Client
from tests.cluster.manager import GlobalManager
from tests.cluster.samples import model
from tests.globalmanager.kinds.samples import federated

SETTLE_S: Final = 30.0
# The garbage collector looks for new types twice a minute.
COLLECTED_S: Final = 75.0
EVERY_S: Final = 0.2


class Kubelet:
    """What is left of one where no pod runs: it confirms that deleted pods have ended."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelet")
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(EVERY_S):
            try:
                self._confirm()
            except (ApiError, OSError, HTTPException):
                continue  # it is gone already, or next time

    def _confirm(self) -> None:
        for pod in self._client.list(self._pods):
            if "deletionTimestamp" in pod["metadata"]:
                path = f"{self._pods}/{pod['metadata']['name']}?gracePeriodSeconds=0"
                self._client.request("DELETE", path)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


class Job:
    """One FederatedLearningJob with what it refers to."""

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self.client, self.name = client, name
        self._namespace = namespace
        self._object = {
            "apiVersion": "edgeai.io/v1alpha1",
            "kind": "FederatedLearningJob",
            "metadata": {"name": name, "namespace": namespace},
            "spec": federated(),
        }
        self.path = path_of(self._object)

    def create(self) -> None:
        self.client.create(self._object)
        self.wait_for_pods()

    def pods(self) -> dict[str, Object]:
        path = f"/api/v1/namespaces/{self._namespace}/pods?labelSelector=edgeai.io/name={self.name}"
        return {pod["metadata"]["name"]: pod for pod in self.client.list(path)}

    def uids(self) -> dict[str, str]:
        return {name: pod["metadata"]["uid"] for name, pod in self.pods().items()}

    def pod_path(self, role: str) -> str:
        return f"/api/v1/namespaces/{self._namespace}/pods/{self.name}-{role}"

    def wait_for_pods(self, *, other_than: Any = ()) -> None:
        def missing() -> str:
            found = self.uids()
            are_new = len(found) == 3 and not set(found.values()) & set(other_than)
            return "" if are_new else str(found)

        wait_until("three pods", missing, timeout_s=SETTLE_S)

    def wait_for_new(self, role: str, before: dict[str, str]) -> None:
        name = f"{self.name}-{role}"

        def missing() -> str:
            uid = self.uids().get(name, "")
            return "" if uid and uid != before[name] else f"{name} has uid {uid!r}"

        wait_until(f"another pod {name}", missing, timeout_s=SETTLE_S)

    def wait_until_gone(self) -> None:
        wait_until("the pods' end", lambda: ", ".join(self.pods()), timeout_s=COLLECTED_S)

    def succeed(self, role: str) -> None:
        """As its kubelet would say."""
        patch = {"status": {"phase": "Succeeded"}}
        self.client.patch(f"{self.pod_path(role)}/status", patch)

    def status(self) -> dict[str, Any]:
        return dict(self.client.get(self.path).get("status") or {})

    def wait_for_status(self, field: str, value: Any) -> None:
        def differs() -> str:
            found = self.status().get(field)
            return "" if found == value else f"{field} is {found}"

        wait_until(f"{field} {value}", differs, timeout_s=SETTLE_S)


@pytest.fixture
def kubelet(client: Client, namespace: str) -> Iterator[None]:
    made = Kubelet(client, namespace)
    yield
    made.stop()


@pytest.fixture
def job(client: Client, manager: GlobalManager, namespace: str, kubelet: None) -> Job:
    client.create(model("small", namespace))
    for number in range(2):
        client.create(dataset(f"data{number}", f"edge{number}", namespace))
    made = Job(client, namespace, "digits")
    made.create()
    return made


@pytest.fixture
def neighbour(client: Client, namespace: str, job: Job) -> Iterator[None]:
    """A second job beside it, whose pods are the same before and after."""
    made = Job(client, namespace, "neighbour")
    made.create()
    before = made.uids()
    yield
    assert made.uids() == before


def dataset(name: str, node: str, namespace: str) -> Object:
    return {
        "apiVersion": "edgeai.io/v1alpha1",
        "kind": "Dataset",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"url": f"/data/{name}.csv", "format": "csv", "nodeName": node},
    }


def test_deleted_twice_within_seconds_a_pod_is_there_again(job: Job, neighbour: None) -> None:
    for _ in range(2):
        before = job.uids()
        job.client.delete(job.pod_path("train-0"))
        job.wait_for_new("train-0", before)


def test_an_edit_replaces_the_worker_that_it_concerns(job: Job, neighbour: None) -> None:
    before = job.uids()
    spec = federated()
    container = {"name": "main", "image": "registry.test/worker:2"}
    changed = {"dataset": {"name": "data1"}, "template": {"spec": {"containers": [container]}}}
    spec["trainingWorkers"][1] = changed
    job.client.patch(job.path, {"spec": spec})
    job.wait_for_new("train-1", before)
    after = job.uids()
    assert {name for name in after if after[name] != before[name]} == {"digits-train-1"}
    job.wait_for_status("observedGeneration", 2)


def test_what_happens_while_the_manager_is_down_is_made_good(
    job: Job, neighbour: None, manager: GlobalManager
) -> None:
    before = job.uids()
    manager.stop()
    job.client.patch(job.path, {"spec": federated(transmitter={"s3": {"aggDataPath": "s3://b/k"}})})
    job.client.delete(job.pod_path("aggregation"))
    manager.start()
    manager.wait_until_ready()
    job.wait_for_pods(other_than=before.values())


def test_a_finished_worker_is_not_run_again(job: Job, neighbour: None) -> None:
    job.succeed("train-0")
    job.wait_for_status("finished", ["digits-train-0"])
    before = job.uids()
    job.client.delete(job.pod_path("train-0"))
    job.client.delete(job.pod_path("train-1"))  # seen to be healed: so was the other, if at all
    job.wait_for_new("train-1", before)
    assert "digits-train-0" not in job.pods()


def test_a_job_whose_workers_have_succeeded_is_complete(job: Job, neighbour: None) -> None:
    for role in ("aggregation", "train-0", "train-1"):
        job.succeed(role)
    job.wait_for_status("phase", "Succeeded")
    for role in ("aggregation", "train-0", "train-1"):
        job.client.delete(job.pod_path(role))
    job.wait_for_status("active", 0)
    assert job.status()["succeeded"] == 3


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
def test_deletion_takes_everything_along(job: Job, neighbour: None, policy: str) -> None:
    job.client.request("DELETE", f"{job.path}?propagationPolicy={policy}")
    job.wait_until_gone()

    def left() -> str:
        return "" if job.client.find(job.path) is None else "the job is there"

    wait_until("the job's end", left, timeout_s=COLLECTED_S)
    assert job.pods() == {}


def test_a_deletion_while_the_manager_is_down_leaves_nothing(
    job: Job, neighbour: None, manager: GlobalManager
) -> None:
    manager.stop()
    job.client.delete(job.path)
    job.wait_until_gone()
    manager.start()
    manager.wait_until_ready()
    assert job.pods() == {}
