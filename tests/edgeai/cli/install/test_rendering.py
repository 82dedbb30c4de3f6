"""What `edgeai install` renders is what `kubectl kustomize` renders, object by object."""

import itertools
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from edgeai.api.resources import Object
from edgeai.cli.install import rendering
from edgeai.cli.install.credentials import host_of
from edgeai.cli.install.kustomization import build
from edgeai.cli.install.values import COMPONENTS, GROUPS, values_of
from tests.cluster.kustomize import DEPLOY, component, rendered, write

KUSTOMIZATIONS: Final = sorted(path.parent for path in DEPLOY.glob("**/kustomization.yaml"))
HOST: Final = "edge.example.org"
IDENTITIES: Final = ("serviceaccount", "mtls", "token")


def by_name(objects: Iterable[Object]) -> dict[tuple[str, str, str], Object]:
    return {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each
        for each in objects
    }


def assert_same(ours: list[Object], oracle: list[Object]) -> None:
    assert len(by_name(ours)) == len(ours)
    assert by_name(ours) == by_name(oracle)


@pytest.mark.parametrize(
    "directory",
    [each for each in KUSTOMIZATIONS if each.parent.name != "components"],
    ids=lambda path: str(path.relative_to(DEPLOY)),
)
def test_a_kustomization_is_read_as_kubectl_reads_it(directory: Path) -> None:
    assert_same(build(directory), rendered(directory))


COMBINATIONS: Final = [
    *itertools.product([GROUPS], IDENTITIES, [(), ("nodeport",)]),
    *((GROUPS, "", others) for others in [("kubeedge",), COMPONENTS, ("nodeport", "kubeedge")]),
    *(((group,), "", ()) for group in GROUPS),
]


def test_every_component_is_compared() -> None:
    known = {path.name for path in (DEPLOY / "components").iterdir()}
    assert known == {*GROUPS, *IDENTITIES, *COMPONENTS}


@pytest.mark.parametrize(("groups", "identity", "others"), COMBINATIONS)
def test_components_render_as_kubectl_renders_them(
    tmp_path: Path, groups: tuple[str, ...], identity: str, others: tuple[str, ...]
) -> None:
    given: dict[str, Any] = {"groups": groups, "edgeAuth": identity, "components": others}
    patches = []
    if "nodeport" in others:
        given["edgeHost"] = HOST
        patches.append(_replace("ConfigMap", "/data/globalManager", f"wss://{HOST}:30900"))
    way = [] if "kubeedge" in others else [identity or "serviceaccount"]
    overlay(tmp_path, [*groups, *way, *others], patches=patches)
    assert_same(rendering.render(values_of(given)), rendered(tmp_path))


