"""The nodes, and jobs without a fault: joint inference by relay, and federated learning."""

import subprocess
from typing import Any

import pytest

from edgeai.demo.joint_inference import train
from tests.e2e.document import TRAINING, run_page
from tests.e2e.service import DIFFERENCES, check_figure
from tests.e2e.training import ROOT, check_end, check_result, check_samples
from tests.e2e.two_jobs import EDGE, running_service
from tests.kubeedge.cluster import KubeEdge
from tests.kubeedge.programs import RELEASE
from tests.support.cluster import EDGES
from tests.support.inference import counts_of

pytestmark = pytest.mark.timeout(330, func_only=True)


def test_edge_nodes_are_of_kubeedge(cluster: KubeEdge) -> None:
    for name in EDGES:
        node = cluster.client.get(f"/api/v1/nodes/{name}")
        assert node["status"]["nodeInfo"]["kubeletVersion"].endswith(f"-kubeedge-v{RELEASE}")
        assert "node-role.kubernetes.io/edge" in node["metadata"]["labels"]


def test_an_edge_node_has_no_way_to_services(cluster: KubeEdge) -> None:
    (api, *_) = cluster.client.list("/api/v1/namespaces/default/services")
    route = cluster.nodes[EDGE].machine.inside("ip", "route", "get", api["spec"]["clusterIP"])
    done = subprocess.run(route, capture_output=True, text=True, check=False)
    assert "Network is unreachable" in done.stderr


def test_joint_inference_has_the_figures_of_the_demo_and_exact_counts(
    installed: KubeEdge, tmp_path_factory: pytest.TempPathFactory
) -> None:
    figures = train.measure(train.train(tmp_path_factory.mktemp("figures")))
    with running_service(installed, rate_per_s=0) as service:
        service.wait_for_uploads()
        result = service.result(timeout_s=180)
        for figure in DIFFERENCES:
            check_figure(result, figures, figure)
        counts = counts_of(result)
        assert (counts["seen"], counts["fallbacks"]) == (figures.samples, 0)
        assert counts["hard"] == counts["uploaded"] == counts["answeredByCloud"] > 0
        service.wait_for_exact_counts(counts)


@pytest.fixture(scope="module")
def job(installed: KubeEdge, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The FederatedLearningJob of its page, at its end."""
    run_page(TRAINING, installed, tmp_path_factory.mktemp("training"))
    return installed.client.get(f"{ROOT}/federatedlearningjobs/digits")


def test_a_federated_job_trains_to_its_end(installed: KubeEdge, job: dict[str, Any]) -> None:
    check_end(job)
    check_samples(installed, job)
    check_result(installed)
