"""What holds at the end of the FederatedLearningJob of docs/federated-learning.md."""

from typing import Any, Final

from tests.support.cluster import CLOUD, EDGES, Cluster

ROOT: Final = "/apis/edgeai.io/v1alpha1/namespaces/default"


def check_end(job: dict[str, Any]) -> None:
    status = job["status"]
    assert (status["phase"], status["succeeded"]) == ("Succeeded", 3)
    assert (status["round"], status["rounds"]) == (10, 10)
    assert {entry["node"] for entry in status["workers"].values()} == set(EDGES)


def check_samples(cluster: Cluster, job: dict[str, Any]) -> None:
    """Each trainer counted what its node has."""
    datasets = [
        cluster.client.get(f"{ROOT}/datasets/{worker['dataset']['name']}")
        for worker in job["spec"]["trainingWorkers"]
    ]
    counted = {each["spec"]["nodeName"]: each["status"]["numberOfSamples"] for each in datasets}
    workers = job["status"]["workers"].values()
    trained = {entry["node"]: entry["taskInfo"]["sampleCount"] for entry in workers}
    assert trained == counted
    assert len(set(trained.values())) == len(EDGES)


def check_result(cluster: Cluster) -> None:
    """It is on every node."""
    files = {
        cluster.nodes[node].machine.run("sha256sum", "/data/model/digits.npz")
        for node in (CLOUD, *EDGES)
    }
    assert len(files) == 1
