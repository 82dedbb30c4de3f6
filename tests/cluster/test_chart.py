"""The chart on a real API server: all of it is accepted, and its parts agree with each other."""

import itertools
import json
import runpy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest
import yaml

from edgeai.cli.api import Object
from globalmanager.manifests.rbac import ACCOUNT, NAMESPACE, groups
from tests.cluster import helm
from tests.cluster.conftest import CHECKOUT
from tests.cluster.controlplane import ControlPlane
from tests.cluster.deployed import DAEMON_SET, LOCAL_CONTROLLER, DeployedObjects
from tests.cluster.helm import CHART

HOST: Final = {"edgeHost": "edge.example", "nodePort": 30900}
KUBEEDGE: Final = {"edgeAuth": "kubeedge", **HOST}
DIGEST: Final = "sha256:" + "0" * 64
ACCEPTED: Final[set[str]] = set()
"""Objects as JSON, by the control plane of this run."""
_DEFINITION: Final = "CustomResourceDefinition"
_OF_THE_OPERATOR: Final = "monitoring.coreos.com/v1"


def _subsets(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for size in range(1, len(names) + 1):
        yield from itertools.combinations(names, size)


VALUES: Final[dict[str, Object]] = {
    "defaults": {},
    **{
        f"{identity} {way}": {"edgeAuth": identity, **host}
        for identity in ("serviceaccount", "mtls", "token", "kubeedge")
        for way, host in (("Service", {}), ("port of a node", HOST))
    },
    **{" ".join(chosen): {"groups": [*chosen]} for chosen in _subsets(groups())},
    "images": {
        "registry": "registry.example:5000/edgeai",
        "tag": "0.2.0",
        "digests": {"localcontroller": DIGEST},
        "imagePullSecrets": ["registry"],
    },
    "one replica": {"replicas": 1},
    "half of the edges at a time": {"maxUnavailable": "50%"},
    "two edges at a time": {"maxUnavailable": 2},
    "an address of IPv6": {"edgeHost": "fd00::1", "nodePort": 31000},
    "definitions of Kubeflow's operator": {"foreignDefinitions": ["kubeflow.org"]},
    "pods of KubeEdge's MetaServer": {"podsApi": "http://127.0.0.1:10550"},
    "other directories": {"dataDirectories": ["/data", "/srv/images"]},
    "flags": {"flags": {"globalmanager": ["--gang-scheduler-name=volcano"]}},
    "resources": {"resources": {"globalmanager": {"limits": {"memory": "2Gi", "cpu": 2}}}},
    "monitoring": {"monitoring": True, "prometheus": "watch/prom"},
}


def test_helm_finds_no_fault() -> None:
    done = helm.helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout


def test_helm_reads_the_chart_of_the_release(tmp_path: Path) -> None:
    packed = tmp_path / "edgeai.tgz"
    packed.write_bytes(runpy.run_path(str(CHECKOUT / "deploy" / "dist.py"))["chart"]())
    done = helm.helm("template", helm.RELEASE, str(packed), "--namespace", NAMESPACE)
    assert done.returncode == 0, done.stderr
    own = helm.helm("template", helm.RELEASE, str(CHART), "--namespace", NAMESPACE)
    assert done.stdout == own.stdout


def test_each_value_is_described_and_has_a_default() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    assert schema.keys() - {"global"} == defaults.keys()
    assert all(each["description"] for each in schema.values())


def test_each_value_is_in_a_set() -> None:
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    assert defaults.keys() == {key for values in VALUES.values() for key in values}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_the_api_server_knows_each_field_and_the_programs_each_setting(
    crds: ControlPlane, system_namespace: str, values: Object
) -> None:
    documents = helm.rendered(values)
    apply(crds, documents)
    found = DeployedObjects.of(documents)
    identity = values.get("edgeAuth", "serviceaccount")
    assert found.cloud().edge_auth == ("mtls" if identity == "kubeedge" else identity)
    edge = found.edge()
    host = values.get("edgeHost", "globalmanager.edgeai-system.svc")
    port = values.get("nodePort", 9000)
    assert edge.global_manager == f"wss://{f'[{host}]' if ':' in host else host}:{port}"
    assert found.groups() == set(values.get("groups", groups()))
    services = {name for kind, name in found.documents if kind == "Service"}
    assert services == {ACCOUNT} | ({"globalmanager-edge"} if "nodePort" in values else set())
    defined = {
        each["spec"]["group"]: each["metadata"]["annotations"]["helm.sh/resource-policy"]
        for (kind, _), each in found.documents.items()
        if kind == _DEFINITION
    }
    foreign = values.get("foreignDefinitions", ())
    assert defined == dict.fromkeys(found.groups() - {*foreign}, "keep")


def apply(plane: ControlPlane, documents: list[Object]) -> None:
    """On the server, which keeps nothing: what it has not accepted before, since value sets have
    most of their objects in common.
    """
    new = {json.dumps(each): each for each in documents if each["apiVersion"] != _OF_THE_OPERATOR}
    for text in ACCEPTED & new.keys():
        del new[text]
    if not new:
        return
    flags = ("--server-side", "--dry-run=server", "--validate=strict", "--force-conflicts")
    done = plane.kubectl("apply", *flags, "-f", "-", documents=[*new.values()])
    assert done.returncode == 0, done.stderr
    assert "unknown field" not in done.stderr
    assert len(done.stdout.splitlines()) == len(new)
    ACCEPTED.update(new)


def test_another_namespace_has_all_objects() -> None:
    documents = helm.rendered({"monitoring": True}, "farm")
    text = json.dumps([each for each in documents if each["kind"] != _DEFINITION])
    assert NAMESPACE not in text
    deployment = DeployedObjects.of(documents).documents["Deployment", ACCOUNT]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert "--system-namespace=$(POD_NAMESPACE)" in container["args"]
    assert {each["metadata"].get("namespace", "farm") for each in documents} == {"farm"}


def test_monitoring_has_the_dashboard_and_the_alerts() -> None:
    values = {"monitoring": True, "prometheus": "watch/prom"}
    found = DeployedObjects.of(helm.rendered(values)).documents
    (dashboard,) = found["ConfigMap", "edgeai-dashboard"]["data"].values()
    assert json.loads(dashboard)["panels"]
    rules = found["PrometheusRule", "edgeai"]["spec"]["groups"][0]["rules"]
    assert any("{{ $labels.pod }}" in each["annotations"]["summary"] for each in rules)
    (subject,) = found["ClusterRoleBinding", "edgeai-metrics-reader"]["subjects"]
    assert subject == {"kind": "ServiceAccount", "name": "prom", "namespace": "watch"}


def test_the_chart_has_no_key() -> None:
    """Whoever reads the record of a release reads all of it."""
    assert "Secret" not in {each["kind"] for each in helm.rendered()}
    templates = [file for file in (CHART / "templates").rglob("*") if file.is_file()]
    assert not any("genCA" in file.read_text() for file in templates)


def test_another_address_of_the_globalmanager_replaces_the_edges_pods() -> None:
    """They have it in their environment, from a ConfigMap."""
    specs = [
        DeployedObjects.of(helm.rendered(values)).documents[DAEMON_SET, LOCAL_CONTROLLER]["spec"]
        for values in ({}, HOST)
    ]
    assert specs[0]["template"] != specs[1]["template"]


def test_a_node_publishes_the_edge_port_only() -> None:
    """REST asks nobody who he is; and the limits for each address need the edge's own."""
    documents = helm.rendered(HOST)
    services = [each for each in documents if each["kind"] == "Service"]
    (inner,) = (each["spec"] for each in services if each["metadata"]["name"] == "globalmanager")
    assert inner.get("type", "ClusterIP") == "ClusterIP"
    (outer,) = (each["spec"] for each in services if each["spec"] != inner)
    assert (outer["type"], outer["externalTrafficPolicy"]) == ("NodePort", "Local")
    assert outer["selector"] == inner["selector"]
    (port,) = outer["ports"]
    assert (port["targetPort"], port["nodePort"]) == ("edge", 30900)


def test_ports_probes_and_replicas_agree() -> None:
    documents = helm.rendered()
    (deployment,), (policy,), (budget,) = (
        [each["spec"] for each in documents if each["kind"] == kind]
        for kind in ("Deployment", "NetworkPolicy", "PodDisruptionBudget")
    )
    (container,) = deployment["template"]["spec"]["containers"]
    ports = {each["containerPort"] for each in container["ports"]}
    flags = dict(flag.split("=", 1) for flag in container["args"] if "=" in flag)
    addresses = ("--edge-address", "--http-address")
    listened = {int(flags[name].rpartition(":")[2]) for name in addresses}
    rules = {port["port"]: rule for rule in policy["ingress"] for port in rule["ports"]}
    assert listened == ports == rules.keys()
    rest = int(flags["--http-address"].rpartition(":")[2])
    assert {"podSelector": {}} in rules[rest]["from"]
    assert "from" not in rules[(ports - {rest}).pop()]
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert deployment["replicas"] >= 2
    assert 1 <= budget["minAvailable"] < deployment["replicas"]


SLOW_START_S: Final = 35.0  # seen on a KubeEdge node under load


@pytest.mark.parametrize("key", [("Deployment", ACCOUNT), (DAEMON_SET, LOCAL_CONTROLLER)])
def test_a_slow_start_is_not_taken_for_a_hang(key: tuple[str, str]) -> None:
    documents = DeployedObjects.of(helm.rendered(KUBEEDGE)).documents
    (container,) = documents[key]["spec"]["template"]["spec"]["containers"]
    startup = container["startupProbe"]
    assert startup["httpGet"] == container["livenessProbe"]["httpGet"]
    assert startup["failureThreshold"] * startup.get("periodSeconds", 10) >= 1.7 * SLOW_START_S


def test_no_container_of_the_cloud_may_be_root_or_write_its_image() -> None:
    for document in helm.rendered():
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
    assert mounted_read_only({}) == {"/data": "/rootfs/data"}
    values = {"dataDirectories": ["/data", "/srv/images"]}
    more = {"/srv/images": "/rootfs/srv/images"}
    assert mounted_read_only(values) == {"/data": "/rootfs/data", **more}


def test_on_kubeedge_nodes_a_localcontroller_needs_files_of_the_node_only() -> None:
    """An edgecore that restarts offline takes projected tokens away, and may remake volumes."""
    assert mounted_read_only(KUBEEDGE) == {
        "/data": "/rootfs/data",
        "/etc/edgeai/ca": "/etc/edgeai/ca",
        "/etc/kubeedge/certs": "/etc/edgeai/node",
    }
    settings = DeployedObjects.of(helm.rendered(KUBEEDGE)).edge()
    assert settings.token_file is None
    assert settings.client_certificate == Path("/etc/edgeai/node/server.crt")
    assert settings.client_key == Path("/etc/edgeai/node/server.key")
    assert settings.ca_file == Path("/etc/edgeai/ca/ca.crt")


def mounted_read_only(values: Object) -> dict[str, str]:
    """Directories of the node, all but that of the ledger, and where its container has them."""
    (workload,) = (each for each in helm.rendered(values) if each["kind"] == DAEMON_SET)
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


def test_the_file_for_kubectl_is_the_chart_with_its_defaults() -> None:
    """When this fails: make crds"""
    assert (CHART.parent / "edgeai.yaml").read_text(encoding="utf-8") == helm.for_kubectl()


# What is wrong -> (values, where the message says that it is).
WRONG: Final[dict[str, tuple[Object, str]]] = {
    "unknown value": ({"replica": 3}, "additional properties 'replica' not allowed"),
    "namespace, which is the release's": ({"namespace": "a"}, "'namespace' not allowed"),
    "value of the old installer": ({"components": ["kubeedge"]}, "'components' not allowed"),
    "unknown role": ({"digests": {"globalmanger": DIGEST}}, "at '/digests'"),
    "unknown resource": (
        {"resources": {"globalmanager": {"limits": {"memry": "1Gi"}}}},
        "at '/resources/globalmanager/limits'",
    ),
    "number for text": ({"tag": 1.1}, "at '/tag'"),
    "text for number": ({"replicas": "many"}, "at '/replicas'"),
    "text for boolean": ({"monitoring": "yes please"}, "at '/monitoring'"),
    "no replicas": ({"replicas": 0}, "at '/replicas'"),
    "many replicas": ({"replicas": 10}, "at '/replicas'"),
    "registry with a scheme": ({"registry": "https://r.example"}, "at '/registry'"),
    "tag with a digest": ({"tag": f"1@{DIGEST}"}, "at '/tag'"),
    "short digest": ({"digests": {"globalmanager": "sha256:12"}}, "at '/digests/globalmanager'"),
    "no groups": ({"groups": []}, "at '/groups'"),
    "unknown group": ({"groups": ["edgeai.oi"]}, "at '/groups/0'"),
    "group twice": ({"groups": ["sedna.io", "sedna.io"]}, "at '/groups'"),
    "unknown identity": ({"edgeAuth": "password"}, "at '/edgeAuth'"),
    "no edges at a time": ({"maxUnavailable": "0%"}, "at '/maxUnavailable'"),
    "port without a host": ({"nodePort": 30900}, "at '/edgeHost'"),
    "low port": ({"nodePort": 80, "edgeHost": "a"}, "at '/nodePort'"),
    "host with a port": ({"edgeHost": "a:9000"}, "at '/edgeHost'"),
    "host with a scheme": ({"edgeHost": "wss://a"}, "at '/edgeHost'"),
    "quantity": (
        {"resources": {"globalmanager": {"requests": {"cpu": "much"}}}},
        "at '/resources/globalmanager/requests/cpu'",
    ),
    "account without a namespace": ({"prometheus": "prometheus"}, "at '/prometheus'"),
    "pods API without a scheme": ({"podsApi": "127.0.0.1:10550"}, "at '/podsApi'"),
    "directory that is not absolute": ({"dataDirectories": ["data"]}, "at '/dataDirectories/0'"),
    "flag without dashes": ({"flags": {"globalmanager": ["x"]}}, "at '/flags/globalmanager/0'"),
}


@pytest.mark.parametrize(("values", "where"), WRONG.values(), ids=WRONG)
def test_a_wrong_value_is_refused_by_name(values: Object, where: str) -> None:
    done = helm.template(values)
    assert done.returncode != 0, "it is accepted"
    assert where in done.stderr
