"""An API server that does not serve autoscaling/v2: jobs run, and say what is missing."""

from collections.abc import Iterator

import pytest

from tests.cluster import binaries
from tests.cluster.controlplane import ControlPlane
from tests.cluster.kubelet import Kubelet
from tests.cluster.samples import create_models, service
from tests.cluster.test_engine import wait_for_condition
from tests.cluster.training import job_path, pytorch_job, wait_for_conditions
from tests.support.client import Client
from tests.support.manager import GlobalManager
from tests.support.waiting import eventually

NAMESPACE = "default"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    plane = ControlPlane(
        binaries.obtain(),
        tmp_path_factory.mktemp("controlplane"),
        api_server_flags=("--runtime-config=autoscaling/v2=false",),
    )
    with plane.running():
        plane.prepare("edge0", "cloud0")
        directory = tmp_path_factory.mktemp("globalmanager")
        manager = GlobalManager(kubeconfig=plane.kubeconfig, directory=directory)
        with manager.running():
            missing = "the API server does not serve autoscaling/v2"
            answer = (True, [f"horizontalpodautoscalers.autoscaling: {missing}"])
            # A server that has just started may end the first watches, which readyz shows, too.
            eventually(missing, lambda: manager.readyz() == answer)
            yield plane.client


def test_a_service_with_an_autoscaler_is_accepted_and_says_what_is_missing(client: Client) -> None:
    create_models(client, NAMESPACE)
    job = client.create(service(NAMESPACE, cloud={"hpa": {"maxReplicas": 3}}))
    accepted = wait_for_condition(client, job, "Accepted", "True")
    assert "cloudWorker.hpa" in accepted["message"]
    assert "autoscaling/v2" in accepted["message"]


@pytest.fixture
def kubelet(client: Client) -> Iterator[None]:
    kubelet = Kubelet(client, NAMESPACE)
    yield
    kubelet.stop()


def test_an_elastic_job_runs_and_says_what_is_missing(client: Client, kubelet: None) -> None:
    job = pytorch_job(NAMESPACE)
    target = {"type": "Utilization", "averageUtilization": 80}
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    job["spec"]["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": 3, "metrics": metrics}
    client.create(job)
    wait_for_conditions(client, job_path(NAMESPACE), "Created", "Running")

    def has_event() -> bool:
        events = client.list(f"/api/v1/namespaces/{NAMESPACE}/events")
        messages = [each["message"] for each in events if each["reason"] == "AutoscalerNotServed"]
        return any("autoscaling/v2" in message for message in messages)

    eventually("the event", has_event)
