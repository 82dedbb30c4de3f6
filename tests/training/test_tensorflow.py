"""The example of distributed training, with real TensorFlow, in two ways."""

from pathlib import Path
from typing import Any

import pytest

from edgeai.cli.environment import Environment
from edgeai.demo.distributed_training.manifests import MIRRORED_JOB, PARAMETER_SERVER_JOB
from tests.support.waiting import eventually
from tests.training.jobs import pods, told, wait_for_end


@pytest.fixture(scope="module")
def python(tensorflow: Path) -> Path:
    return tensorflow


def test_a_chief_and_a_worker_train_one_network(running: Environment, submit: Any) -> None:
    ended = wait_for_end(running, submit(MIRRORED_JOB))
    assert ended["status"]["conditions"][-1]["type"] == "Succeeded"
    assert ended["status"]["replicaStatuses"]["Chief"]["succeeded"] == 1
    events = told(running, "digits-mirrored-chief-0")
    assert {event["replicas"] for event in events} == {2}
    assert events[-1]["event"] == "result"
    assert events[-1]["accuracy"] >= 0.95


def test_a_chief_trains_with_workers_and_a_parameter_server_that_never_end(
    running: Environment, submit: Any
) -> None:
    ended = wait_for_end(running, submit(PARAMETER_SERVER_JOB))
    assert ended["status"]["conditions"][-1]["type"] == "Succeeded"
    name = "digits-parameter-server"
    events = told(running, f"{name}-chief-0")
    assert events[0] == {"event": "start", "workers": 2}
    assert events[-1]["event"] == "result"
    assert events[-1]["accuracy"] >= 0.95

    def are_ended() -> bool:
        left = sorted(pods(running))
        assert left == [f"{name}-chief-0"], f"{left}"
        return True

    eventually("the end of the others by cleanPodPolicy", are_ended)