def test_values_render_as_a_kustomization_with_the_same_fields(tmp_path: Path) -> None:
    digest = "sha256:" + "0" * 64
    given = {
        "namespace": "farm",
        "registry": "registry.example:5000/edgeai",
        "tag": "0.2.0",
        "digests": {"localcontroller": digest},
        "replicas": 3,
        "nodePort": 31000,
        "edgeHost": "192.0.2.7",
        "resources": {"globalmanager": {"limits": {"memory": "2Gi", "cpu": 2}}},
        "podsApi": "http://127.0.0.1:10550",
        "monitoring": True,
        "prometheus": "watch/prom",
    }
    name = "registry.example:5000/edgeai/"
    images = [
        {
            "name": "docker.io/edgeai/globalmanager",
            "newName": f"{name}globalmanager",
            "newTag": "0.2.0",
        },
        {
            "name": "docker.io/edgeai/localcontroller",
            "newName": f"{name}localcontroller",
            "digest": digest,
        },
    ]
    limits = "/spec/template/spec/containers/0/resources/limits"
    pods_api = {"name": "EDGEAI_PODS_API", "value": "http://127.0.0.1:10550"}
    subject = "/subjects/0"
    metrics = "edgeai-metrics-reader"
    roles = ["edgeai-globalmanager", *(f"edgeai-globalmanager-{group}" for group in GROUPS)]
    patches = [
        _replace("ConfigMap", "/data/globalManager", "wss://192.0.2.7:31000"),
        _replace("Service", "/spec/ports/0/nodePort", 31000, name="globalmanager-edge"),
        _replace("Deployment", limits, {"memory": "2Gi", "cpu": 2}, name="globalmanager"),
        _add("DaemonSet", "/spec/template/spec/containers/0/env/-", pods_api),
        # kustomize moves the ServiceAccount, and leaves the subjects of bindings behind.
        _replace("RoleBinding", f"{subject}/namespace", "farm", name=roles[0]),
        *(
            _replace("ClusterRoleBinding", f"{subject}/namespace", "farm", name=role)
            for role in roles
        ),
        *(
            _replace("FlowSchema", f"/spec/rules/0{subject}/serviceAccount/namespace", "farm", name)
            for name in ("edgeai-globalmanager", "edgeai-globalmanager-leases")
        ),
        _replace("ClusterRoleBinding", f"{subject}/name", "prom", name=metrics),
        _replace("ClusterRoleBinding", f"{subject}/namespace", "watch", name=metrics),
    ]
    overlay(
        tmp_path,
        [*GROUPS, "serviceaccount", "nodeport"],
        resources=[DEPLOY / "base", DEPLOY / "monitoring"],
        namespace="farm",
        images=images,
        replicas=[{"name": "globalmanager", "count": 3}],
        patches=patches,
    )
    oracle = rendered(tmp_path)
    for document in oracle:
        # kustomize does not know that these kinds have no namespace; the API server drops it.
        if document["apiVersion"].startswith("flowcontrol."):
            del document["metadata"]["namespace"]
    assert_same(rendering.render(values_of(given)), oracle)


def _replace(
    kind: str, path: str, value: Any, name: str = "localcontroller", *, op: str = "replace"
) -> Object:
    patch = yaml.safe_dump([{"op": op, "path": path, "value": value}])
    return {"target": {"kind": kind, "name": name}, "patch": patch}


_add: Final = partial(_replace, op="add")


def overlay(
    directory: Path,
    names: list[str],
    *,
    resources: Iterable[Path] = (DEPLOY / "base",),
    **more: Any,
) -> None:
    """A kustomization as an administrator would write it."""
    write(directory, resources=resources, components=[*map(component, names)])
    path = directory / "kustomization.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | more))


# ---- what no kustomization says -----------------------------------------------------------------


def test_the_definitions_are_those_of_the_groups() -> None:
    found = rendering.definitions(values_of({"groups": ["sedna.io", "kubeflow.org"]}))
    files = [*DEPLOY.glob("crds/sedna.io_*"), *DEPLOY.glob("crds/kubeflow.org_*")]
    assert by_name(found) == by_name(yaml.safe_load(path.read_text()) for path in files)


def test_one_globalmanager_has_no_budget_that_holds_the_drain_of_its_node() -> None:
    kinds = {each["kind"] for each in rendering.render(values_of({"replicas": 1}))}
    assert "PodDisruptionBudget" not in kinds
    assert "Deployment" in kinds


def test_an_address_of_ipv6_stands_in_brackets() -> None:
    objects = rendering.render(values_of({"edgeHost": "fd00::1", "nodePort": 30900}))
    (url,) = (
        each["data"]["globalManager"]
        for each in objects
        if (each["kind"], each["metadata"]["name"]) == ("ConfigMap", "localcontroller")
    )
    assert url == "wss://[fd00::1]:30900"
    assert host_of(objects) == "fd00::1"


def test_an_object_comes_after_what_it_needs() -> None:
    chosen = values_of({"monitoring": True})
    objects = rendering.in_order([*rendering.render(chosen), *rendering.definitions(chosen)])
    kinds = list(dict.fromkeys(each["kind"] for each in objects))
    assert kinds[:2] == ["Namespace", "CustomResourceDefinition"]
    assert kinds[-2:] == ["Deployment", "DaemonSet"]
    assert kinds.index("ServiceAccount") < kinds.index("ClusterRoleBinding")
