"""FederatedLearningJobs on the local cluster: real pods, killed, deleted and edited on the way.

The workers learn a mean: rounds are exact, so a lost or doubled update would show. Each job
stands beside another one in its namespace, whose pods must keep their uid.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeai.cli.api import Object, path_of
from edgeai.cli.environment import Environment
from tests.support.jobs import Job
from tests.system.manager import stopped_manager

NAMESPACE = "default"
CHECKOUT = Path(__file__).parents[2]
DATA = {"edge0": [1.0] * 10, "edge1": [4.0] * 20}
MEAN = (10 + 80) / 30
ROUNDS = 2
QUICK = 0.0
SLOW = 30.0
DEADLINE_S = 60.0
WORKERS = ("aggregation", "train-0", "train-1")


class Federation(Job):
    """One FederatedLearningJob, its Model and its Datasets."""

    def __init__(
        self,
        running: Environment,
        name: str,
        directory: Path,
        *,
        seconds: float,
    ) -> None:
        directory.mkdir()
        self._running, self._directory = running, directory
        self._refers_to = [
            _object("Model", name, {"url": str(directory / "final.npz")}),
            *(self._dataset(f"{name}-{node}", node) for node in DATA),
        ]
        spec = self._spec(name, seconds)
        manifest = _object("FederatedLearningJob", name, spec)
        super().__init__(running.api, running.api.apply, manifest, timeout_s=DEADLINE_S)

    def apply(self, phase: str = "Training") -> None:
        """With what it refers to, until it is in this phase."""
        for each in self._refers_to:
            self._running.api.apply(each)
        self.create()
        self.wait_for("phase", phase)

    def remove(self) -> None:
        for path in (self.path, *map(path_of, self._refers_to)):
            self.api.delete(path)
        self.wait_until_gone()

    def training(self, **changed: Any) -> list[Object]:
        """Its training workers, the first of which has other fields."""
        first, *others = self.manifest["spec"]["trainingWorkers"]
        return [first | changed, *others]

    def pod(self, role: str) -> str:
        """Key in what was made for it."""
        return f"Pod/{self.name}-{role}"

    def result(self) -> list[float]:
        with np.load(self._directory / "final.npz") as arrays:
            return [float(value) for value in arrays["mean"]]

    def _dataset(self, name: str, node: str) -> Object:
        path = self._directory / f"{node}.csv"
        path.write_text("x\n" + "1\n" * len(DATA[node]))
        return _object("Dataset", name, {"url": str(path), "format": "csv", "nodeName": node})

    def _spec(self, name: str, seconds: float) -> Object:
        aggregation = _template("aggregator", ROUNDS, len(DATA), len(DATA))
        training = [
            {
                "dataset": {"name": f"{name}-{node}"},
                "template": _template("trainer", seconds, *DATA[node]),
            }
            for node in DATA
        ]
        return {
            "aggregationWorker": {"model": {"name": name}, "template": aggregation},
            "trainingWorkers": training,
        }


def _object(kind: str, name: str, spec: Object) -> Object:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "edgeai.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


def _template(*arguments: object) -> Object:
    container = {
        "name": "worker",
        "image": "edgeai/test",
        "command": [sys.executable, "-m", "tests.edgeai.worker.federated.worker"],
        "args": [str(argument) for argument in arguments],
        "env": [{"name": "PYTHONPATH", "value": str(CHECKOUT)}],
    }
    return {"spec": {"containers": [container], "terminationGracePeriodSeconds": 1}}


@pytest.fixture
def make(running: Environment, tmp_path: Path) -> Iterator[Callable[..., Federation]]:
    """Makes a job `mean`, by the seconds that training takes; at the end there is none left."""
    made: list[Federation] = []

    def one(seconds: float = QUICK) -> Federation:
        made.append(Federation(running, "mean", tmp_path / "mean", seconds=seconds))
        return made[-1]

    yield one
    for each in made:
        each.remove()


@pytest.fixture
def job(make: Callable[..., Federation]) -> Federation:
    """One that is training and is not about to end."""
    job = make(seconds=SLOW)
    job.apply()
    return job


@pytest.fixture
def neighbour(running: Environment, tmp_path: Path) -> Iterator[None]:
    """Another job beside it, of which nothing must be touched."""
    made = Federation(running, "neighbour", tmp_path / "neighbour", seconds=SLOW)
    try:
        made.apply()
        before = made.marks()
        yield
        assert made.marks() == before
    finally:
        made.remove()


def test_a_job_trains_to_its_end(make: Callable[..., Federation]) -> None:
    job = make()
    job.apply("Succeeded")
    assert job.result() == pytest.approx([MEAN] * 3)
    status = job.status()
    assert (status["rounds"], status["succeeded"]) == (ROUNDS, 3)

    def check() -> bool:
        """What workers say last comes on another way than the end of their pods."""
        status = job.status()
        told = [entry["status"] for entry in status["workers"].values()]  # of trainers
        assert (status["round"], told) == (ROUNDS, ["completed"] * len(DATA)), f"{status}"
        return True

    job.eventually("the last reports", check)


@pytest.mark.parametrize("role", ["aggregation", "train-0"])
def test_a_deleted_pod_comes_back_and_the_neighbour_is_left_alone(
    make: Callable[..., Federation], neighbour: None, role: str
) -> None:
    job = make(seconds=2.0)
    job.apply()
    for _ in range(2):
        before = job.uids()
        job.delete_made(job.pod(role))
        job.wait_for_new(before, job.pod(role))
    job.wait_for("phase", "Succeeded")
    assert job.result() == pytest.approx([MEAN] * 3)


def test_a_collected_pod_of_a_finished_worker_is_not_run_again(
    make: Callable[..., Federation],
) -> None:
    job = make()
    job.apply("Succeeded")
    for role in WORKERS:
        job.delete_made(job.pod(role))
    job.wait_for("active", 0)
    job.eventually("the pods' end", lambda: not pods_of(job))
    seen = job.status()
    assert (seen["phase"], seen["succeeded"], seen["active"]) == ("Succeeded", 3, 0)
    assert pods_of(job) == []


def pods_of(job: Job) -> list[str]:
    return [key for key in job.made() if key.startswith("Pod/")]


def test_an_edit_replaces_the_worker_that_it_concerns(job: Federation, neighbour: None) -> None:
    before = job.uids()
    job.edit(trainingWorkers=job.training(template=_template("trainer", QUICK, *DATA["edge0"])))
    job.wait_for_new(before, job.pod("train-0"))
    job.wait_for("observedGeneration", 2)


def test_what_happens_while_the_manager_is_down_is_made_good(
    running: Environment, job: Federation, neighbour: None
) -> None:
    before = job.uids()
    with stopped_manager(running):
        job.edit(trainingWorkers=job.training(template=_template("trainer", QUICK, *DATA["edge0"])))
        job.delete_made(job.pod("aggregation"))
        gone = job.pod("aggregation")
        job.eventually("the pod's end", lambda: gone not in job.made())
    job.wait_for_new(before, job.pod("train-0"), job.pod("aggregation"))


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
def test_deletion_takes_everything_along_and_nothing_comes_back(
    job: Federation, neighbour: None, policy: str
) -> None:
    job.delete(policy)
    job.wait_until_gone()


def test_created_and_deleted_twice_without_a_pause_it_leaves_nothing(
    job: Federation, neighbour: None
) -> None:
    job.delete()
    first = job.create()
    job.delete()
    second = job.create()
    job.wait_for_owner(second)
    job.delete()
    assert first != second
    job.wait_until_gone()


def test_a_second_life_has_nothing_of_the_first(
    make: Callable[..., Federation], neighbour: None
) -> None:
    job = make()
    job.apply("Succeeded")
    before = job.uids()
    job.delete()
    uid = job.create()
    job.wait_for_new(before, *before)
    job.wait_for_owner(uid)
    job.wait_for("phase", "Succeeded")
    assert {entry["attempt"] for entry in job.status()["workers"].values()} == {1}


def test_orphans_stay(job: Federation) -> None:
    before = job.uids()
    job.delete("Orphan")
    job.eventually("its end", lambda: job.api.find(job.path) is None)
    assert job.uids() == before
    for key in before:
        job.delete_made(key)


def test_a_deletion_while_the_manager_is_down_leaves_nothing(
    running: Environment, job: Federation
) -> None:
    with stopped_manager(running):
        job.delete()
        job.wait_until_gone()
    uid = job.create()  # once this trains the manager has seen everything
    job.wait_for("phase", "Training")
    assert job.owners() == {uid}


def test_an_invalid_edit_is_told_and_leaves_the_workers_alone(job: Federation) -> None:
    before = job.marks()
    first, second = job.training()
    job.edit(trainingWorkers=[first, {**second, "nodeName": "no node"}])
    job.wait_for("phase", "Invalid")
    assert "spec.trainingWorkers[1].nodeName" in job.condition("Accepted")["message"]
    assert job.marks() == before
