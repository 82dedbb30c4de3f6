"""`edgeai install` and its sisters on a real API server with controllers and two nodes."""

import base64
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from edgeai.api import Object
from edgeai.install.cluster import LABEL, name_of
from edgeai.install.record import SECRET
from edgeai.install.rendering import definitions, render
from edgeai.install.values import values_of
from globalmanager.edge.identity.node_tokens import read_tokens, sha256_hex
from tests.cluster import binaries
from tests.cluster.client import Client
from tests.cluster.conftest import CHECKOUT, CRDS
from tests.cluster.controlplane import ControlPlane
from tests.cluster.lone_node import LoneNode
from tests.cluster.samples import model
from tests.edgeai.command import edgeai, start
from tests.waiting import eventually

NAMESPACE: Final = "edgeai-system"
CORE: Final = f"/api/v1/namespaces/{NAMESPACE}"
DEPLOYMENT: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/globalmanager"
EDGE_LABELS: Final = {"node-role.kubernetes.io/edge": ""}
OLD: Final = {"components": ["kubernetes-1.20"]}
SET: Final = ("--set", "components=kubernetes-1.20")
NOBODY: Final = "nobody"

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    plane = ControlPlane(
        binaries.obtain(),
        tmp_path_factory.mktemp("controlplane"),
        users={NOBODY: ""},
        watches_nodes=True,
    )
    try:
        plane.start()
        yield plane
        plane.check_alive()
    finally:
        plane.stop()


@pytest.fixture(scope="module")
def client(plane: ControlPlane) -> Client:
    return plane.client


@pytest.fixture(scope="module")
def nodes(client: Client) -> Iterator[None]:
    """A cloud node and an edge node, on which pods of edgeai become ready."""
    made = [LoneNode(client, "cloud0", NAMESPACE, {})]
    made.append(LoneNode(client, "edge0", NAMESPACE, EDGE_LABELS))
    yield
    for node in made:
        node.remove()


Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(plane: ControlPlane, nodes: None) -> Iterator[Run]:
    """Runs the command. What the test has left is removed afterwards."""

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return edgeai(*arguments, "--kubeconfig", str(plane.kubeconfig), "--timeout", "40")

    yield run
    if plane.client.find(f"/api/v1/namespaces/{NAMESPACE}"):
        run("uninstall", "--jobs", "--crds")
        plane.kubectl("delete", "namespace", NAMESPACE, "--wait=true")


def installed(run: Run, *arguments: str) -> str:
    done = run("install", "--apply", *SET, *arguments)
    assert done.returncode == 0, done.stderr
    assert "PRIVATE KEY" not in done.stdout + done.stderr
    return done.stdout


def refused(run: Run, *arguments: str) -> str:
    """The one line that says why."""
    done = run(*arguments)
    assert done.returncode == 1, done.stdout
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


def versions(client: Client) -> dict[str, str]:
    """The resourceVersion of each object of the installation that no controller writes."""
    chosen = values_of(OLD)
    wanted = [*render(chosen), *definitions(chosen)]
    wanted = [each for each in wanted if each["kind"] not in ("Deployment", "DaemonSet")]
    found = {str(name_of(each)): client.get(path(each)) for each in wanted}
    return {name: each["metadata"]["resourceVersion"] for name, each in found.items()}


def path(object_: Object) -> str:
    ref = name_of(object_).ref
    return ref.type.path(ref.namespace, ref.name)


def uid_of(client: Client, secret: str) -> str:
    uid: str = client.get(f"{CORE}/secrets/{secret}")["metadata"]["uid"]
    return uid


# ---- install ------------------------------------------------------------------------------------


def test_one_line_installs_and_another_changes_nothing(run: Run, client: Client) -> None:
    told = installed(run)
    first, *commands = told.splitlines()
    assert first == f"edgeai is installed in namespace {NAMESPACE}. Type next:"
    assert commands == [
        f"  edgeai doctor --namespace {NAMESPACE}",
        "  kubectl apply -f examples/joint_inference/joint_inference.yaml",
    ]
    for each in [*render(values_of(OLD)), *definitions(values_of(OLD))]:
        found = client.get(path(each))
        assert found["metadata"]["labels"][LABEL] == NAMESPACE
        managers = {entry["manager"] for entry in found["metadata"]["managedFields"]}
        assert each["kind"] == "Namespace" or "edgeai-install" in managers
    assert client.get(DEPLOYMENT)["status"]["availableReplicas"] == 2
    before, secret = versions(client), uid_of(client, "globalmanager-tls")
    installed(run)
    assert versions(client) == before
    assert uid_of(client, "globalmanager-tls") == secret


