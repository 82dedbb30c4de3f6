"""Joint inference with real containers, after docs/install.md: the figures of `make demo`."""

import json
import sys
import time
from typing import Any, Final

import pytest

from edgeai.cli.api import path_of
from edgeai.demo.joint_inference.train import Figures
from tests.e2e.service import DIFFERENCES, Service, check_figure, services, slower
from tests.support.cluster import EDGES, Cluster
from tests.support.inference import counts_of
from tests.support.waiting import eventually

# The stream of the cut-off service takes 90 s, the minute lies within.
pytestmark = pytest.mark.timeout(330, func_only=True)
CUT_OFF_S: Final = 60.0
RATE_PER_S: Final = 8.0
STREAMED_S: Final = 180.0
GONE_S: Final = 90.0
TASKS: Final = """
import urllib.request
print(urllib.request.urlopen("http://127.0.0.1:9101/api/v1/tasks", timeout=5).read().decode())
"""


@pytest.fixture(scope="module")
def service(installed: Cluster) -> Service:
    """The one that the page ends with."""
    (only,) = services(installed)
    return Service(installed, only)


@pytest.fixture(scope="module")
def result(service: Service) -> dict[str, Any]:
    return service.result(timeout_s=STREAMED_S)


@pytest.mark.parametrize("figure", DIFFERENCES)
def test_figures_are_those_of_the_demo(
    result: dict[str, Any], figures: Figures, figure: str
) -> None:
    check_figure(result, figures, figure)


def test_every_image_was_seen(result: dict[str, Any], figures: Figures) -> None:
    assert result["samples"] == figures.samples


def test_the_cr_counts_what_the_worker_counted(service: Service, result: dict[str, Any]) -> None:
    service.wait_for_exact_counts(counts_of(result))


@pytest.fixture(scope="module")
def cut_off(installed: Cluster, service: Service) -> tuple[Service, dict[str, Any]]:
    """A service whose edge node is off the network for a minute of its stream; its result."""
    template = installed.client.get(service.path)
    made = installed.client.create(slower(template, name="cut-off", rate_per_s=RATE_PER_S))
    slow = Service(installed, made)
    slow.wait_for_uploads()
    node = slow.edge_pod()["spec"]["nodeName"]
    installed.cut_off(node)
    try:
        end_s = time.monotonic() + CUT_OFF_S
        installed.wait_until_ready(node, ready=False)
        time.sleep(max(0.0, end_s - time.monotonic()))  # the minute is what is promised
    finally:
        installed.reconnect(node)
    installed.wait_until_ready(node)
    return slow, slow.result(timeout_s=STREAMED_S)


def test_an_edge_that_is_cut_off_goes_on(
    cut_off: tuple[Service, dict[str, Any]], figures: Figures
) -> None:
    """By its own model alone, for the hard images of that minute."""
    _, result = cut_off
    counts = counts_of(result)
    assert counts["seen"] == figures.samples
    assert counts["fallbacks"] > 0
    assert counts["hard"] == counts["answeredByCloud"] + counts["fallbacks"]


def test_counts_are_exact_once_it_is_back(cut_off: tuple[Service, dict[str, Any]]) -> None:
    slow, result = cut_off
    slow.wait_for_exact_counts(counts_of(result))
    slow.wait_for_condition("EdgeConnected", "True")


def test_its_pod_was_neither_replaced_nor_restarted(
    cut_off: tuple[Service, dict[str, Any]],
) -> None:
    slow, _ = cut_off
    (status,) = slow.edge_pod()["status"]["containerStatuses"]
    assert status["restartCount"] == 0


def test_of_a_deleted_service_nothing_is_left(
    installed: Cluster, cut_off: tuple[Service, dict[str, Any]]
) -> None:
    """In the API, and on the edge. It runs last."""
    for each in services(installed):
        installed.client.delete(path_of(each))

    def check() -> bool:
        left = [*objects_left(installed), *tasks_left(installed)]
        assert not left, f"there is still {left}"
        return True

    eventually("the end of all that the services were", check, timeout_s=GONE_S)


def objects_left(cluster: Cluster) -> list[str]:
    """What the GlobalManager made for a service, and what that made."""
    collections = (
        "/apis/apps/v1/deployments",
        "/apis/apps/v1/replicasets",
        "/api/v1/pods",
        "/api/v1/services",
        "/api/v1/configmaps",
        "/api/v1/secrets",
    )
    return [
        f"{collection.rsplit('/', 1)[1]} {each['metadata']['name']}"
        for collection in collections
        for each in cluster.client.list(f"{collection}?labelSelector=edgeai.io/uid")
    ]


def tasks_left(cluster: Cluster) -> list[str]:
    """What the LocalControllers still hold of services."""
    left = []
    for node in EDGES:
        tasks = json.loads(cluster.nodes[node].machine.run(sys.executable, "-c", TASKS))["items"]
        keys = [task["key"] for task in tasks]
        left += [f"{key} on {node}" for key in keys if key.startswith("jointinferenceservices")]
    return left
