"""What stands in the way of an installation is named, with what to do."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edgeai.cli.credentials.certificates import new_authority
from edgeai.cli.install.record import SECRET
from edgeai.cli.install.rendering import render
from edgeai.cli.install.values import Values
from edgeai.times import utc_now
from tests.cluster.client import Client
from tests.cluster.controlplane import ControlPlane
from tests.cluster.install.steps import (
    CORE,
    DEPLOYMENT,
    NAMESPACE,
    NOBODY,
    Run,
    installed,
    refused,
)
from tests.cluster.lone_node import LoneNode
from tests.edgeai.cli.command import edgeai, start
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(240)


def test_an_installation_of_another_tool_is_refused_or_taken_over(
    run: Run, plane: ControlPlane, client: Client
) -> None:
    applied = plane.kubectl("apply", "-f", "-", documents=render(Values()))
    assert applied.returncode == 0, applied.stderr
    before = client.get(DEPLOYMENT)["metadata"]["uid"]
    line = refused(run, "install", "--apply")
    assert "were made by another tool" in line
    assert "--adopt" in line
    assert client.find(f"{CORE}/secrets/{SECRET}") is None
    assert "edgeai install has made no installation" in refused(run, "upgrade")
    assert "edgeai install has made no installation" in refused(run, "uninstall")
    installed(run, "--adopt")
    assert client.get(DEPLOYMENT)["metadata"]["uid"] == before
    done = run("uninstall", "--crds")
    assert f"namespace {NAMESPACE} stays: edgeai install has not made it" in done.stderr
    assert client.find(DEPLOYMENT) is None


def test_another_namespace_is_refused(run: Run, client: Client) -> None:
    installed(run)
    line = refused(run, "install", "--apply", "--set", "namespace=second")
    assert f"belongs to the installation in namespace {NAMESPACE}" in line
    assert client.find("/api/v1/namespaces/second") is None


def test_a_right_that_is_missing_is_named(plane: ControlPlane, nodes: None, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    plane.write_kubeconfig(kubeconfig, user=NOBODY)
    done = edgeai("install", "--apply", "--kubeconfig", str(kubeconfig))
    assert done.returncode == 1
    assert f'User "{NOBODY}" cannot get resource "' in done.stderr
    assert "as an administrator" in done.stderr


def test_rights_that_are_missing_are_told_together_before_anything_is_made(
    run: Run, plane: ControlPlane, client: Client, tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    plane.write_kubeconfig(kubeconfig, user=NOBODY)
    grants = ("get,list", "*.*"), ("*", "namespaces,secrets,configmaps,deployments.apps")
    with granted(plane, *grants):
        done = edgeai("install", "--apply", "--kubeconfig", str(kubeconfig))
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "you may not create and patch " in last
    assert "daemonsets.apps" in last.partition(f" in namespace {NAMESPACE}; ")[0]
    assert "clusterroles.rbac.authorization.k8s.io" in last.partition(f"{NAMESPACE}; ")[2]
    assert "nothing was changed; type it as an administrator" in last
    assert "secrets" not in last
    assert client.find(f"/api/v1/namespaces/{NAMESPACE}") is None


def test_who_may_not_grant_rights_is_told_before_anything_is_made(
    run: Run, plane: ControlPlane, client: Client, tmp_path: Path
) -> None:
    """RBAC lets nobody grant what he has not himself."""
    kubeconfig = tmp_path / "kubeconfig"
    plane.write_kubeconfig(kubeconfig, user=NOBODY)
    with granted(plane, ("get,list,create,update,patch,delete", "*.*")):
        done = edgeai("install", "--apply", "--kubeconfig", str(kubeconfig))
    assert done.returncode == 1
    assert "attempting to grant RBAC permissions not currently held" in done.stderr
    assert client.find(f"/api/v1/namespaces/{NAMESPACE}") is None


@contextmanager
def granted(plane: ControlPlane, *grants: tuple[str, str]) -> Iterator[None]:
    """Let NOBODY have these verbs for these resources."""
    rules = [
        {
            "verbs": verbs.split(","),
            "resources": [each.partition(".")[0] for each in resources.split(",")],
            "apiGroups": ["*"] if resources == "*.*" else ["", "apps"],
        }
        for verbs, resources in grants
    ]
    group = "rbac.authorization.k8s.io"
    head: dict[str, Any] = {"apiVersion": f"{group}/v1", "metadata": {"name": "some-rights"}}
    role = {"apiGroup": group, "kind": "ClusterRole", "name": "some-rights"}
    subject = {"apiGroup": group, "kind": "User", "name": NOBODY}
    documents = [
        {**head, "kind": "ClusterRole", "rules": rules},
        {**head, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": [subject]},
    ]
    done = plane.kubectl("apply", "-f", "-", documents=documents)
    assert done.returncode == 0, done.stderr
    try:
        yield
    finally:
        plane.kubectl("delete", "-f", "-", documents=documents)


def test_a_cluster_without_a_type_says_which_value_helps(run: Run, client: Client) -> None:
    line = refused(run, "install", "--apply", "--set", "monitoring=true")
    assert "install the Prometheus operator first" in line
    assert client.find(DEPLOYMENT) is None


def test_an_installation_without_a_session_of_any_edge_node_fails(
    run: Run, plane: ControlPlane, edge_node: LoneNode
) -> None:
    """Its pods are ready, and its edge nodes cannot reach it."""
    installed(run)
    edge_node.end_session()
    try:
        done = edgeai(
            *("install", "--apply", "--kubeconfig", str(plane.kubeconfig), "--timeout", "5")
        )
    finally:
        edge_node.open_session()
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "a session of an edge node: after 5 s still none of edge0; " in last
    assert f"kubectl -n {NAMESPACE} logs daemonset/localcontroller" in last
    installed(run)


def test_a_missing_ca_of_kubeedge_is_told_before_anything_is_made(run: Run, client: Client) -> None:
    values = ("--set", "components=kubeedge", "--set", "edgeHost=192.0.2.1")
    line = refused(run, "install", "--apply", *values)
    assert f"ConfigMap {NAMESPACE}/globalmanager-client-ca is missing" in line
    assert "docs/kubeedge.md" in line
    assert client.find(f"/api/v1/namespaces/{NAMESPACE}") is None


@pytest.mark.parametrize("key", ["of another", "broken"])
def test_a_ca_that_cannot_sign_is_named(run: Run, client: Client, tmp_path: Path, key: str) -> None:
    client.create_named("Namespace", NAMESPACE)
    pair, other = new_authority(utc_now()), new_authority(utc_now())
    data = {"tls.crt": pair.certificate, "tls.key": other.key if key == "of another" else "key"}
    metadata = {"name": "edgeai-ca", "namespace": NAMESPACE}
    client.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data})
    line = refused(run, "install", "--apply")
    assert f"Secret {NAMESPACE}/edgeai-ca is no CA that can sign (" in line
    assert "into tls.key" in line


def test_a_namespace_that_ends_is_waited_for_by_the_user(run: Run, client: Client) -> None:
    client.create_named("Namespace", NAMESPACE)
    metadata = {"name": "held", "namespace": NAMESPACE, "finalizers": ["test.example/held"]}
    client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    client.delete(f"/api/v1/namespaces/{NAMESPACE}")
    try:
        line = refused(run, "install", "--apply")
        assert f"namespace {NAMESPACE} is being deleted" in line
    finally:
        client.patch(f"{CORE}/configmaps/held", {"metadata": {"finalizers": None}})
    namespace = f"/api/v1/namespaces/{NAMESPACE}"
    eventually("the end of the namespace", lambda: client.find(namespace) is None)


@pytest.mark.parametrize(
    ("resource", "room"),
    [("count/secrets", 0), ("pods", 0), ("pods", 2)],
    ids=["secrets", "pods of the GlobalManager", "pods of edge nodes"],
)
def test_a_quota_is_named(
    run: Run, plane: ControlPlane, client: Client, resource: str, room: int
) -> None:
    client.create_named("Namespace", NAMESPACE)
    metadata = {"name": "none", "namespace": NAMESPACE}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata}
    client.request(
        "POST", f"{CORE}/resourcequotas", {**quota, "spec": {"hard": {resource: str(room)}}}
    )
    where = f"{CORE}/resourcequotas/none"
    eventually("the quota", lambda: (client.get(where).get("status") or {}).get("hard"))
    process = start("install", "--apply", "--kubeconfig", str(plane.kubeconfig))
    assert process.stderr is not None
    assert any("exceeded quota: none" in line for line in process.stderr)  # up to this line
    process.terminate()
    process.communicate()
    assert process.returncode != 0
    client.delete(where)
    installed(run)
