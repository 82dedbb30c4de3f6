"""Scalers of TrainingJobs on a real control plane.

No pod has containers here, so nobody can ask a launcher whether a worker is idle: each ScaleIn has
a short timeout.
"""

import signal
from collections.abc import Iterator
from typing import Any, Final

import pytest

from edgeai.cli.api import Object
from tests.cluster.controlplane import ControlPlane
from tests.cluster.elastic import JOB, hosts, path_in, training_job, wait_for_phase, worker
from tests.cluster.kubelet import Kubelet
from tests.cluster.training import end, names
from tests.support.client import Client
from tests.support.manager import GlobalManager
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(300, func_only=True)
GROUP: Final = "kai.alibabacloud.com/v1alpha1"
SHORT_S: Final = 1
LONG_S: Final = 3600
ENDS: Final = ("ScaleSucceeded", "ScaleFailed")


def scale_out(namespace: str, name: str, count: int, **spec: Any) -> Object:
    return scaler(namespace, "ScaleOut", name, {"toAdd": {"count": count}, **spec})


def scale_in(namespace: str, name: str, **chosen: Any) -> Object:
    return scaler(namespace, "ScaleIn", name, {"toDelete": chosen, "timeout": SHORT_S})


def scaler(namespace: str, kind: str, name: str, spec: Object) -> Object:
    return {
        "apiVersion": GROUP,
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"name": JOB}, **spec},
    }


def path_of_scaler(made: Object) -> str:
    metadata = made["metadata"]
    plural = f"{made['kind'].lower()}s"
    return f"/apis/{GROUP}/namespaces/{metadata['namespace']}/{plural}/{metadata['name']}"


def wait_for_end(client: Client, made: Object) -> Object:
    """Until the scaler has ended. Returns: its status"""

    def check() -> Object:
        status: Object = client.get(path_of_scaler(made)).get("status", {})
        assert status.get("phase") in ENDS, f"{status}"
        return status

    return eventually(f"the end of {made['kind']} {made['metadata']['name']}", check, timeout_s=120)


def workers(client: Client, namespace: str) -> list[str]:
    """The workers' pods, in the order of their index."""
    found = [name for name in names(client, namespace) if name.startswith(f"{JOB}-worker-")]
    return sorted(found, key=lambda name: int(name.rpartition("-")[2]))


def wait_for_hosts(client: Client, namespace: str, *indices: int) -> None:
    wanted = [f"{worker(index)}:1" for index in indices]

    def check() -> bool:
        found = hosts(client, namespace)
        assert sorted(found) == sorted(wanted), f"{found}"
        return True

    eventually(f"the hosts {indices}", check)


@pytest.fixture
def other_namespace(client: Client) -> Iterator[str]:
    """A second namespace, with a kubelet for its pods."""
    metadata = {"generateName": "test-"}
    made = client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    name: str = made["metadata"]["name"]
    kubelet = Kubelet(client, name)
    yield name
    kubelet.stop()
    client.delete(f"/api/v1/namespaces/{name}")
    client.request("DELETE", f"/api/v1/namespaces/{name}/pods?gracePeriodSeconds=0")


def test_of_twelve_workers_worker_1_goes_and_worker_10_and_the_namesakes_stay(
    client: Client, manager: GlobalManager, namespace: str, other_namespace: str, kubelet: None
) -> None:
    for each in (namespace, other_namespace):
        client.create(training_job(each, worker={"replicas": 12}))
    for each in (namespace, other_namespace):
        wait_for_phase(client, each, "Running")
    before = names(client, other_namespace)
    status = wait_for_end(client, client.create(scale_in(namespace, "one", podNames=[worker(1)])))
    assert status["phase"] == "ScaleSucceeded", status
    assert status["toDeletePods"] == [worker(1)]
    left = [worker(index) for index in (0, *range(2, 12))]
    assert workers(client, namespace) == left
    assert hosts(client, namespace) == [f"{name}:1" for name in left]
    assert names(client, other_namespace) == before

    foreign = client.create(scale_in(namespace, "nobody", podNames=[worker(0), "other-worker-3"]))
    refused = wait_for_end(client, foreign)
    assert refused["phase"] == "ScaleFailed"
    assert "other-worker-3 is no worker" in refused["message"]
    assert workers(client, namespace) == left


