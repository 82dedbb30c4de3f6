"""Only the group of Sedna is installed: definitions and rights. Then the others come, too."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from edgeai.cli.api import Object, path_of
from globalmanager.manifests.rbac import ACCOUNT, NAMESPACE
from tests.cluster import binaries, helm
from tests.cluster.controlplane import ControlPlane
from tests.cluster.samples import model
from tests.globalmanager.kinds.edge.samples import federated_learning_spec
from tests.support.manager import GlobalManager
from tests.support.waiting import eventually

TEAM: Final = "team"
EDGE: Final = "edge0"
RIGHTS: Final = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    plane = ControlPlane(binaries.obtain(), tmp_path_factory.mktemp("controlplane"))
    with plane.running():
        plane.client.create_named("Namespace", NAMESPACE, TEAM)
        plane.client.create_named("Node", EDGE)
        yield plane


def install(plane: ControlPlane, *groups: str) -> None:
    """The definitions and the rights of the chart."""
    documents = helm.rendered({"groups": [*groups]})
    rights = [each for each in documents if each["kind"] in RIGHTS]
    applied = plane.kubectl("apply", "-f", "-", documents=rights)
    assert applied.returncode == 0, applied.stderr
    plane.install_crds([each for each in documents if each["kind"] == "CustomResourceDefinition"])


def kubeconfig_of(plane: ControlPlane, directory: Path) -> Path:
    """Of the GlobalManager's ServiceAccount."""
    file = directory / "kubeconfig"
    plane.write_account_kubeconfig(file, NAMESPACE, ACCOUNT)
    return file


def federation(group: str, name: str) -> Object:
    spec = federated_learning_spec(1)
    spec["trainingWorkers"][0]["dataset"] = {"name": "pictures"}
    metadata = {"name": name, "namespace": TEAM}
    kind = "FederatedLearningJob"
    return {"apiVersion": f"{group}/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


def dataset(group: str) -> Object:
    return {
        "apiVersion": f"{group}/v1alpha1",
        "kind": "Dataset",
        "metadata": {"name": "pictures", "namespace": TEAM},
        "spec": {"url": "/data/pictures.txt", "format": "txt", "nodeName": EDGE},
    }


def test_the_manager_serves_the_groups_that_are_installed(
    plane: ControlPlane, tmp_path: Path
) -> None:
    install(plane, "sedna.io")
    manager = GlobalManager(
        kubeconfig=kubeconfig_of(plane, tmp_path), system_namespace=NAMESPACE, directory=tmp_path
    )
    with manager.running():
        ready, reasons = manager.readyz()
        assert ready
        for group in ("edgeai.io", "kubeflow.org", "kai.alibabacloud.com"):
            assert any(f"{group} is not served" in each for each in reasons), reasons
        assert not any("sedna.io" in each for each in reasons), reasons
        converges(plane, "sedna.io", "surface")
        # As in the README of Sedna, without a group. Sedna's definitions are the only ones.
        command = ("get", "federatedlearningjob", "surface", "--namespace", TEAM, "--output=name")
        shown = plane.kubectl(*command)
        assert shown.stdout.strip() == "federatedlearningjob.sedna.io/surface", shown.stderr

        install(plane, "sedna.io", "edgeai.io")
        converges(plane, "edgeai.io", "own")
        reasons = manager.readyz()[1]
        assert not any("edgeai.io is not served" in each for each in reasons), reasons


def converges(plane: ControlPlane, group: str, name: str) -> None:
    client = plane.client
    job = federation(group, name)
    for each in (dataset(group), model("surface", TEAM, group=group), job):
        client.create(each)

    def has_condition() -> bool:
        found = client.get(path_of(job)).get("status", {})
        assert found.get("conditions"), found
        return True

    eventually(f"conditions of {group} {name}", has_condition)
