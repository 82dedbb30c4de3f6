"""docs/adding-a-training-kind.md on a real control plane, under the rights that it generates.

No pod runs here; what the kubelet of its node would say of it, the tests say. The local cluster's
half is tests/system/test_adding_a_training_kind.py.
"""

from collections.abc import Iterator
from typing import Final

import pytest

from edgeai.cli.api import Object, path_of
from globalmanager.manifests.rbac import namespace_rules
from tests.cluster.controlplane import ControlPlane
from tests.docs.pages import Copy, copy_with
from tests.docs.training import Training
from tests.support.client import Client
from tests.support.jobs import Job
from tests.support.manager import GlobalManager

# The garbage collector looks for new types twice a minute.
SETTLE_S: Final = 120.0
USER: Final = "training-kind"
NODE: Final = "edge0"
_RBAC: Final = "rbac.authorization.k8s.io"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    return copy_with("adding-a-training-kind.md", tmp_path_factory.mktemp("copy"))


@pytest.fixture(scope="module")
def served(crds: ControlPlane, copy: Copy) -> Iterator[ControlPlane]:
    """The control plane with the CRDs of both kinds, established."""
    definitions = [*copy.crds.values()]
    crds.install_crds(definitions)
    yield crds
    for each in definitions:
        crds.client.delete(path_of(each))


@pytest.fixture(scope="module")
def rights(served: ControlPlane, copy: Copy, system_namespace: str) -> Iterator[list[Object]]:
    """A ServiceAccount with what the copy's generator grants to the GlobalManager, no more."""
    account = {"name": USER, "namespace": system_namespace}
    documents: list[Object] = [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}]
    subjects = [{"kind": "ServiceAccount", **account}]
    head = {"apiVersion": f"{_RBAC}/v1"}
    for kind, metadata, rules in (
        ("ClusterRole", {"name": USER}, copy.rules),
        ("Role", account, namespace_rules()),
    ):
        role = {"apiGroup": _RBAC, "kind": kind, "name": USER}
        documents.append({**head, "kind": kind, "metadata": metadata, "rules": rules})
        binding = {"roleRef": role, "subjects": subjects}
        documents.append({**head, "kind": f"{kind}Binding", "metadata": metadata, **binding})
    applied = served.kubectl("apply", "-f", "-", documents=documents)
    assert applied.returncode == 0, applied.stderr
    yield documents
    deleted = served.kubectl("delete", "--wait=false", "-f", "-", documents=documents)
    assert deleted.returncode == 0, deleted.stderr


@pytest.fixture(scope="module")
def manager(
    served: ControlPlane,
    rights: list[Object],
    copy: Copy,
    system_namespace: str,
    nodes: tuple[str, ...],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[GlobalManager]:
    """The copy as a process, ready, under the rights that it generates."""
    assert NODE in nodes
    directory = tmp_path_factory.mktemp("globalmanager")
    kubeconfig = directory / "kubeconfig"
    served.write_account_kubeconfig(kubeconfig, system_namespace, USER)
    manager = GlobalManager(
        kubeconfig=kubeconfig,
        system_namespace=system_namespace,
        directory=directory,
        environment=copy.environment,
    )
    with manager.running():
        yield manager


def manifest(copy: Copy, name: str, namespace: str) -> Object:
    found = copy.manifest(name)
    found["metadata"]["namespace"] = namespace
    for replica_type in ("launcher", "worker"):
        if replica_type in found["spec"]:
            found["spec"][replica_type]["spec"]["nodeName"] = NODE
    return found


def test_job_lives_and_ends_as_the_page_says(
    client: Client, manager: GlobalManager, copy: Copy, namespace: str, kubelet: None
) -> None:
    def succeed(name: str) -> None:
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
        client.patch(path, {"status": {"phase": "Succeeded"}})

    Training(
        client,
        client.create,
        train=manifest(copy, "train", namespace),
        scale=manifest(copy, "scale", namespace),
        succeed=succeed,
        timeout_s=SETTLE_S,
    ).live()


def test_what_the_manager_may_not_do_it_cannot_grant_and_the_job_says_so(
    client: Client, manager: GlobalManager, rights: list[Object], copy: Copy, namespace: str
) -> None:
    roles = [each for each in rights if each["kind"] == "ClusterRole" and may_execute(each)]
    assert roles
    job = Job(
        client, client.create, manifest(copy, "train", namespace), timeout_s=SETTLE_S, types=()
    )
    try:
        for role in roles:
            less = [rule for rule in role["rules"] if "pods/exec" not in rule["resources"]]
            client.patch(path_of_role(role), {"rules": less})
        job.create()
        job.wait_for_condition("Running", "Forbidden")
        assert "pods/exec" in job.condition("Running")["message"]
    finally:
        for role in roles:
            client.patch(path_of_role(role), {"rules": role["rules"]})
    job.eventually("the Role", lambda: client.find(role_path(namespace)))


def path_of_role(role: Object) -> str:
    return f"/apis/{_RBAC}/v1/clusterroles/{role['metadata']['name']}"


def may_execute(role: Object) -> bool:
    return any("pods/exec" in rule["resources"] for rule in role["rules"])


def role_path(namespace: str) -> str:
    return f"/apis/{_RBAC}/v1/namespaces/{namespace}/roles/mnist-launcher-0"
