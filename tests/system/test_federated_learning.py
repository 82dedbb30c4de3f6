"""FederatedLearningJobs on the local cluster: real pods, killed, deleted and edited on the way.

The workers learn a mean: rounds are exact, so a lost or doubled update would show. Each job
stands beside another one in its namespace, whose pods must keep their uid.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeai.api import Api, Object, path_of, wait_until
from edgeai.environment import Environment

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
