"""deploy/ on a real API server: all of it is accepted, and its parts agree with each other."""

import json
import os
from pathlib import Path
from typing import Final

import pytest
import yaml

import globalmanager.settings
import localcontroller.settings
from common.settings import load
from edgeai.api import Object
from globalmanager.edge.door.configuration import service_account, tls_files
from globalmanager.edge.identity.service_accounts import ServiceAccount
from globalmanager.manifests.rbac import ACCOUNT, NAMESPACE
from tests.cluster.conftest import CHECKOUT
from tests.cluster.controlplane import ControlPlane

DEPLOY: Final = CHECKOUT / "deploy"
OVERLAYS: Final = sorted(path.name for path in (DEPLOY / "overlays").iterdir())
EDGE: Final = "edge0"
LOCAL_CONTROLLER: Final = "localcontroller"
DAEMON_SET: Final = "DaemonSet"


def rendered(control_plane: ControlPlane, directory: Path) -> list[Object]:
    done = control_plane.kubectl("kustomize", str(directory))
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


@pytest.mark.parametrize("directory", ["base", *(f"overlays/{name}" for name in OVERLAYS)])
def test_the_api_server_accepts_what_is_rendered(
    crds: ControlPlane, system_namespace: str, directory: str
) -> None:
    """All but policy/v1, which this version of Kubernetes may not have yet."""
    documents = rendered(crds, DEPLOY / directory)
    assert {each["kind"] for each in documents} >= {"Deployment", "DaemonSet", "NetworkPolicy"}
    served = set(crds.kubectl("api-versions").stdout.split())
    known = [each for each in documents if each["apiVersion"] in served]
    unknown = {each["apiVersion"] for each in documents} - served
    assert unknown <= ({"policy/v1"} if "1.20" not in directory else set())
    done = crds.kubectl("apply", "--dry-run=server", "-f", "-", documents=known)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(known)


def test_the_api_server_accepts_the_dashboard(crds: ControlPlane, system_namespace: str) -> None:
    """The other two are of the Prometheus operator, which is not here."""
    documents = {each["kind"]: each for each in rendered(crds, DEPLOY / "monitoring")}
    assert documents.keys() == {
        *("ConfigMap", "ServiceMonitor", "PrometheusRule"),
        *("ClusterRole", "ClusterRoleBinding"),
    }
    dashboard = documents["ConfigMap"]
    crds.client.create(dashboard, dry_run=True)
    (text,) = dashboard["data"].values()
    assert json.loads(text)["panels"]


def test_a_node_publishes_the_edge_port_only(control_plane: ControlPlane) -> None:
    """REST asks nobody who he is; and the limits for each address need the edge's own."""
    documents = rendered(control_plane, DEPLOY / "overlays" / "nodeport")
    services = [each for each in documents if each["kind"] == "Service"]
    (inner,) = (each["spec"] for each in services if each["metadata"]["name"] == "globalmanager")
    assert inner.get("type", "ClusterIP") == "ClusterIP"
    (outer,) = (each["spec"] for each in services if each["spec"] != inner)
    assert (outer["type"], outer["externalTrafficPolicy"]) == ("NodePort", "Local")
    assert outer["selector"] == inner["selector"]
    (port,) = outer["ports"]
    assert (port["targetPort"], port["nodePort"]) == ("edge", 30900)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_ports_probes_and_replicas_agree(control_plane: ControlPlane, overlay: str) -> None:
    documents = rendered(control_plane, DEPLOY / "overlays" / overlay)
    found = {
        (each["kind"], each["metadata"]["name"]): each["spec"]
        for each in documents
        if "spec" in each
    }
    deployment = found["Deployment", ACCOUNT]
    (container,) = deployment["template"]["spec"]["containers"]
    ports = {each["containerPort"] for each in container["ports"]}
    flags = dict(flag.split("=", 1) for flag in container["args"] if "=" in flag)
    addresses = ("--edge-address", "--http-address")
    listened = {int(flags[name].rpartition(":")[2]) for name in addresses}
    (policy,) = (spec for (kind, _), spec in found.items() if kind == "NetworkPolicy")
    rules = {port["port"]: rule for rule in policy["ingress"] for port in rule["ports"]}
    assert listened == ports == rules.keys()
    rest = int(flags["--http-address"].rpartition(":")[2])
    assert {"podSelector": {}} in rules[rest]["from"]
    assert "from" not in rules[(ports - {rest}).pop()]
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    startup = container["startupProbe"]
    assert startup["httpGet"]["path"] == "/healthz"
    assert startup["failureThreshold"] * startup.get("periodSeconds", 10) >= 60
    (budget,) = (spec for (kind, _), spec in found.items() if kind == "PodDisruptionBudget")
    assert deployment["replicas"] >= 2
    assert 1 <= budget["minAvailable"] < deployment["replicas"]


