"""The chart on a real API server: all of it is accepted, and its parts agree with each other."""

import itertools
import json
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
from tests.cluster.deployed import DeployedObjects
from tests.cluster.helm import CHART

HOST: Final = {"edgeHost": "edge.example", "nodePort": 30900}
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
    crds: ControlPlane, system_namespace: str, tmp_path: Path, values: Object
) -> None:
    documents = helm.rendered(tmp_path, values, NAMESPACE)
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


def test_another_namespace_has_all_objects(tmp_path: Path) -> None:
    documents = helm.rendered(tmp_path, {"monitoring": True}, "farm")
    text = json.dumps([each for each in documents if each["kind"] != _DEFINITION])
    assert NAMESPACE not in text
    assert {each["metadata"].get("namespace", "farm") for each in documents} == {"farm"}


def test_monitoring_has_the_dashboard_and_the_alerts(tmp_path: Path) -> None:
    values = {"monitoring": True, "prometheus": "watch/prom"}
    found = DeployedObjects.of(helm.rendered(tmp_path, values, NAMESPACE)).documents
    (dashboard,) = found["ConfigMap", "edgeai-dashboard"]["data"].values()
    assert json.loads(dashboard)["panels"]
    rules = found["PrometheusRule", "edgeai"]["spec"]["groups"][0]["rules"]
    assert any("{{ $labels.pod }}" in each["annotations"]["summary"] for each in rules)
    (subject,) = found["ClusterRoleBinding", "edgeai-metrics-reader"]["subjects"]
    assert subject == {"kind": "ServiceAccount", "name": "prom", "namespace": "watch"}


def test_the_version_is_that_of_the_package() -> None:
    project = (CHECKOUT / "pyproject.toml").read_text()
    (version,) = [
        line.split('"')[1] for line in project.splitlines() if line.startswith("version = ")
    ]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)


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
def test_a_wrong_value_is_refused_by_name(tmp_path: Path, values: Object, where: str) -> None:
    done = helm.template(tmp_path, values, NAMESPACE)
    assert done.returncode != 0, "it is accepted"
    assert where in done.stderr