def test_the_commands_of_the_page_do_what_it_says(run: Run, client: Client) -> None:
    """This cluster is of 1.20, and the page says what that needs."""
    page = (CHECKOUT / "docs" / "install.md").read_text(encoding="utf-8")
    section = page.partition("## In one line")[2].partition("\n## ")[0]
    commands = [line.split()[1:] for line in section.splitlines() if line.startswith("edgeai ")]
    assert [command[0] for command in commands] == ["install", "upgrade", "rollback", "uninstall"]
    assert " ".join(SET) in section
    replicas = {"install": 2, "upgrade": 3, "rollback": 2}
    for command in commands:
        done = run(*command, *(SET if command[0] == "install" else ()))
        assert done.returncode == 0, done.stderr
        if command[0] in replicas:
            assert client.get(DEPLOYMENT)["spec"]["replicas"] == replicas[command[0]]
    assert client.find(f"/api/v1/namespaces/{NAMESPACE}") is None


def test_what_is_given_is_used_and_stays(run: Run, client: Client) -> None:
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    metadata = {"name": "globalmanager-tls", "namespace": NAMESPACE}
    given = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "stringData": {"tls.crt": "x"},
    }
    authority = {"name": "globalmanager-ca", "namespace": NAMESPACE}
    client.create(given)
    client.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": authority, "data": {"ca.crt": "y"}}
    )
    done = run("install", "--apply", *SET)
    assert done.returncode == 0, done.stderr
    assert (
        "warning: the certificate in Secret edgeai-system/globalmanager-tls cannot be read"
        in done.stderr
    )
    assert client.get(f"{CORE}/secrets/globalmanager-tls")["data"] == {"tls.crt": "eA=="}
    assert client.find(f"{CORE}/secrets/edgeai-ca") is None
    assert run("uninstall").returncode == 0
    assert client.get(f"{CORE}/secrets/globalmanager-tls")["data"] == {"tls.crt": "eA=="}
    assert client.find(DEPLOYMENT) is None


def test_an_authority_without_its_key_is_refused_with_a_way_out(run: Run, client: Client) -> None:
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    authority = {"name": "globalmanager-ca", "namespace": NAMESPACE}
    client.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": authority, "data": {"ca.crt": "y"}}
    )
    line = refused(run, "install", "--apply", *SET)
    assert "make Secret edgeai-system/globalmanager-tls with a certificate that it signed" in line
    client.delete(f"{CORE}/configmaps/globalmanager-ca")
    installed(run)


def test_a_command_that_is_killed_is_taken_up_by_the_next(
    run: Run, plane: ControlPlane, client: Client
) -> None:
    for last_words in ("made Namespace", "definitions are served", "applied DaemonSet"):
        process = start("install", "--apply", *SET, "--kubeconfig", str(plane.kubeconfig))
        assert process.stderr is not None
        for line in process.stderr:
            if last_words in line or "is ready" in line:
                break
        process.kill()
        process.communicate()
    installed(run)
    assert client.get(DEPLOYMENT)["status"]["availableReplicas"] == 2
    line = refused(run, "install", "--apply", *SET, "--set", "replicas=3")
    assert "change it with: edgeai upgrade" in line


def test_two_at_once_do_not_mix(run: Run, plane: ControlPlane) -> None:
    installed(run)
    both = [
        start("upgrade", "--set", f"replicas={n}", "--kubeconfig", str(plane.kubeconfig))
        for n in (3, 4)
    ]
    ends = [(*each.communicate(timeout=100), each.returncode) for each in both]
    won = [n for n, (_, _, status) in zip((3, 4), ends, strict=True) if status == 0]
    assert won, ends
    for _, said, status in ends:
        assert status == 0 or "changes this installation now" in said
    assert plane.client.get(DEPLOYMENT)["spec"]["replicas"] in won


