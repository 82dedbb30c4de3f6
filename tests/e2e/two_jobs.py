"""Two jobs whose workers on one edge node live through faults, and what the node has of them.

`sees-edge` counts images of a JointInferenceService and asks the cloud for hard ones;
`learns-train-0` is a trainer of a FederatedLearningJob.
"""

import contextlib
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from common import wire
from common.wire import ReportBody
from edgeai.cli.api import Object, path_of
from edgeai.demo.federated_learning import data
from edgeai.demo.federated_learning import manifests as learning
from edgeai.demo.joint_inference import manifests as inference
from edgeai.demo.joint_inference import train
from edgeai.demo.manifests import IN_IMAGE
from tests.e2e.containers import IMAGE, put_on_nodes
from tests.e2e.service import Service, slower
from tests.e2e.training import ROOT
from tests.support.cluster import CLOUD, EDGES, Cluster
from tests.support.inference import COUNTS, counts_of
from tests.support.waiting import eventually

EDGE, _OTHER_EDGE = EDGES
FILES: Final = "/data/faults"
SEES: Final = "sees-edge"
TRAINER: Final = "learns-train-0"
PATIENCE_S: Final = 300.0


class Row(NamedTuple):
    """What the ledger of the node has of a worker. `process`: its instance"""

    process: str
    status: str
    info: dict[str, Any]


# ---- the jobs ------------------------------------------------------------------------------------


def put_files(cluster: Cluster, directory: Path) -> None:
    """Models and images on every node, where all may write. Args: directory: empty"""
    train.train(directory)
    data.write(directory)
    put_on_nodes(cluster, directory, FILES)


@contextlib.contextmanager
def running_service(cluster: Cluster, *, rate_per_s: float) -> Iterator[Service]:
    """Args: rate_per_s: of images"""
    python, checkout = IN_IMAGE
    placement = inference.Placement(
        files=Path(FILES),
        python=python,
        checkout=checkout,
        image=IMAGE,
        edge_node=EDGE,
        cloud_node=CLOUD,
    )
    *others, example = inference.objects(placement)
    replace(cluster, others)
    made = cluster.client.create(slower(example, name="sees", rate_per_s=rate_per_s))
    try:
        yield Service(cluster, made)
    finally:
        cluster.client.delete(path_of(made))


@contextlib.contextmanager
def running_job(cluster: Cluster, *, rounds: int) -> Iterator[Object]:
    """From its third round. The aggregator waits for a trainer longer than any fault lasts.

    Args: rounds: each takes a second at least
    """
    python, checkout = IN_IMAGE
    placement = learning.Placement(
        files=Path(FILES),
        python=python,
        checkout=checkout,
        image=IMAGE,
        edge_0=EDGE,
        edge_1=_OTHER_EDGE,
        edge_2=_OTHER_EDGE,
        rounds=rounds,
        gone_after_seconds=600.0,
        training_seconds=1.0,
    )
    *others, example = learning.objects(placement)
    replace(cluster, others)
    example["metadata"]["name"] = "learns"
    made = cluster.client.create(example)
    try:
        eventually("two rounds", lambda: status_of(cluster, made).get("round", 0) > 2)
        yield made
    finally:
        cluster.client.delete(path_of(made))


def replace(cluster: Cluster, objects: list[Object]) -> None:
    for object_ in objects:
        cluster.client.delete(path_of(object_))
        cluster.client.create(object_)


def status_of(cluster: Cluster, job: Object) -> Object:
    status: Object = cluster.client.get(path_of(job)).get("status") or {}
    return status


def trainer_pod(cluster: Cluster) -> Object:
    selector = f"labelSelector=edgeai.io/worker={TRAINER}"
    (pod,) = cluster.client.list(f"/api/v1/namespaces/default/pods?{selector}")
    return pod


# ---- what the node has of them -------------------------------------------------------------------


class Ledger:
    """That of the LocalController of a node, also while nothing runs there.

    Args:
    pid: of a process of the machine
    directory: for copies, so that nothing changes on the node
    """

    def __init__(self, pid: int, directory: Path) -> None:
        self._source = Path(f"/proc/{pid}/root/var/lib/edgeai/localcontroller")
        self._directory = directory

    def rows(self) -> dict[str, Row]:
        """By worker. Raises: sqlite3.Error for a copy in the middle of a write"""
        for file in self._source.glob("ledger.db*"):
            shutil.copyfile(file, self._directory / file.name)
        with contextlib.closing(sqlite3.connect(self._directory / "ledger.db")) as connection:
            rows = connection.execute("SELECT worker, instance, body FROM workers").fetchall()
        bodies = {
            worker: (process, wire.unpack(body, ReportBody)) for worker, process, body in rows
        }
        return {
            worker: Row(process or "", body.status, {**body.task_info})
            for worker, (process, body) in bodies.items()
        }

    def wait_for(self, what: str, check: Callable[[dict[str, Row]], bool]) -> dict[str, Row]:
        def rows() -> dict[str, Row]:
            try:
                rows = self.rows()
            except sqlite3.Error as error:
                raise AssertionError(str(error)) from error
            assert check(rows), f"the ledger has {rows}"
            return rows

        return eventually(what, rows, timeout_s=PATIENCE_S, poll_s=0.5)


# ---- their ends ----------------------------------------------------------------------------------


def check_counts(service: Service, before: Row) -> None:
    """The CR sums what the last process of the edge worker counted, and what those before it did.

    Args: before: of those, when the last one of them had ended
    """
    counts = counts_of(service.result(timeout_s=PATIENCE_S))
    assert counts["seen"] > counts["fallbacks"] > 0
    service.wait_for_exact_counts(
        {name: before.info.get(name, 0) + counts[name] for name in COUNTS}
    )
    service.wait_for_condition("EdgeConnected", "True")


def check_end(cluster: Cluster, job: Object, *, rounds: int) -> None:
    """The training goes on to its end, and the trainer of the node counts its samples."""

    def ended() -> Object:
        status = status_of(cluster, job)
        assert status.get("phase") == "Succeeded", f"status is {status}"
        return status

    status = eventually("the end of the training", ended, timeout_s=PATIENCE_S)
    assert (status["round"], status["succeeded"]) == (rounds, 4)
    dataset = job["spec"]["trainingWorkers"][0]["dataset"]["name"]
    samples = cluster.client.get(f"{ROOT}/datasets/{dataset}")["status"]["numberOfSamples"]
    assert status["workers"][TRAINER]["taskInfo"]["sampleCount"] == samples
