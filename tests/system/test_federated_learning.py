"""FederatedLearningJobs on the local cluster: real pods, killed, deleted and edited on the way.

The workers learn a mean: rounds are exact, so a lost or doubled update would show. Each job
stands beside another one in its namespace, whose pods must keep their uid.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeai.api import Api, Object, path_of, wait_until
from edgeai.environment import Environment
from tests.system import processes

NAMESPACE = "default"
CHECKOUT = Path(__file__).parents[2]
DATA = {"edge0": [1.0] * 10, "edge1": [4.0] * 20}
MEAN = (10 + 80) / 30
QUICK = 0.0
SLOW = 30.0
DEADLINE_S = 60.0


class Job:
    """One FederatedLearningJob, its Model and its Datasets."""

    def __init__(self, api: Api, name: str, directory: Path) -> None:
        self.api, self.name, self.directory = api, name, directory
        self._made: list[Object] = []

    def apply(self, *, rounds: int = 2, seconds: float = QUICK) -> None:
        self.directory.mkdir(exist_ok=True)
        model = self._object("Model", self.name, {"url": str(self.directory / "final.npz")})
        datasets = []
        for node in DATA:
            path = self.directory / f"{node}.csv"
            path.write_text("x\n" + "1\n" * len(DATA[node]))
            spec = {"url": str(path), "format": "csv", "nodeName": node}
            datasets.append(self._object("Dataset", f"{self.name}-{node}", spec))
        self._made = [model, *datasets, self.job(rounds, seconds)]
        for object_ in self._made:
            self.api.apply(object_)

    def job(self, rounds: int, seconds: float) -> Object:
        aggregation = self._template("aggregator", rounds, len(DATA), len(DATA))
        training = [
            {
                "dataset": {"name": f"{self.name}-{node}"},
                "template": self._template("trainer", seconds, *DATA[node]),
            }
            for node in DATA
        ]
        spec = {
            "aggregationWorker": {"model": {"name": self.name}, "template": aggregation},
            "trainingWorkers": training,
        }
        return self._object("FederatedLearningJob", self.name, spec)

    def edit(self, **changes: Any) -> None:
        self.api.patch(self.path, {"spec": changes})

    @property
    def path(self) -> str:
        return path_of(self.job(1, QUICK))

    def status(self) -> dict[str, Any]:
        return dict(self.api.get(self.path).get("status") or {})

    def pods(self) -> dict[str, Object]:
        path = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=edgeai.io/name={self.name}"
        return {pod["metadata"]["name"]: pod for pod in self.api.get(path)["items"]}

    def uids(self) -> dict[str, str]:
        return {name: pod["metadata"]["uid"] for name, pod in self.pods().items()}

    def delete_pod(self, name: str) -> None:
        self.api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{name}")

    def wait_for_phase(self, phase: str) -> None:
        def differs() -> str:
            status = self.status()
            return "" if status.get("phase") == phase else f"status is {status}"

        wait_until(f"phase {phase}", differs, timeout_s=DEADLINE_S)

    def wait_for_new_pod(self, name: str, old: str) -> None:
        def missing() -> str:
            pod = self.pods().get(name)
            is_new = pod is not None and pod["metadata"]["uid"] != old
            running = pod is not None and pod["status"].get("phase") == "Running"
            return "" if is_new and running else f"pod {name} is {pod and pod['status']}"

        wait_until(f"another pod {name}", missing, timeout_s=DEADLINE_S)

    def wait_until_gone(self) -> None:
        service = f"/api/v1/namespaces/{NAMESPACE}/services/{self.name}-aggregation"

        def left() -> str:
            return ", ".join(self.pods()) + ("its Service" if self.api.find(service) else "")

        wait_until("end of all pods", left, timeout_s=DEADLINE_S)

    def result(self) -> list[float]:
        with np.load(self.directory / "final.npz") as arrays:
            return [float(value) for value in arrays["mean"]]

    def delete(self) -> None:
        for object_ in reversed(self._made):
            self.api.delete(path_of(object_))
        self.wait_until_gone()

    def _object(self, kind: str, name: str, spec: Any) -> Object:
        metadata = {"name": name, "namespace": NAMESPACE}
        return {
            "apiVersion": "edgeai.io/v1alpha1",
            "kind": kind,
            "metadata": metadata,
            "spec": spec,
        }

    def _template(self, *arguments: object) -> Object:
        container = {
            "name": "worker",
            "image": "edgeai/test",
            "command": [sys.executable, "-m", "tests.workersdk.federated.worker"],
            "args": [str(argument) for argument in arguments],
            "env": [{"name": "PYTHONPATH", "value": str(CHECKOUT)}],
        }
        return {"spec": {"containers": [container], "terminationGracePeriodSeconds": 1}}


@contextmanager
def stopped_manager(running: Environment) -> Iterator[None]:
    """No GlobalManager for as long as this lasts."""
    deployment = "/apis/apps/v1/namespaces/edgeai-system/deployments/globalmanager"

    def still_there() -> str:
        return str(processes.pids_of(running, "globalmanager") or "")

    running.api.patch(deployment, {"spec": {"replicas": 0}})
    wait_until("end of the GlobalManager", still_there, timeout_s=DEADLINE_S)
    try:
        yield
    finally:
        running.api.patch(deployment, {"spec": {"replicas": 1}})


@pytest.fixture
def job(running: Environment, tmp_path: Path) -> Iterator[Job]:
    made = Job(running.api, "mean", tmp_path / "mean")
    try:
        yield made
    finally:
        made.delete()


@pytest.fixture
def neighbour(running: Environment, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Pods and uids of another job, which must not be touched."""
    made = Job(running.api, "neighbour", tmp_path / "neighbour")
    made.apply(seconds=SLOW)
    try:
        made.wait_for_phase("Training")
        before = made.uids()
        yield before
        assert made.uids() == before
    finally:
        made.delete()