def test_nodes_get_certificates_that_the_edge_port_takes(run: Run, tmp_path: Path) -> None:
    flags = ("--set", "edgeAuth=mtls", "--credentials", str(tmp_path / "nodes"))
    installed(run, *flags)
    assert {path.name for path in (tmp_path / "nodes").iterdir()} == {"edge0"}
    files = {each.name: each for each in (tmp_path / "nodes" / "edge0").iterdir()}
    assert files.keys() == {"tls.crt", "tls.key"}
    assert {each.stat().st_mode & 0o777 for each in files.values()} == {0o600}
    before = files["tls.key"].read_bytes()
    installed(run, *flags)
    assert files["tls.key"].read_bytes() == before


def test_nodes_get_tokens_that_the_edge_port_knows(
    run: Run, client: Client, tmp_path: Path
) -> None:
    token = ("--set", "edgeAuth=token")
    line = refused(run, "install", "--apply", *SET, *token)
    assert "edge0: no token yet; type it with --credentials DIR" in line
    installed(run, *token, "--credentials", str(tmp_path))
    secret = client.get(f"{CORE}/secrets/globalmanager-edge-tokens")["data"]["tokens"]
    (tmp_path / "tokens").write_bytes(base64.b64decode(secret))
    made = (tmp_path / "edge0" / "token").read_text()
    assert read_tokens(tmp_path / "tokens") == {sha256_hex(made): "edge0"}
    installed(run, *token)  # no new node, no new token
    assert (tmp_path / "edge0" / "token").read_text() == made


# ---- refusals -----------------------------------------------------------------------------------


def test_an_installation_of_another_tool_is_refused_or_taken_over(
    run: Run, plane: ControlPlane, client: Client
) -> None:
    applied = plane.kubectl("apply", "-f", "-", documents=render(values_of(OLD)))
    assert applied.returncode == 0, applied.stderr
    before = client.get(DEPLOYMENT)["metadata"]["uid"]
    line = refused(run, "install", "--apply", *SET)
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
    line = refused(run, "install", "--apply", *SET, "--set", "namespace=second")
    assert f"belongs to the installation in namespace {NAMESPACE}" in line
    assert client.find("/api/v1/namespaces/second") is None


def test_a_right_that_is_missing_is_named(plane: ControlPlane, nodes: None, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    plane.write_kubeconfig(kubeconfig, user=NOBODY)
    done = edgeai("install", "--apply", *SET, "--kubeconfig", str(kubeconfig))
    assert done.returncode == 1
    assert f'User "{NOBODY}" cannot get resource "' in done.stderr
    assert "as an administrator" in done.stderr


def test_a_cluster_without_a_type_says_which_value_helps(run: Run, client: Client) -> None:
    if client.find("/apis/policy/v1"):
        pytest.skip("this API server has policy/v1")
    assert "--set components=kubernetes-1.20" in refused(run, "install", "--apply")
    line = refused(run, "install", "--apply", *SET, "--set", "monitoring=true")
    assert "install the Prometheus operator first" in line
    assert client.find(DEPLOYMENT) is None


def test_a_namespace_that_ends_is_waited_for_by_the_user(run: Run, client: Client) -> None:
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    metadata = {"name": "held", "namespace": NAMESPACE, "finalizers": ["test.example/held"]}
    client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    client.delete(f"/api/v1/namespaces/{NAMESPACE}")
    try:
        line = refused(run, "install", "--apply", *SET)
        assert f"namespace {NAMESPACE} is being deleted" in line
    finally:
        client.patch(f"{CORE}/configmaps/held", {"metadata": {"finalizers": None}})
    namespace = f"/api/v1/namespaces/{NAMESPACE}"
    eventually("the end of the namespace", lambda: client.find(namespace) is None)


@pytest.mark.parametrize("resource", ["count/secrets", "pods"])
def test_a_quota_is_named(run: Run, plane: ControlPlane, client: Client, resource: str) -> None:
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    metadata = {"name": "none", "namespace": NAMESPACE}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata}
    client.request("POST", f"{CORE}/resourcequotas", {**quota, "spec": {"hard": {resource: "0"}}})
    where = f"{CORE}/resourcequotas/none"
    eventually("the quota", lambda: (client.get(where).get("status") or {}).get("hard"))
    done = edgeai(
        "install", "--apply", *SET, "--kubeconfig", str(plane.kubeconfig), "--timeout", "8"
    )
    assert done.returncode == 1
    assert "exceeded quota: none" in done.stderr.splitlines()[-1]
    client.delete(where)
    installed(run)


