"""The examples of distributed training with real PyTorch and TensorFlow in containers.

The runtimes are directories of this machine that the containers mount. The data are on every node.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from edgeai.cli.api import Object, path_of
from edgeai.demo.distributed_training import data
from edgeai.demo.distributed_training.manifests import (
    JOB,
    MIRRORED_JOB,
    PARAMETER_SERVER_JOB,
    Placement,
)
from edgeai.demo.manifests import resource
from tests.e2e.containers import IMAGE, mount_python, put_on_nodes
from tests.support.cluster import Cluster
from tests.support.runtimes import INSTALL_S, python_with
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(INSTALL_S)
FILES: Final = "/data/distributed-training"
PATIENCE_S: Final = 600.0


class Example(NamedTuple):
    """`leader`: the pod that tells the result and stays."""

    runtime: str
    template: Path
    leader: str


EXAMPLES: Final = {
    "PyTorch, master and workers": Example("pytorch", JOB, "digits-master-0"),
    "TensorFlow, mirrored": Example("tensorflow", MIRRORED_JOB, "digits-mirrored-chief-0"),
    "TensorFlow, parameter server": Example(
        "tensorflow", PARAMETER_SERVER_JOB, "digits-parameter-server-chief-0"
    ),
}


@pytest.fixture(scope="module")
def files(installed: Cluster, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The images on every node, where all may write."""
    directory = tmp_path_factory.mktemp("files")
    data.write(directory)
    put_on_nodes(installed, directory, FILES)


def with_python(object_: Object, python: Path) -> Object:
    """The job with the Python of a runtime in each container."""
    object_ = json.loads(json.dumps(object_))  # the replicas of the template are one dict
    (specs,) = (value for key, value in object_["spec"].items() if key.endswith("ReplicaSpecs"))
    for replicas in specs.values():
        mount_python(replicas["template"], python)
    return object_


@pytest.fixture(params=EXAMPLES)
def example(request: pytest.FixtureRequest) -> Example:
    return EXAMPLES[request.param]


@pytest.fixture
def ended(example: Example, files: None, installed: Cluster) -> Iterator[Object]:
    python = python_with(example.runtime)
    placement = Placement(
        files=Path(FILES),
        python=python,
        checkout=Path("/opt/edgeai"),
        image=IMAGE,
        # A parameter server gets steps in any order: 20 epochs once reached 0.9489.
        epochs=40,
    )
    made = installed.client.create(with_python(resource(example.template, placement), python))

    def check() -> Object:
        held = installed.client.get(path_of(made))
        listed = held.get("status", {}).get("conditions", [])
        told = [f"{one['type']}: {one['message']}" for one in listed]
        assert listed, "no conditions"
        assert listed[-1]["type"] in ("Succeeded", "Failed"), told
        return held

    yield eventually("the end of the job", check, timeout_s=PATIENCE_S)
    installed.client.delete(path_of(made))


def test_an_example_trains_in_containers(
    example: Example, ended: Object, installed: Cluster
) -> None:
    conditions = ended["status"]["conditions"]
    assert conditions[-1]["type"] == "Succeeded", conditions
    said = installed.control_plane.kubectl("logs", example.leader).stdout
    results = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert results[-1]["event"] == "result"
    assert results[-1]["accuracy"] >= 0.95

    def others_have_ended() -> bool:
        name = ended["metadata"]["name"]
        selector = f"labelSelector=training.kubeflow.org/job-name={name}"
        pods = installed.client.list(f"/api/v1/namespaces/default/pods?{selector}")
        running = [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] != "Succeeded"]
        assert not running, f"{running}"
        return True

    eventually("the end of the other replicas", others_have_ended, timeout_s=PATIENCE_S)
