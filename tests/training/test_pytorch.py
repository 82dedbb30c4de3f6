"""The example of distributed training, with real PyTorch, as an ordinary and as an elastic job."""

from pathlib import Path
from typing import Any

import pytest

from edgeai.environment import Environment
from examples.distributed_training.manifests import JOB
from tests.training.jobs import told, wait_for_end


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
