"""Datasets and federated learning with real containers, after docs/install.md.

It comes after joint inference, whose figures depend on how quick the nodes are.
"""

from typing import Any, Final

import pytest

from edgeai.cli.api import path_of
from tests.e2e.document import CHECKOUT, TRAINING, run_page
from tests.e2e.training import ROOT, check_end, check_result, check_samples
from tests.support.cluster import Cluster
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(330, func_only=True)
DATASETS: Final = CHECKOUT / "docs" / "datasets.md"
GONE_S: Final = 90.0


@pytest.fixture(scope="module")
def faces(installed: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Path of the page's Dataset in the API."""
    run_page(DATASETS, installed, tmp_path_factory.mktemp("datasets"))
    return f"{ROOT}/datasets/faces"


def test_new_samples_on_a_node_are_counted(installed: Cluster, faces: str) -> None:
    """At once, since the spec changes too; as text, the head is a sample like any line."""
    node = installed.client.get(faces)["spec"]["nodeName"]
    installed.nodes[node].machine.run("sh", "-c", "echo d.png,2 >> /data/faces/faces.csv")
    installed.client.patch(faces, {"spec": {"format": "txt"}})

    def check() -> bool:
        status = installed.client.get(faces)["status"]
        assert status["numberOfSamples"] == 5, f"status is {status}"
        return True

    eventually("5 samples", check)


@pytest.fixture(scope="module")
def job(installed: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The page's FederatedLearningJob at its end."""
    run_page(TRAINING, installed, tmp_path_factory.mktemp("training"))
    return installed.client.get(f"{ROOT}/federatedlearningjobs/digits")


def test_a_job_trains_on_two_nodes_to_its_end(job: dict[str, Any]) -> None:
    check_end(job)


def test_each_trainer_counted_what_its_node_has(installed: Cluster, job: dict[str, Any]) -> None:
    check_samples(installed, job)


def test_the_result_is_on_every_node(installed: Cluster, job: dict[str, Any]) -> None:
    check_result(installed)


def test_the_data_is_read_only_for_the_localcontroller(installed: Cluster) -> None:
    write = ("python3", "-c", "open('/rootfs/data/written', 'w')")
    where = ("--namespace=edgeai-system", "daemonset/localcontroller")
    done = installed.control_plane.kubectl("exec", *where, "--", *write)
    assert done.returncode != 0
    assert "Read-only file system" in done.stderr


def test_of_a_deleted_job_nothing_is_left(installed: Cluster, job: dict[str, Any]) -> None:
    """It runs last."""
    installed.client.delete(path_of(job))
    selector = f"labelSelector=edgeai.io/uid={job['metadata']['uid']}"

    def check() -> bool:
        left = [
            each["metadata"]["name"]
            for collection in ("pods", "services")
            for each in installed.client.list(f"/api/v1/{collection}?{selector}")
        ]
        assert not left, f"there is still {left}"
        return True

    eventually("the end of what the job was", check, timeout_s=GONE_S)
