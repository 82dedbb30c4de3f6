"""What a real API server warns of reaches those who can do something about it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from edgeai.cli.api import Object
from tests.cluster.controlplane import ControlPlane
from tests.cluster.training import REPLICAS, job_path, names, pytorch_job, wait_for_conditions
from tests.edgeai.cli.command import edgeai
from tests.support.client import Client
from tests.support.manager import GlobalManager
from tests.support.waiting import eventually

LABEL = "beta.kubernetes.io/arch"
DEPRECATED = f'spec.nodeSelector[{LABEL}]: deprecated since v1.14; use "kubernetes.io/arch" instead'
LABELLED = "jobs should have the label team"


def job_with_a_deprecated_label(namespace: str) -> Object:
    job = pytorch_job(namespace)
    for replicas in job["spec"]["pytorchReplicaSpecs"].values():
        replicas["template"]["spec"]["nodeSelector"] = {LABEL: "amd64"}
    return job


def warnings_of(client: Client, namespace: str) -> list[Object]:
    events = client.list(f"/api/v1/namespaces/{namespace}/events")
    return [event for event in events if event["reason"] == "APIWarning"]


def test_what_the_server_warns_of_when_pods_are_made_is_an_event_of_the_job(
    client: Client, manager: GlobalManager, namespace: str, kubelet: None
) -> None:
    client.create(job_with_a_deprecated_label(namespace))
    wait_for_conditions(client, job_path(namespace), "Created", "Running")
    assert names(client, namespace) == REPLICAS
    (event,) = eventually("the Event", lambda: warnings_of(client, namespace))
    assert event["message"] == f"Pod: {DEPRECATED}"
    assert (event["involvedObject"]["name"], event["count"]) == ("mnist", 1)
    assert manager.logs().count(DEPRECATED.replace('"', '\\"')) == 1


@pytest.fixture
def policy(control_plane: ControlPlane, namespace: str) -> Iterator[str]:
    """An admission policy that only warns."""
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": namespace}}
    rule = {
        "apiGroups": ["kubeflow.org"],
        "apiVersions": ["*"],
        "operations": ["CREATE"],
        "resources": ["pytorchjobs"],
    }
    expression = "has(object.metadata.labels) && 'team' in object.metadata.labels"
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": expression, "message": LABELLED}],
    }
    binding = {"policyName": namespace, "validationActions": ["Warn"]}
    documents = [
        {**kind, "kind": "ValidatingAdmissionPolicy", "spec": spec},
        {**kind, "kind": "ValidatingAdmissionPolicyBinding", "spec": binding},
    ]
    assert control_plane.kubectl("apply", "-f", "-", documents=documents).returncode == 0
    yield namespace
    control_plane.kubectl("delete", "-f", "-", documents=documents)


def test_a_command_prints_warnings_as_kubectl_does(
    control_plane: ControlPlane, client: Client, policy: str, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(pytorch_job(policy)))

    def check() -> str:
        """An API server learns of a policy a moment later."""
        done = edgeai("submit", str(file), "--kubeconfig", str(control_plane.kubeconfig))
        assert done.returncode == 0, done.stderr
        client.delete(job_path(policy))
        assert LABELLED in done.stderr
        return done.stderr

    printed = eventually("a warning", check)
    (line,) = [line for line in printed.splitlines() if LABELLED in line]
    assert line.startswith("Warning: ")