def test_no_container_of_the_cloud_may_be_root_or_write_its_image(crds: ControlPlane) -> None:
    for document in rendered(crds, DEPLOY / "overlays" / "serviceaccount"):
        if document["kind"] not in ("Deployment", "DaemonSet"):
            continue
        pod = document["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        security = {**pod.get("securityContext", {}), **container["securityContext"]}
        assert security["readOnlyRootFilesystem"]
        assert not security["allowPrivilegeEscalation"]
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert security.get("runAsNonRoot", False) is (document["kind"] == "Deployment")
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}


def test_a_localcontroller_can_read_data_of_its_node(control_plane: ControlPlane) -> None:
    """Nothing of the node but its own state can it write."""
    paths = mounted_read_only(control_plane, DEPLOY / "overlays" / "serviceaccount")
    assert paths == {"/data": "/rootfs/data"}


def test_the_patch_of_the_documentation_mounts_another_directory(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    page = (CHECKOUT / "docs" / "datasets.md").read_text(encoding="utf-8")
    patch = page.partition("```yaml\n# patchesStrategicMerge")[2].partition("```")[0]
    (tmp_path / "data.yaml").write_text(patch.partition("\n")[2])
    overlay = os.path.relpath(DEPLOY / "overlays" / "serviceaccount", tmp_path)
    mine = {"bases": [overlay], "patchesStrategicMerge": ["data.yaml"]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(mine))
    assert mounted_read_only(control_plane, tmp_path) == {"/srv/images": "/rootfs/srv/images"}


def mounted_read_only(control_plane: ControlPlane, directory: Path) -> dict[str, str]:
    """Directories of the node, all but that of the ledger, and where its container has them."""
    (workload,) = (
        each for each in rendered(control_plane, directory) if each["kind"] == DAEMON_SET
    )
    pod = workload["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    paths = {
        each["name"]: each["hostPath"]["path"] for each in pod["volumes"] if "hostPath" in each
    }
    mounts = {each["mountPath"]: each for each in container["volumeMounts"]}
    (written,) = (path for path, each in mounts.items() if not each.get("readOnly"))
    assert f"--state-dir={written}" in container["args"]
    return {
        paths[each["name"]]: path
        for path, each in mounts.items()
        if each["name"] in paths and path != written
    }


STAND_INS: Final = {
    "$(NODE_NAME)": EDGE,
    "$(HOST_IP)": "192.0.2.1",
    "$(POD_NAME)": "globalmanager-0",
    "$(POD_NAMESPACE)": NAMESPACE,
}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_programs_take_the_flags_that_they_are_given(
    control_plane: ControlPlane, overlay: str
) -> None:
    documents = rendered(control_plane, DEPLOY / "overlays" / overlay)
    found = {(each["kind"], each["metadata"]["name"]): each for each in documents}
    where = found["ConfigMap", LOCAL_CONTROLLER]["data"]["globalManager"]
    flags = flags_of(found["DaemonSet", LOCAL_CONTROLLER], {"$(GLOBAL_MANAGER)": where})
    edge = load(localcontroller.settings.Settings, prog=LOCAL_CONTROLLER, argv=flags, env={})
    localcontroller.settings.check(edge)
    flags = flags_of(found["Deployment", ACCOUNT], {})
    cloud = load(globalmanager.settings.Settings, prog=ACCOUNT, argv=flags, env={})
    assert tls_files(cloud) is not None
    account = service_account(cloud.edge_service_account)
    assert account == ServiceAccount(NAMESPACE, LOCAL_CONTROLLER)
    assert cloud.edge_auth == ("mtls" if overlay == "mtls" else "serviceaccount")


def flags_of(workload: Object, more: dict[str, str]) -> list[str]:
    """Those of its one container; what they name is in what is mounted, or holds it."""
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    mounts = tuple(each["mountPath"] for each in container["volumeMounts"])
    flags: list[str] = container["args"]
    for name, value in (STAND_INS | more).items():
        flags = [flag.replace(name, value) for flag in flags]
    paths = [value for flag in flags if (value := flag.partition("=")[2]).startswith("/")]
    assert paths
    parents = {str(parent) for mount in mounts for parent in Path(mount).parents}
    assert all(path.startswith(mounts) or path in parents for path in paths)
    return flags
