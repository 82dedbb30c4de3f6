"""One line installs, once or again, with certificates and credentials of nodes."""

import base64
import json
from pathlib import Path

import pytest

from edgeai.cli.credentials.certificates import Pair, node_problem_of
from edgeai.cli.install.cluster import LABEL
from edgeai.cli.install.rendering import definitions, render
from edgeai.cli.install.values import Values
from edgeai.times import utc_now
from globalmanager.edge.identity.node_tokens import read_tokens, sha256_hex
from tests.cluster.client import Client
from tests.cluster.conftest import CHECKOUT
from tests.cluster.controlplane import ControlPlane
from tests.cluster.install.steps import (
    CORE,
    DEPLOYMENT,
    NAMESPACE,
    Run,
    installed,
    path,
    refused,
    uid_of,
    versions,
)
from tests.edgeai.cli.command import start

pytestmark = pytest.mark.timeout(240)


def test_one_line_installs_and_another_changes_nothing(run: Run, client: Client) -> None:
    told = installed(run)
    first, *commands = told.splitlines()
    assert first == f"edgeai is installed in namespace {NAMESPACE}. Type next:"
    assert commands == [
        "  edgeai submit edgeai/demo/joint_inference/first.yaml --wait",
        "  edgeai open",
    ]
    for each in [*render(Values()), *definitions(Values())]:
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
    page = (CHECKOUT / "docs" / "install.md").read_text(encoding="utf-8")
    section = page.partition("## In one line")[2].partition("\n## ")[0]
    commands = [line.split()[1:] for line in section.splitlines() if line.startswith("edgeai ")]
    assert [command[0] for command in commands] == ["install", "upgrade", "rollback", "uninstall"]
    replicas = {"install": 2, "upgrade": 3, "rollback": 2}
    states = {"install": "installed", "uninstall": "removed"}
    for command in commands:
        done = run(*command, "-o", "json")
        assert done.returncode == 0, done.stderr
        outcome = json.loads(done.stdout)
        assert outcome["namespace"] == NAMESPACE
        assert outcome["state"] == states.get(command[0], "ready")
        assert len(outcome["next"]) == (0 if command[0] == "uninstall" else 2)
        if command[0] in replicas:
            assert client.get(DEPLOYMENT)["spec"]["replicas"] == replicas[command[0]]
    assert client.find(f"/api/v1/namespaces/{NAMESPACE}") is None


def test_what_is_given_is_used_and_stays(run: Run, client: Client) -> None:
    client.create_named("Namespace", NAMESPACE)
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
    done = run("install", "--apply")
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
    client.create_named("Namespace", NAMESPACE)
    authority = {"name": "globalmanager-ca", "namespace": NAMESPACE}
    client.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": authority, "data": {"ca.crt": "y"}}
    )
    line = refused(run, "install", "--apply")
    assert "make Secret edgeai-system/globalmanager-tls with a certificate that it signed" in line
    client.delete(f"{CORE}/configmaps/globalmanager-ca")
    installed(run)


def test_a_command_that_is_killed_is_taken_up_by_the_next(
    run: Run, plane: ControlPlane, client: Client
) -> None:
    for last_words in ("made Namespace", "definitions are served", "applied DaemonSet"):
        process = start("install", "--apply", "--kubeconfig", str(plane.kubeconfig))
        assert process.stderr is not None
        for line in process.stderr:
            if last_words in line or "is ready" in line:
                break
        process.kill()
        process.communicate()
    installed(run)
    assert client.get(DEPLOYMENT)["status"]["availableReplicas"] == 2
    line = refused(run, "install", "--apply", "--set", "replicas=3")
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


def test_nodes_get_certificates_that_the_edge_port_takes(
    run: Run, client: Client, tmp_path: Path
) -> None:
    flags = ("--set", "edgeAuth=mtls", "--credentials", str(tmp_path / "nodes"))
    installed(run, *flags)
    assert {path.name for path in (tmp_path / "nodes").iterdir()} == {"edge0"}
    files = {each.name: each for each in (tmp_path / "nodes" / "edge0").iterdir()}
    assert files.keys() == {"tls.crt", "tls.key"}
    assert {each.stat().st_mode & 0o777 for each in files.values()} == {0o600}
    before = files["tls.key"].read_bytes()
    installed(run, *flags)
    assert files["tls.key"].read_bytes() == before
    assert run("uninstall").returncode == 0  # the CA goes, and the next installation has another
    done = run("install", "--apply", *flags)
    assert "tls.crt is of another CA" in done.stderr
    authority = client.get(f"{CORE}/secrets/edgeai-ca")["data"]
    pair = Pair(*(base64.b64decode(authority[key]).decode() for key in ("tls.crt", "tls.key")))
    assert node_problem_of(files["tls.crt"].read_text(), pair, utc_now()) == ""


def test_nodes_get_tokens_that_the_edge_port_knows(
    run: Run, client: Client, tmp_path: Path
) -> None:
    token = ("--set", "edgeAuth=token")
    line = refused(run, "install", "--apply", *token)
    assert "edge0: no token yet; type it with --credentials DIR" in line
    installed(run, *token, "--credentials", str(tmp_path))
    secret = client.get(f"{CORE}/secrets/globalmanager-edge-tokens")["data"]["tokens"]
    (tmp_path / "tokens").write_bytes(base64.b64decode(secret))
    made = (tmp_path / "edge0" / "token").read_text()
    assert read_tokens(tmp_path / "tokens") == {sha256_hex(made): "edge0"}
    installed(run, *token)  # no new node, no new token
    assert (tmp_path / "edge0" / "token").read_text() == made
