"""Pods that run: asserted where somebody runs them."""

import pytest

from edgeai.cli.api import Object
from tests.conformance.clusters import AnyCluster
from tests.conformance.space import Space
from tests.support.waiting import eventually


def running_pod(node: str, script: str, **spec: object) -> Object:
    container = {"name": "main", "image": "none", "command": ["/bin/sh", "-c", script]}
    return {
        "metadata": {"name": "one"},
        "spec": {"nodeName": node, "containers": [container], "restartPolicy": "Never", **spec},
    }


def until_phase(space: Space, phase: str) -> Object:
    def found() -> Object | None:
        pod = space.get("pods", "one")
        return pod if pod["status"].get("phase") == phase else None

    return eventually(phase, found)


def test_a_pod_succeeds_and_leaves_its_log(space: Space, kubelet: str) -> None:
    space.create("pods", running_pod(kubelet, "echo said"))
    status = until_phase(space, "Succeeded")["status"]
    ended = status["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (0, "Completed")
    assert space.client("GET", space.path("pods", "one", "log")).body == "said\n"


def test_kubectl_shows_the_log(cluster: AnyCluster, space: Space, kubelet: str) -> None:
    space.create("pods", running_pod(kubelet, "echo said; echo more"))
    until_phase(space, "Succeeded")
    done = cluster.kubectl("--namespace", space.name, "logs", "one", "--tail=1")
    if done is None:
        pytest.skip("there is no kubectl on PATH")
    assert (done.returncode, done.stdout) == (0, "more\n"), done.stderr


def test_a_pod_fails_by_its_exit_code(space: Space, kubelet: str) -> None:
    space.create("pods", running_pod(kubelet, "exit 3"))
    status = until_phase(space, "Failed")["status"]
    ended = status["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (3, "Error")


def test_a_running_pod_is_ready_and_goes_when_it_is_deleted(space: Space, kubelet: str) -> None:
    space.create("pods", running_pod(kubelet, "exec sleep 600"))
    status = until_phase(space, "Running")["status"]
    conditions = {each["type"]: each["status"] for each in status["conditions"]}
    assert (conditions["Ready"], bool(status["podIP"])) == ("True", True)
    space.delete("pods", "one").ok()
    space.until_gone("pods", "one")


def test_a_pod_that_nobody_placed_is_scheduled(
    cluster: AnyCluster, space: Space, kubelet: str
) -> None:
    pod = running_pod(kubelet, "true")
    del pod["spec"]["nodeName"]
    pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": kubelet}
    space.create("pods", pod)
    assert until_phase(space, "Succeeded")["spec"]["nodeName"] == kubelet
