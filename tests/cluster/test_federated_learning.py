"""FederatedLearningJobs on a real control plane: made, healed, edited, deleted.

No pod runs here; what the kubelet of its node would say of it, the tests say.
"""

from collections.abc import Iterator
from typing import Final

import pytest

from edgeai.cli.api import Object, path_of
from tests.cluster.controlplane import ControlPlane
from tests.cluster.samples import model
from tests.globalmanager.kinds.edge.samples import federated_learning_spec
from tests.support.client import Client
from tests.support.jobs import Job
from tests.support.manager import GlobalManager
from tests.support.node import kubelet_user

# The garbage collector looks for new types twice a minute.
SETTLE_S: Final = 75.0
AGGREGATION: Final = "Pod/digits-aggregation"
TRAIN_0: Final = "Pod/digits-train-0"
TRAIN_1: Final = "Pod/digits-train-1"
PODS: Final = (AGGREGATION, TRAIN_0, TRAIN_1)


class Federation(Job):
    """One FederatedLearningJob, with pods on nodes where a kubelet serves them."""

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self._client = client
        spec = federated_learning_spec()
        spec["aggregationWorker"]["nodeName"] = "cloud0"
        manifest = {
            "apiVersion": "edgeai.io/v1alpha1",
            "kind": "FederatedLearningJob",
            "metadata": {"name": name, "namespace": namespace},
            "spec": spec,
        }
        super().__init__(client, client.create, manifest, timeout_s=SETTLE_S)

    def apply(self) -> None:
        self.create()
        self.wait_for("phase", "Training")

    def succeed(self, key: str) -> None:
        """As its kubelet would say."""
        (pod,) = self.made()[key]
        self._client.patch(f"{path_of(pod)}/status", {"status": {"phase": "Succeeded"}})


@pytest.fixture
def job(client: Client, manager: GlobalManager, namespace: str, kubelet: None) -> Federation:
    client.create(model("small", namespace))
    for number in range(2):
        client.create(dataset(f"data{number}", f"edge{number}", namespace))
    made = Federation(client, namespace, "digits")
    made.apply()
    return made


@pytest.fixture
def neighbour(client: Client, namespace: str, job: Job) -> Iterator[None]:
    """A second job beside it, of which nothing must be touched."""
    made = Federation(client, namespace, "neighbour")
    made.apply()
    before = made.marks()
    yield
    assert made.marks() == before


def dataset(name: str, node: str, namespace: str) -> Object:
    return {
        "apiVersion": "edgeai.io/v1alpha1",
        "kind": "Dataset",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"url": f"/data/{name}.csv", "format": "csv", "nodeName": node},
    }


def test_two_trainers_run_on_one_node(job: Federation, namespace: str) -> None:
    """A Dataset moves to the node of the other trainer, and so does its trainer."""
    before = job.uids()
    moved = path_of(dataset("data1", "edge0", namespace))
    job.api.patch(moved, {"spec": {"nodeName": "edge0"}})
    job.wait_for_new(before, TRAIN_1)
    job.api.patch(moved, {"spec": {"nodeName": "edge1"}})
    job.wait_for_condition("ResolvedRefs", "Resolved")


def test_a_node_reads_the_secrets_of_its_own_workers_alone(
    job: Federation, crds: ControlPlane, namespace: str
) -> None:
    """The Node authorizer lets a node read each Secret to which a pod on the node refers."""

    def is_readable(node: str, secret: str) -> bool:
        identity = (f"--as={kubelet_user(node)}", "--as-group=system:nodes")
        read = crds.kubectl(*identity, "-n", namespace, "get", "secret", secret, "-o", "name")
        assert read.returncode == 0 or "Forbidden" in read.stderr, read.stderr
        return read.returncode == 0

    pods = {"cloud0": AGGREGATION, "edge0": TRAIN_0, "edge1": TRAIN_1}
    secrets = {node: key.removeprefix("Pod/") for node, key in pods.items()}
    for node, own in secrets.items():
        assert is_readable(node, own)
        assert not [each for each in secrets.values() if each != own and is_readable(node, each)]
    stored = crds.client.list(f"/api/v1/namespaces/{namespace}/secrets")
    owned = {each["metadata"]["name"] for each in stored if each["type"] == "Opaque"}
    assert owned == {*secrets.values()}


def test_deleted_twice_within_seconds_a_pod_is_there_again(
    job: Federation, neighbour: None
) -> None:
    for _ in range(2):
        before = job.uids()
        job.delete_made(TRAIN_0)
        job.wait_for_new(before, TRAIN_0)


def test_an_edit_replaces_the_worker_that_it_concerns(job: Federation, neighbour: None) -> None:
    before = job.uids()
    container = {"name": "main", "image": "registry.test/worker:2"}
    changed = {"dataset": {"name": "data1"}, "template": {"spec": {"containers": [container]}}}
    job.edit(trainingWorkers=[federated_learning_spec()["trainingWorkers"][0], changed])
    job.wait_for_new(before, TRAIN_1)
    job.wait_for("observedGeneration", 2)


def test_what_happens_while_the_manager_is_down_is_made_good(
    job: Federation, neighbour: None, manager: GlobalManager
) -> None:
    before = job.uids()
    manager.stop()
    job.edit(transmitter={"s3": {"aggDataPath": "s3://b/k"}})
    job.delete_made(AGGREGATION)
    manager.start()
    job.wait_for_new(before, *PODS)


def test_a_finished_worker_is_not_run_again(job: Federation, neighbour: None) -> None:
    job.succeed(TRAIN_0)
    job.wait_for("finished", ["digits-train-0"])
    before = job.uids()
    job.delete_made(TRAIN_0)
    del before[TRAIN_0]
    job.delete_made(TRAIN_1)  # seen to be healed: so was the other, if at all
    job.wait_for_new(before, TRAIN_1)


def test_a_job_whose_workers_have_succeeded_is_complete(job: Federation, neighbour: None) -> None:
    for key in PODS:
        job.succeed(key)
    job.wait_for("phase", "Succeeded")
    for key in PODS:
        job.delete_made(key)
    job.wait_for("active", 0)
    assert job.status()["succeeded"] == 3


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
def test_deletion_takes_everything_along(job: Federation, neighbour: None, policy: str) -> None:
    job.delete(policy)
    job.wait_until_gone()


def test_a_deletion_while_the_manager_is_down_leaves_nothing(
    job: Federation, neighbour: None, manager: GlobalManager
) -> None:
    manager.stop()
    job.delete()
    job.wait_until_gone()
    manager.start()
    uid = job.create()  # once this trains the manager has seen everything
    job.wait_for("phase", "Training")
    assert job.owners() == {uid}


def test_created_and_deleted_twice_within_seconds_it_leaves_nothing(
    job: Federation, neighbour: None
) -> None:
    job.delete()
    job.create()
    job.delete()
    second = job.create()
    job.wait_for_owner(second)
    job.delete()
    job.wait_until_gone()
