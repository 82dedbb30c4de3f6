"""An elastic TrainingJob on a real control plane, whose scheduler knows the room on a node.

The job is the example of docs/kinds/trainingjob.md. The node has 4 CPUs: the launcher needs 0.1 of
them, and each worker 1.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from edgeai.cli.api import Object
from tests.cluster.elastic import path_in, wait_for_phase
from tests.cluster.lone_node import LoneNode
from tests.cluster.training import end, names, uids
from tests.support.client import Client
from tests.support.manager import GlobalManager
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(300, func_only=True)
PAGE: Final = Path(__file__).parents[2] / "docs" / "kinds" / "trainingjob.md"
PRIORITIES: Final = {"preemptible": -10, "training": 10, "urgent": 1000}
JOB: Final = "follows-room"
LAUNCHER: Final = f"{JOB}-launcher"


def example(namespace: str) -> Object:
    """The job on the page with spec.elastic."""
    blocks = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    documents = [document for block in blocks for document in yaml.safe_load_all(block)]
    (job,) = (one for one in documents if "elastic" in one.get("spec", {}))
    job["metadata"]["namespace"] = namespace
    return dict(job)


@pytest.fixture
def priorities(client: Client) -> Iterator[None]:
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    for name, value in PRIORITIES.items():
        made = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": value}
        client.request("POST", path, {**made, "metadata": {"name": name}})
    yield
    for name in PRIORITIES:
        client.delete(f"{path}/{name}")


@pytest.fixture
def node(client: Client, namespace: str) -> Iterator[None]:
    """A node on which pods of this namespace run."""
    made = LoneNode(client, f"node-of-{namespace}", namespace, {})
    path = f"/api/v1/nodes/{made.name}"
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    eventually("the account of the pods", lambda: client.find(account) is not None)
    client.patch(path, {"spec": {"taints": None}})  # the node controller does not run here
    yield
    made.remove()


def other_pod(client: Client, namespace: str, name: str, priority: str) -> None:
    """A pod of somebody else, which needs 2 CPUs."""
    resources = {"requests": {"cpu": "2"}}
    client.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "priorityClassName": priority,
                "automountServiceAccountToken": False,  # its token may not be there yet
                "containers": [{"name": "main", "image": "edgeai/test", "resources": resources}],
            },
        }
    )
    eventually(f"pod {name}", lambda: runs(client, namespace, name))


def runs(client: Client, namespace: str, name: str) -> bool:
    pod = client.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
    return bool(pod.get("status", {}).get("phase") == "Running")


def hosts(client: Client, namespace: str) -> list[str]:
    config = client.get(f"/api/v1/namespaces/{namespace}/configmaps/{JOB}-config")
    return [line.partition(":")[0] for line in config["data"]["hostfile"].splitlines()]


def wait_for_workers(client: Client, namespace: str, running: int) -> dict[str, Any]:
    """Until so many workers run and are in the list of hosts, and one more waits for room.

    Returns: the status of the job
    """

    def check() -> dict[str, Any]:
        status: dict[str, Any] = client.get(path_in(namespace, JOB))["status"]
        told = status.get("elastic", {})
        assert (told.get("ready"), told.get("waiting")) == (running, 1), f"{status}"
        assert told.get("reason") == "Unschedulable", f"{status}"
        assert "Insufficient cpu" in told.get("message", ""), f"{status}"
        assert len(hosts(client, namespace)) == running, f"{status}"
        assert set(hosts(client, namespace)) < set(status["targetWorkers"]), f"{status}"
        return status

    return eventually(f"{running} workers", check)


def assert_goes_on(client: Client, namespace: str, status: dict[str, Any], launcher: str) -> None:
    assert status["phase"] == "Running"
    assert "restartCount" not in status
    assert "Stalled" not in [one["type"] for one in status["conditions"]]
    assert uids(client, namespace, "pods")[LAUNCHER] == launcher


def test_the_workers_follow_the_room_on_the_nodes(
    client: Client, manager: GlobalManager, namespace: str, priorities: None, node: None
) -> None:
    other_pod(client, namespace, "other", "training")
    client.create(example(namespace))
    wait_for_phase(client, namespace, "Running", JOB)
    status = wait_for_workers(client, namespace, 1)
    launcher = uids(client, namespace, "pods")[LAUNCHER]

    client.delete(f"/api/v1/namespaces/{namespace}/pods/other")
    status = wait_for_workers(client, namespace, 3)
    assert_goes_on(client, namespace, status, launcher)

    other_pod(client, namespace, "urgent", "urgent")  # the scheduler preempts two workers
    status = wait_for_workers(client, namespace, 1)
    assert_goes_on(client, namespace, status, launcher)

    client.delete(f"/api/v1/namespaces/{namespace}/pods/urgent")
    status = wait_for_workers(client, namespace, 3)
    assert_goes_on(client, namespace, status, launcher)
    assert status["nextWorkerIndex"] <= 8, "an index for each worker that ran, and two that wait"

    end(client, namespace, LAUNCHER, 0)
    wait_for_phase(client, namespace, "Succeeded", JOB)
    eventually("the clean-up", lambda: names(client, namespace) == [LAUNCHER])


def test_a_launcher_that_restarts_in_a_full_cluster_gets_its_room_back(
    client: Client, manager: GlobalManager, namespace: str, priorities: None, node: None
) -> None:
    job = example(namespace)
    job["spec"] |= {"restartPolicy": "OnFailure"}
    for role in ("launcher", "worker"):
        pod = job["spec"]["etReplicaSpecs"][role]["template"]["spec"]
        pod |= {"priorityClassName": "training", "terminationGracePeriodSeconds": 1}
        pod["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    client.create(job)
    wait_for_phase(client, namespace, "Running", JOB)
    before = wait_for_workers(client, namespace, 3)
    launcher = uids(client, namespace, "pods")[LAUNCHER]
    (waiting,) = set(before["targetWorkers"]) - set(hosts(client, namespace))

    end(client, namespace, LAUNCHER, 1)
    # Mostly the scheduler gives the room to the worker that waits, before the launcher is there.
    known = (None, launcher)
    eventually("a new launcher", lambda: uids(client, namespace, "pods").get(LAUNCHER) not in known)
    eventually("its room", lambda: runs(client, namespace, LAUNCHER))
    after = wait_for_workers(client, namespace, 3)
    assert (after["restartCount"], after["targetWorkers"]) == (1, before["targetWorkers"])
    assert waiting not in hosts(client, namespace)