def test_a_job_trains_to_its_end(job: Job) -> None:
    job.apply()
    job.wait_for_phase("Succeeded")
    assert job.result() == pytest.approx([MEAN] * 3)
    status = job.status()
    assert (status["round"], status["rounds"], status["succeeded"]) == (2, 2, 3)
    assert {entry["status"] for entry in status["workers"].values()} == {"completed"}


@pytest.mark.parametrize("role", ["aggregation", "train-0"])
def test_a_deleted_pod_comes_back_and_the_neighbour_is_left_alone(
    job: Job, neighbour: dict[str, str], role: str
) -> None:
    job.apply(seconds=2.0)
    job.wait_for_phase("Training")
    for _ in range(2):
        before = job.uids()[f"mean-{role}"]
        job.delete_pod(f"mean-{role}")
        job.wait_for_new_pod(f"mean-{role}", before)
    job.wait_for_phase("Succeeded")
    assert job.result() == pytest.approx([MEAN] * 3)


def test_a_collected_pod_of_a_finished_worker_is_not_run_again(job: Job) -> None:
    job.apply()
    job.wait_for_phase("Succeeded")
    for name in job.pods():
        job.delete_pod(name)
    wait_until("the pods' end", lambda: ", ".join(job.pods()), timeout_s=DEADLINE_S)
    seen = job.status()
    assert (seen["phase"], seen["succeeded"], seen["active"]) == ("Succeeded", 3, 0)
    assert job.pods() == {}


def slower(job: Job, seconds: float) -> list[Object]:
    """The job's training workers, the first of which takes other arguments."""
    workers: list[Object] = job.job(2, SLOW)["spec"]["trainingWorkers"]
    workers[0]["template"]["spec"]["containers"][0]["args"][1] = str(seconds)
    return workers


def test_an_edit_replaces_the_worker_that_it_concerns(job: Job, neighbour: dict[str, str]) -> None:
    job.apply(seconds=SLOW)
    job.wait_for_phase("Training")
    before = job.uids()
    job.edit(trainingWorkers=slower(job, QUICK))
    job.wait_for_new_pod("mean-train-0", before["mean-train-0"])
    after = job.uids()
    assert {name for name in after if after[name] != before[name]} == {"mean-train-0"}
    assert job.status()["observedGeneration"] == 2


def test_an_edit_while_the_manager_is_down_is_carried_out(
    running: Environment, job: Job, neighbour: dict[str, str]
) -> None:
    job.apply(seconds=SLOW)
    job.wait_for_phase("Training")
    before = job.uids()
    with stopped_manager(running):
        job.edit(trainingWorkers=slower(job, QUICK))
        job.delete_pod("mean-aggregation")
        wait_until(
            "the pod's end",
            lambda: "it is there" if "mean-aggregation" in job.pods() else "",
            timeout_s=DEADLINE_S,
        )
    job.wait_for_new_pod("mean-train-0", before["mean-train-0"])
    job.wait_for_new_pod("mean-aggregation", before["mean-aggregation"])
    assert job.uids()["mean-train-1"] == before["mean-train-1"]


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
def test_deletion_takes_everything_along_and_nothing_comes_back(
    job: Job, neighbour: dict[str, str], policy: str
) -> None:
    job.apply(seconds=SLOW)
    job.wait_for_phase("Training")
    job.api.delete(job.path, propagation=policy)
    job.wait_until_gone()
    assert job.api.find(job.path) is None


def test_orphans_stay(job: Job) -> None:
    job.apply(seconds=SLOW)
    job.wait_for_phase("Training")
    before = job.uids()
    job.api.delete(job.path, propagation="Orphan")
    wait_until(
        "the job's end",
        lambda: "it is there" if job.api.find(job.path) else "",
        timeout_s=DEADLINE_S,
    )
    assert job.uids() == before
    for name in before:
        job.delete_pod(name)
    job.api.delete(f"/api/v1/namespaces/{NAMESPACE}/services/mean-aggregation")


def test_a_deletion_while_the_manager_is_down_leaves_nothing(
    running: Environment, job: Job
) -> None:
    job.apply(seconds=SLOW)
    job.wait_for_phase("Training")
    with stopped_manager(running):
        job.api.delete(job.path)
        job.wait_until_gone()
    assert job.pods() == {}


def test_an_invalid_edit_is_told_and_leaves_the_workers_alone(job: Job) -> None:
    job.apply(seconds=SLOW)
    job.wait_for_phase("Training")
    before = job.uids()
    worker = job.job(2, SLOW)["spec"]["trainingWorkers"][0] | {"nodeName": "edge1"}
    job.edit(trainingWorkers=[worker, worker])
    job.wait_for_phase("Invalid")
    (accepted,) = [c for c in job.status()["conditions"] if c["type"] == "Accepted"]
    assert "spec.trainingWorkers[1].nodeName" in accepted["message"]
    assert job.uids() == before
