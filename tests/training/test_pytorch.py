"""The example of distributed training, with real PyTorch, as an ordinary and as an elastic job."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from edgeai.api import Object, path_of
from edgeai.environment import Environment
from examples.distributed_training import data
from examples.distributed_training.manifests import JOB, Placement, job
from tests.waiting import eventually

NAMESPACE: Final = "default"
PATIENCE_S: Final = 300.0


@pytest.fixture
def files(tmp_path: Path) -> Path:
    data.write(tmp_path / "files")
    return tmp_path / "files"


@pytest.fixture
def submit(running: Environment, pytorch: Path, files: Path) -> Iterator[Any]:
    """Function that creates the job of a template and returns it. The job ends with the test."""
    made: list[Object] = []

    def create(template: Path, **settings: Any) -> Object:
        placement = Placement(files=files, python=pytorch, **settings)
        made.append(running.api.apply(job(placement, template)))
        return made[-1]

    yield create
    for each in made:
        running.api.delete(path_of(each))
        eventually("the end of the pods", lambda: not pods(running))


def pods(running: Environment) -> dict[str, Object]:
    items = running.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
    return {pod["metadata"]["name"]: pod for pod in items}


def told(running: Environment, pod: str) -> list[dict[str, Any]]:
    """What the script has told in the log of a pod."""
    lines = running.api.log(NAMESPACE, pod)
    return [json.loads(line) for line in lines if line.startswith("{")]


def wait_for_end(running: Environment, object_: Object) -> Object:
    def check() -> Object | None:
        held = running.api.get(path_of(object_))
        listed = held.get("status", {}).get("conditions", [])
        last = listed[-1]["type"] if listed else ""
        texts = [f"{one['type']}: {one['message']}" for one in listed]
        assert last in ("Succeeded", "Failed"), texts
        return held

    return eventually("the end of the job", check, timeout_s=PATIENCE_S)


def test_a_master_and_two_workers_train_one_network(running: Environment, submit: Any) -> None:
    created = submit(JOB)
    ended = wait_for_end(running, created)
    events = told(running, "digits-master-0")
    assert ended["status"]["conditions"][-1]["type"] == "Succeeded"
    assert ended["status"]["replicaStatuses"]["Master"]["succeeded"] == 1
    assert [event["world_size"] for event in events] == [3] * len(events)
    assert events[-1]["event"] == "result"
    assert events[-1]["accuracy"] >= 0.95
