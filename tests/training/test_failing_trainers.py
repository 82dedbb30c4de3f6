"""Trainers that fail or are killed, and are started again by the kubelet in the same pod.

The job goes on as if nothing had been, and its status says of each worker what its last process
said.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from edgeai.cli.environment import Environment
from tests.system import processes
from tests.system.test_federated_learning import DATA, MEAN, ROUNDS, Federation

TRAINERS = ("mean-train-0", "mean-train-1")
LONG_ENOUGH_S = 4.0  # for a trainer to be killed at work


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "mean"


@pytest.fixture
def job(running: Environment, directory: Path) -> Iterator[Federation]:
    """Not applied yet."""
    made = Federation(running, "mean", directory, seconds=LONG_ENOUGH_S)
    try:
        yield made
    finally:
        made.remove()


def wait_for_end(job: Federation, attempts: dict[str, int]) -> None:
    """The job succeeds, and each worker's last report is that of its last process."""
    job.wait_for("phase", "Succeeded")
    assert job.result() == pytest.approx([MEAN] * 3)

    def check() -> bool:
        status = job.status()
        told = {
            name: (entry["status"], entry["attempt"], entry["taskInfo"].get("currentRound"))
            for name, entry in status["workers"].items()
        }
        wanted = {name: ("completed", count, ROUNDS) for name, count in attempts.items()}
        assert told == wanted, f"workers are {told}"
        assert (status["round"], status["rounds"]) == (ROUNDS, ROUNDS), f"{status}"
        return True

    job.eventually("the last reports", check)


def test_trainers_that_fail_once_end_well(job: Federation) -> None:
    for worker in job.manifest["spec"]["trainingWorkers"]:
        (container,) = worker["template"]["spec"]["containers"]
        container["args"][:2] = ["frail-trainer", "0"]
    job.apply("Succeeded")
    wait_for_end(job, dict.fromkeys(TRAINERS, 2))


def test_a_killed_trainer_ends_well(running: Environment, job: Federation) -> None:
    job.apply()
    job.eventually("a trainer's report", lambda: rounds_of(job, TRAINERS[0]))
    before = job.uids()
    processes.kill(running, "trainer", *map(str, DATA["edge0"]))
    wait_for_end(job, {TRAINERS[0]: 2, TRAINERS[1]: 1})
    assert job.uids() == before


def rounds_of(job: Federation, trainer: str) -> int:
    """How many the job has, as this trainer says."""
    told = (job.status().get("workers") or {}).get(trainer) or {}
    return int((told.get("taskInfo") or {}).get("rounds", 0))


def test_a_trainer_that_is_left_waiting_is_ended(job: Federation) -> None:
    """It never takes part; the aggregator's end is put back, which takes minutes otherwise."""
    (aggregator,) = job.manifest["spec"]["aggregationWorker"]["template"]["spec"]["containers"]
    aggregator["args"] = ["aggregator", "1", "1", "1"]
    _, idle = job.manifest["spec"]["trainingWorkers"]
    (container,) = idle["template"]["spec"]["containers"]
    container |= {"command": ["sleep"], "args": ["3600"]}
    job.apply()
    job.wait_for("succeeded", 2)
    job.eventually("its time", lambda: job.status().get("resultTime"))
    job.api.patch(f"{job.path}/status", {"status": {"resultTime": "2026-01-02T03:04:05Z"}})
    job.wait_for("phase", "Succeeded")
    assert job.condition("Complete")["message"].endswith("had the result: mean-train-1")