def test_scalers_that_pile_up_are_executed_in_their_order(
    client: Client,
    manager: GlobalManager,
    control_plane: ControlPlane,
    namespace: str,
    kubelet: None,
) -> None:
    """The first of them comes before its job."""
    first = client.create(scale_out(namespace, "a", 1))

    def is_waiting() -> bool:
        message = client.get(path_of_scaler(first)).get("status", {}).get("message", "")
        assert "waits for TrainingJob elastic" in message, message
        return True

    eventually("that the scaler says for what it waits", is_waiting)
    client.create(training_job(namespace, worker={"maxReplicas": 5, "minReplicas": 2}))
    made = [
        first,
        client.create(scale_out(namespace, "b", 9)),
        client.create(scale_out(namespace, "c", 2)),
        client.create(scale_in(namespace, "d", count=2)),
        client.create(scale_in(namespace, "e", count=2)),
    ]
    ended = {each["metadata"]["name"]: wait_for_end(client, each) for each in made}
    assert {name: status["phase"] for name, status in ended.items()} == {
        "a": "ScaleSucceeded",
        "b": "ScaleFailed",
        "c": "ScaleSucceeded",
        "d": "ScaleSucceeded",
        "e": "ScaleFailed",
    }
    assert ended["a"]["addPods"] == [worker(2)]
    assert ended["c"]["addPods"] == [worker(3), worker(4)]
    assert ended["d"]["toDeletePods"] == [worker(3), worker(4)]
    assert "maxReplicas, 5" in ended["b"]["message"]
    assert "minReplicas, 2" in ended["e"]["message"]
    assert workers(client, namespace) == [worker(0), worker(1), worker(2)]
    wait_for_phase(client, namespace, "Running")

    shown = control_plane.kubectl("get", "scaleouts,scaleins", "--namespace", namespace).stdout
    phases = sorted(line.split()[1] for line in shown.splitlines() if "/" in line)
    assert phases == sorted(status["phase"] for status in ended.values())
    expected = {
        ("ScaleOut", "ScaleOutSucceeded"),
        ("ScaleOut", "ScaleOutFailed"),
        ("ScaleIn", "ScaleInSucceeded"),
        ("TrainingJob", "ScaleOutSucceeded"),
        ("TrainingJob", "ScaleInFailed"),
    }

    def are_told() -> bool:
        told = client.list(f"/api/v1/namespaces/{namespace}/events")
        reasons = {(each["involvedObject"]["kind"], each["reason"]) for each in told}
        assert expected <= reasons, f"{reasons}"
        return True

    eventually("the Events, which follow the statuses", are_told)


def test_kubectl_scale_makes_scalers_and_the_job_takes_them_along(
    client: Client,
    manager: GlobalManager,
    control_plane: ControlPlane,
    namespace: str,
    kubelet: None,
) -> None:
    client.create(training_job(namespace))
    wait_for_phase(client, namespace, "Running")

    def scale(replicas: int) -> None:
        done = control_plane.kubectl(
            *("scale", f"trainingjob/{JOB}", f"--replicas={replicas}", "--namespace", namespace)
        )
        assert done.returncode == 0, done.stderr

    scale(4)
    wait_for_hosts(client, namespace, 0, 1, 2, 3)
    made = scale_out(namespace, f"{JOB}-scale-2", 2)
    assert wait_for_end(client, made)["phase"] == "ScaleSucceeded"
    scale(3)
    # The wait for an idle worker lasts as long as its timeout, which is not short here.
    wait_for_hosts(client, namespace, 0, 1, 2)
    client.delete(path_in(namespace))
    eventually("the end of the scaler", lambda: client.find(path_of_scaler(made)) is None)


@pytest.mark.parametrize("kind", ["ScaleOut", "ScaleIn"])
def test_a_global_manager_that_is_killed_while_scaling_ends_with_the_right_pods(
    client: Client, manager: GlobalManager, namespace: str, kubelet: None, kind: str
) -> None:
    client.create(training_job(namespace, worker={"replicas": 3}))
    wait_for_phase(client, namespace, "Running")
    made = (
        scale_out(namespace, "s", 2)
        if kind == "ScaleOut"
        else scale_in(namespace, "s", podNames=[worker(1)])
    )
    client.create(made)
    eventually("its beginning", lambda: client.get(path_of_scaler(made)).get("status"))
    manager.stop(signal.SIGKILL)
    manager.start()
    assert wait_for_end(client, made)["phase"] == "ScaleSucceeded"
    left = (0, 1, 2, 3, 4) if kind == "ScaleOut" else (0, 2)
    assert workers(client, namespace) == [worker(index) for index in left]
    wait_for_hosts(client, namespace, *left)


def test_a_job_that_ends_fails_the_scalers_that_wait(
    client: Client, manager: GlobalManager, namespace: str, kubelet: None
) -> None:
    client.create(training_job(namespace))
    wait_for_phase(client, namespace, "Running")
    waits = scale_in(namespace, "a", podNames=[worker(1)])
    waits["spec"]["timeout"] = LONG_S  # else it may end well before its job ends
    made = [client.create(waits), client.create(scale_out(namespace, "b", 1))]
    wait_for_phase(client, namespace, "Scaling")
    end(client, namespace, f"{JOB}-launcher", 0)
    wait_for_phase(client, namespace, "Succeeded")
    assert {wait_for_end(client, each)["phase"] for each in made} == {"ScaleFailed"}
