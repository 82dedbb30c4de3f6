"""Both edge nodes reach the edge port of the GlobalManager alone: all is as with a whole network.

It comes after the other modules, because their training jobs need the network between nodes.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from edgeai.cli.api import path_of
from edgeai.cli.system import EDGE_PORT, HTTP_PORT
from edgeai.demo.joint_inference.manifests import Placement, objects
from edgeai.demo.joint_inference.train import Figures
from edgeai.demo.manifests import IN_IMAGE
from tests.e2e.containers import IMAGE
from tests.e2e.document import TRAINING, run_page
from tests.e2e.service import DIFFERENCES, Service, check_figure, slower
from tests.e2e.training import ROOT, check_end, check_result, check_samples
from tests.support.cluster import CLOUD, EDGES, Cluster
from tests.support.inference import counts_of

pytestmark = pytest.mark.timeout(330, func_only=True)
EDGE: Final = EDGES[0]  # docs/install.md copies the files there
NAME: Final = "one-port"
RATE_PER_S: Final = 60.0
STREAMED_S: Final = 180.0
CONNECT: Final = """
import json, socket, sys
found = []
for target in sys.argv[1:]:
    host, port = target.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
        found.append("open")
    except OSError as error:
        found.append(type(error).__name__)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def isolated(installed: Cluster) -> Iterator[Cluster]:
    with installed.isolated(*EDGES, edge_port=EDGE_PORT):
        yield installed


@pytest.fixture(scope="module")
def service(isolated: Cluster) -> Iterator[Service]:
    python, checkout = IN_IMAGE
    placement = Placement(
        files=Path("/data/edgeai-example/digits"),
        python=python,
        checkout=checkout,
        image=IMAGE,
        edge_node=EDGE,
        cloud_node=CLOUD,
    )
    *_, example = objects(placement)  # the others are there, of docs/install.md
    made = isolated.client.create(slower(example, name=NAME, rate_per_s=RATE_PER_S))
    service = Service(isolated, made)
    service.wait_for_uploads()
    yield service
    isolated.client.delete(path_of(made))


@pytest.fixture(scope="module")
def result(service: Service) -> dict[str, Any]:
    return service.result(timeout_s=STREAMED_S)


@pytest.mark.parametrize("figure", DIFFERENCES)
def test_figures_are_those_of_the_demo(
    result: dict[str, Any], figures: Figures, figure: str
) -> None:
    check_figure(result, figures, figure)


def test_every_image_was_seen_and_every_hard_one_answered(
    service: Service, result: dict[str, Any], figures: Figures
) -> None:
    counts = counts_of(result)
    assert counts["seen"] == result["samples"] == figures.samples
    assert counts["hard"] == counts["answeredByCloud"] > 0
    service.wait_for_exact_counts(counts)


def test_the_worker_used_the_relay(service: Service, result: dict[str, Any]) -> None:
    assert transports(service.status()) == {"relay"}


def transports(status: dict[str, Any]) -> set[str]:
    return {worker["details"]["transport"] for worker in status["workers"].values()}


def test_nothing_else_answers(isolated: Cluster, service: Service, result: dict[str, Any]) -> None:
    cloud = f"{address(isolated, 'default', f'{NAME}-cloud')}:5000"
    manager = address(isolated, "edgeai-system", "globalmanager")
    targets = (cloud, f"{manager}:{HTTP_PORT}", f"{manager}:{EDGE_PORT}")
    edge_pod, (cloud_pod,) = service.edge_pod(), service.pods("cloud")
    assert connections(isolated, cloud_pod, targets)[0] == "open"
    refused = "OSError"  # no route to host
    assert connections(isolated, edge_pod, targets) == [refused, refused, "open"]
    assert connections(isolated, localcontroller(isolated), targets) == [refused, refused, "open"]


def address(cluster: Cluster, namespace: str, name: str) -> str:
    service = cluster.client.get(f"/api/v1/namespaces/{namespace}/services/{name}")
    return str(service["spec"]["clusterIP"])


def localcontroller(cluster: Cluster) -> dict[str, Any]:
    """The pod on the edge node."""
    selector = "labelSelector=app.kubernetes.io/name=localcontroller"
    pods = cluster.client.list(f"/api/v1/namespaces/edgeai-system/pods?{selector}")
    (found,) = [pod for pod in pods if pod["spec"]["nodeName"] == EDGE]
    return found


def connections(cluster: Cluster, pod: dict[str, Any], targets: tuple[str, ...]) -> list[str]:
    """What a container of this pod gets from each target."""
    where = (f"--namespace={pod['metadata']['namespace']}", pod["metadata"]["name"])
    done = cluster.control_plane.kubectl("exec", *where, "--", "python3", "-c", CONNECT, *targets)
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found


def test_federated_learning_goes_through_the_relay(
    isolated: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run_page(TRAINING, isolated, tmp_path_factory.mktemp("training"))
    job = isolated.client.get(f"{ROOT}/federatedlearningjobs/digits")
    try:
        check_end(job)
        check_samples(isolated, job)
        check_result(isolated)
        assert transports(job["status"]) == {"relay"}
    finally:
        isolated.client.delete(path_of(job))
