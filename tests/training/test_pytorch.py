"""The example of distributed training, with real PyTorch, as an ordinary and as an elastic job."""

import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from edgeai.cli.environment import Environment
from edgeai.client import Client, train
from edgeai.demo.distributed_training.manifests import ELASTIC_JOB, JOB
from tests.support.waiting import eventually
from tests.system.manager import kill_manager
from tests.training.jobs import NAMESPACE, PATIENCE_S, pods, told, wait_for_end

POLL_S: Final = 0.5
ENDS: Final = ("Succeeded", "Failed")
WORKER: Final = "digits-elastic-worker-2"


@pytest.fixture(scope="module")
def python(pytorch: Path) -> Path:
    return pytorch


def test_a_master_and_two_workers_train_one_network(running: Environment, submit: Any) -> None:
    created = submit(JOB)
    ended = wait_for_end(running, created)
    events = told(running, "digits-master-0")
    assert ended["status"]["conditions"][-1]["type"] == "Succeeded"
    assert ended["status"]["replicaStatuses"]["Master"]["succeeded"] == 1
    assert [event["world_size"] for event in events] == [3] * len(events)
    assert events[-1]["event"] == "result"
    assert events[-1]["accuracy"] >= 0.95


def test_an_elastic_job_loses_a_worker_goes_on_and_gets_it_back(
    running: Environment, submit: Any, files: Path
) -> None:
    created = submit(ELASTIC_JOB, epochs=300, pause_seconds=1.0)

    sizes: dict[int, int] = {}  # step -> world size; the log of a killed container is gone

    def has_size(wanted: int) -> bool:
        for name in pods(running):
            told_now = told(running, name)
            sizes.update({e["step"]: e["world_size"] for e in told_now if e["event"] == "progress"})
        assert sizes, "no progress"
        assert sizes[max(sizes)] == wanted, sizes
        return True

    def has_size_without_the_worker() -> bool:
        """Kill the worker whenever it runs, like a program that crashes again and again."""
        state = pods(running)[WORKER]["status"]["containerStatuses"][0]
        if "running" in state["state"]:
            with suppress(ProcessLookupError):
                os.kill(int(state["containerID"].removeprefix("process://")), signal.SIGKILL)
        return has_size(2)

    eventually("three workers", lambda: has_size(3), timeout_s=PATIENCE_S, poll_s=POLL_S)
    eventually("two workers", has_size_without_the_worker, timeout_s=PATIENCE_S, poll_s=POLL_S)
    eventually("three workers again", lambda: has_size(3), timeout_s=PATIENCE_S, poll_s=POLL_S)
    (files / "hurry").touch()
    ended = wait_for_end(running, created)
    assert ended["status"]["conditions"][-1]["type"] == "Succeeded"
    (accuracy,) = {
        event["accuracy"]
        for name in pods(running)
        for event in told(running, name)
        if event["event"] == "result"
    }
    assert accuracy >= 0.95


def show_rank(mark: str) -> None:
    import torch.distributed

    torch.distributed.init_process_group("gloo")
    print(mark, torch.distributed.get_rank(), torch.distributed.get_world_size(), flush=True)


def test_each_elastic_worker_of_a_function_is_one_process(
    running: Environment, python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEAI_PYTHON", str(python))
    with Client(running.kubeconfig) as client:
        options: dict[str, Any] = {"workers": 3, "elastic": (2, 3)}
        job = train(show_rank, args={"mark": "rank"}, client=client, **options)
        assert job.wait(timeout_s=PATIENCE_S).result == "succeeded"
        lines = sorted(line.text for line in job.logs() if line.text.startswith("rank"))
        job.delete()
    assert lines == ["rank 0 3", "rank 1 3", "rank 2 3"]


def test_training_goes_on_without_its_manager_and_after_the_loss_of_a_worker(
    running: Environment, submit: Any
) -> None:
    seed = random.randrange(10**6)
    print("seed", seed)  # shown when the test fails
    chance = random.Random(seed)
    created = submit(JOB, epochs=40, pause_seconds=0.25)
    time.sleep(chance.uniform(0, 10))
    kill_manager(running)

    def is_training() -> bool:
        assert any("loss" in event for event in told(running, "digits-master-0"))
        return True

    eventually("training", is_training, timeout_s=PATIENCE_S, poll_s=POLL_S)
    # As the control plane deletes the pods of a lost node.
    lost = f"/api/v1/namespaces/{NAMESPACE}/pods/digits-worker-0?gracePeriodSeconds=0"
    running.api.delete(lost)
    kill_manager(running)
    ended = wait_for_end(running, created)
    result = told(running, "digits-master-0")[-1]
    assert [one["type"] for one in ended["status"]["conditions"] if one["type"] in ENDS] == [
        "Succeeded"
    ]
    assert ended["status"]["jobRestarts"] == 1
    assert (result["event"], result["world_size"]) == ("result", 3)
    assert result["accuracy"] >= 0.95
