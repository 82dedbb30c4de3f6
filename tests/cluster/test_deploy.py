"""deploy/ on a real API server: all of it is accepted, and its parts agree with each other."""

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest
import yaml

from edgeai.cli.api import Object
from globalmanager.manifests.rbac import ACCOUNT, groups
from tests.cluster.conftest import CHECKOUT
from tests.cluster.controlplane import ControlPlane
from tests.cluster.deployed import DeployedObjects
from tests.cluster.kustomize import DEPLOY, combined, rendered, write

OVERLAYS: Final = sorted(path.name for path in (DEPLOY / "overlays").iterdir())
EDGE: Final = "edge0"
LOCAL_CONTROLLER: Final = "localcontroller"
DAEMON_SET: Final = "DaemonSet"
ACCEPTED: Final[set[str]] = set()  # objects as JSON, by the control plane of this run
IDENTITIES: Final = {
    **{name: name for name in ("serviceaccount", "mtls", "token")},
    "kubeedge": "mtls",
}


def _subsets(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for size in range(len(names) + 1):
        yield from itertools.combinations(names, size)


# One identity, any of the others; and the API groups that somebody chooses, none of them too.
COMBINATIONS: Final = [
    *((*groups(), identity, *others) for identity in IDENTITIES for others in ((), ("nodeport",))),
    *((*chosen, "serviceaccount") for chosen in _subsets(groups())),
    ("nodeport", "kubeedge", *reversed(groups())),  # in another order
]


def test_a_component_is_in_a_combination() -> None:
    known = {path.name for path in (DEPLOY / "components").iterdir()}
    assert known == {name for each in COMBINATIONS for name in each}


@pytest.mark.parametrize("chosen", COMBINATIONS, ids=" ".join)
def test_components_combine(
    crds: ControlPlane, system_namespace: str, tmp_path: Path, chosen: tuple[str, ...]
) -> None:
    documents = combined(tmp_path, chosen)
    apply(crds, documents)
    found = DeployedObjects.of(documents)
    (identity,) = {IDENTITIES[name] for name in chosen if name in IDENTITIES}
    assert found.cloud().edge_auth == identity
    found.edge()
    assert found.groups() == set(chosen) & set(groups())
    services = {name for kind, name in found.documents if kind == "Service"}
    assert services == {ACCOUNT} | ({"globalmanager-edge"} if "nodeport" in chosen else set())


@pytest.mark.parametrize("directory", ["base", *(f"overlays/{name}" for name in OVERLAYS)])
def test_the_api_server_accepts_what_is_rendered(
    crds: ControlPlane, system_namespace: str, directory: str
) -> None:
    documents = rendered(DEPLOY / directory)
    assert {each["kind"] for each in documents} >= {"Deployment", "DaemonSet", "NetworkPolicy"}
    apply(crds, documents)


def apply(crds: ControlPlane, documents: list[Object]) -> None:
    """On the server, which keeps nothing: what it has not accepted before, since combinations have
    most of their objects in common.
    """
    known = {json.dumps(each): each for each in documents}
    new = [each for text, each in known.items() if text not in ACCEPTED]
    if not new:
        return
    done = crds.kubectl("apply", "--dry-run=server", "-f", "-", documents=new)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(new)
    ACCEPTED.update(known)


def test_the_api_server_accepts_the_dashboard(crds: ControlPlane, system_namespace: str) -> None:
    """The other two are of the Prometheus operator, which is not here."""
    documents = {each["kind"]: each for each in rendered(DEPLOY / "monitoring")}
    assert documents.keys() == {
        *("ConfigMap", "ServiceMonitor", "PrometheusRule"),
        *("ClusterRole", "ClusterRoleBinding"),
    }
    dashboard = documents["ConfigMap"]
    crds.client.create(dashboard, dry_run=True)
    (text,) = dashboard["data"].values()
    assert json.loads(text)["panels"]


def test_a_node_publishes_the_edge_port_only() -> None:
    """REST asks nobody who he is; and the limits for each address need the edge's own."""
    documents = rendered(DEPLOY / "overlays" / "nodeport")
    services = [each for each in documents if each["kind"] == "Service"]
    (inner,) = (each["spec"] for each in services if each["metadata"]["name"] == "globalmanager")
    assert inner.get("type", "ClusterIP") == "ClusterIP"
    (outer,) = (each["spec"] for each in services if each["spec"] != inner)
    assert (outer["type"], outer["externalTrafficPolicy"]) == ("NodePort", "Local")
    assert outer["selector"] == inner["selector"]
    (port,) = outer["ports"]
    assert (port["targetPort"], port["nodePort"]) == ("edge", 30900)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_ports_probes_and_replicas_agree(overlay: str) -> None:
    documents = rendered(DEPLOY / "overlays" / overlay)
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
    (budget,) = (spec for (kind, _), spec in found.items() if kind == "PodDisruptionBudget")
    assert deployment["replicas"] >= 2
    assert 1 <= budget["minAvailable"] < deployment["replicas"]


SLOW_START_S: Final = 35.0  # seen on a KubeEdge node under load


@pytest.mark.parametrize("key", [("Deployment", ACCOUNT), (DAEMON_SET, LOCAL_CONTROLLER)])
def test_a_slow_start_is_not_taken_for_a_hang(key: tuple[str, str]) -> None:
    documents = DeployedObjects.of(rendered(DEPLOY / "overlays" / "kubeedge")).documents
    (container,) = documents[key]["spec"]["template"]["spec"]["containers"]
    startup = container["startupProbe"]
    assert startup["httpGet"] == container["livenessProbe"]["httpGet"]
    assert startup["failureThreshold"] * startup.get("periodSeconds", 10) >= 1.7 * SLOW_START_S


def test_no_container_of_the_cloud_may_be_root_or_write_its_image() -> None:
    for document in rendered(DEPLOY / "overlays" / "serviceaccount"):
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


def test_a_localcontroller_can_read_data_of_its_node() -> None:
    """Nothing of the node but its own state can it write."""
    paths = mounted_read_only(DEPLOY / "overlays" / "serviceaccount")
    assert paths == {"/data": "/rootfs/data"}


def test_on_kubeedge_nodes_a_localcontroller_needs_files_of_the_node_only() -> None:
    """An edgecore that restarts offline takes projected tokens away, and may remake volumes."""
    overlay = DEPLOY / "overlays" / "kubeedge"
    assert mounted_read_only(overlay) == {
        "/data": "/rootfs/data",
        "/etc/edgeai/ca": "/etc/edgeai/ca",
        "/etc/kubeedge/certs": "/etc/edgeai/node",
    }
    settings = DeployedObjects.of(rendered(overlay)).edge()
    assert settings.token_file is None
    assert settings.client_certificate == Path("/etc/edgeai/node/server.crt")
    assert settings.client_key == Path("/etc/edgeai/node/server.key")
    assert settings.ca_file == Path("/etc/edgeai/ca/ca.crt")


def test_the_patch_of_the_documentation_mounts_another_directory(tmp_path: Path) -> None:
    page = (CHECKOUT / "docs" / "datasets.md").read_text(encoding="utf-8")
    patch = page.partition("```yaml\n# patches")[2].partition("```")[0]
    (tmp_path / "data.yaml").write_text(patch.partition("\n")[2])
    overlay = DEPLOY / "overlays" / "serviceaccount"
    write(tmp_path, resources=[overlay])
    kustomization = yaml.safe_load((tmp_path / "kustomization.yaml").read_text())
    kustomization["patches"] = [{"path": "data.yaml"}]
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    assert mounted_read_only(tmp_path) == {"/srv/images": "/rootfs/srv/images"}


def mounted_read_only(directory: Path) -> dict[str, str]:
    """Directories of the node, all but that of the ledger, and where its container has them."""
    (workload,) = (each for each in rendered(directory) if each["kind"] == DAEMON_SET)
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


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_programs_take_the_settings_that_they_are_given(overlay: str) -> None:
    found = DeployedObjects.of(rendered(DEPLOY / "overlays" / overlay))
    found.edge()
    is_mtls = overlay in ("mtls", "kubeedge")
    assert found.cloud().edge_auth == ("mtls" if is_mtls else "serviceaccount")
    assert found.groups() == set(groups())