# ---- upgrade, rollback, uninstall ---------------------------------------------------------------


def test_an_upgrade_changes_and_a_rollback_takes_it_back(run: Run, client: Client) -> None:
    installed(run)
    service = f"{CORE}/services/globalmanager-edge"
    assert "no earlier revision" in refused(run, "rollback")
    done = run(
        "upgrade",
        "--set",
        "nodePort=31234",
        "--set",
        "edgeHost=edge.example",
        "--set",
        "replicas=3",
    )
    assert done.returncode == 0, done.stderr
    assert "the certificate of the edge port has no name edge.example" in done.stderr
    assert client.get(service)["spec"]["ports"][0]["nodePort"] == 31234
    assert client.get(DEPLOYMENT)["spec"]["replicas"] == 3
    for replicas, has_port in ((2, False), (3, True)):  # the second one goes forward again
        back = run("rollback")
        assert back.returncode == 0, back.stderr
        assert client.get(DEPLOYMENT)["spec"]["replicas"] == replicas
        assert (client.find(service) is not None) is has_port
    assert run("upgrade").returncode == 0  # the recorded values
    assert client.get(DEPLOYMENT)["spec"]["replicas"] == 3


def test_an_upgrade_that_never_gets_ready_can_be_taken_back(
    run: Run, plane: ControlPlane, client: Client
) -> None:
    installed(run)
    # No node has so much memory.
    much = (
        "--set",
        "resources.globalmanager.requests.memory=1Ti",
        "--set",
        "resources.globalmanager.limits.memory=1Ti",
    )
    flags = ("--kubeconfig", str(plane.kubeconfig), "--timeout", "3")
    done = edgeai("upgrade", *much, *flags)
    assert done.returncode == 1
    assert "pods are ready: " in done.stderr
    assert "edgeai rollback" in done.stderr.splitlines()[-1]
    assert run("rollback").returncode == 0
    container = client.get(DEPLOYMENT)["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"]["memory"] == "1Gi"
    assert "no earlier revision" in refused(run, "rollback")  # nothing worth to go forward to


def test_uninstall_removes_all_but_jobs_and_definitions(run: Run, client: Client) -> None:
    installed(run)
    job = client.create(model("birds", "default"))
    line = refused(run, "uninstall", "--crds")
    assert "1 jobs exist (1 models.edgeai.io)" in line
    assert client.find(DEPLOYMENT) is not None
    done = run("uninstall")
    assert done.returncode == 0, done.stderr
    assert "1 jobs stay (1 models.edgeai.io)" in done.stderr
    assert client.find(f"/api/v1/namespaces/{NAMESPACE}") is None
    left = definitions(values_of(OLD))
    for each in render(values_of(OLD)):
        assert client.find(path(each)) is None
    assert all(client.find(path(each)) for each in left)
    assert client.get(
        f"/apis/edgeai.io/v1alpha1/namespaces/default/models/{job['metadata']['name']}"
    )
    assert "there is no namespace" in refused(run, "uninstall")
    installed(run)  # the definitions are its own again
    done = run("uninstall", "--jobs", "--crds")
    assert done.returncode == 0, done.stderr
    assert not any(client.find(path(each)) for each in left)


def test_what_others_have_made_stays(run: Run, plane: ControlPlane, client: Client) -> None:
    applied = plane.kubectl("apply", "-f", str(CRDS / "edgeai.io_models.yaml"))
    assert applied.returncode == 0, applied.stderr
    metadata: dict[str, Any] = {"name": "mine", "namespace": NAMESPACE}
    installed(run)
    client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    done = run("uninstall", "--jobs", "--crds")
    assert done.returncode == 0, done.stderr
    assert f"namespace {NAMESPACE} stays: it holds ConfigMap mine" in done.stderr
    assert client.find(f"{CORE}/secrets/{SECRET}") is None
    definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/models.edgeai.io"
    assert client.find(definition) is not None
    client.delete(definition)
