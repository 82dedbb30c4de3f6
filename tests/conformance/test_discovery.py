"""What the API says about itself."""

import pytest

from edgeai.cli.api import Object
from tests.conformance.clusters import AnyCluster
from tests.conformance.objects import GROUP
from tests.support.client import Client


@pytest.fixture
def client(cluster: AnyCluster) -> Client:
    return cluster.client


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
def test_health_is_a_word(client: Client, path: str) -> None:
    answer = client("GET", path)
    assert (answer.status, answer.body) == (200, "ok")


def test_the_version_is_told(client: Client) -> None:
    assert client("GET", "/version").ok()["gitVersion"].startswith("v")


def test_the_core_group_has_one_version(client: Client) -> None:
    body = client("GET", "/api").ok()
    assert (body["kind"], body["versions"]) == ("APIVersions", ["v1"])


def test_a_group_names_its_versions_the_preferred_one_first(client: Client) -> None:
    body = client("GET", f"/apis/{GROUP}").ok()
    version = {"groupVersion": f"{GROUP}/v1alpha1", "version": "v1alpha1"}
    assert (body["kind"], body["name"]) == ("APIGroup", GROUP)
    assert (body["versions"], body["preferredVersion"]) == ([version], version)


def test_all_groups_are_listed_but_the_core_one(client: Client) -> None:
    groups = {group["name"] for group in client("GET", "/apis").ok()["groups"]}
    assert {"apps", "coordination.k8s.io", GROUP, "edgeai.io", "sedna.io"} <= groups
    assert "" not in groups


BUILT_IN: dict[str, tuple[str, Object]] = {
    "pods": ("/api/v1", {"kind": "Pod", "namespaced": True, "shortNames": ["po"]}),
    "pods/status": ("/api/v1", {"kind": "Pod", "namespaced": True}),
    "pods/log": ("/api/v1", {"kind": "Pod", "verbs": ["get"]}),
    "nodes": ("/api/v1", {"kind": "Node", "namespaced": False, "shortNames": ["no"]}),
    "namespaces": ("/api/v1", {"kind": "Namespace", "namespaced": False}),
    "configmaps": ("/api/v1", {"kind": "ConfigMap", "shortNames": ["cm"]}),
    "events": ("/api/v1", {"kind": "Event"}),
    "deployments": ("/apis/apps/v1", {"kind": "Deployment", "categories": ["all"]}),
    "deployments/scale": ("/apis/apps/v1", {"kind": "Scale", "group": "autoscaling"}),
    "leases": ("/apis/coordination.k8s.io/v1", {"kind": "Lease"}),
    "widgets": (
        f"/apis/{GROUP}/v1alpha1",
        {"kind": "Widget", "singularName": "widget", "shortNames": ["wix"], "namespaced": True},
    ),
    "widgets/status": (f"/apis/{GROUP}/v1alpha1", {"kind": "Widget"}),
    "widgets/scale": (f"/apis/{GROUP}/v1alpha1", {"kind": "Scale", "group": "autoscaling"}),
}


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_resource_is_described(client: Client, name: str) -> None:
    path, expected = BUILT_IN[name]
    entries = {entry["name"]: entry for entry in client("GET", path).ok()["resources"]}
    assert {key: entries[name].get(key) for key in expected} == expected


@pytest.mark.parametrize("name", ["pods", "configmaps", "widgets"])
def test_a_resource_names_its_verbs(client: Client, name: str) -> None:
    path, _ = BUILT_IN[name]
    entries = {entry["name"]: entry for entry in client("GET", path).ok()["resources"]}
    verbs = "create delete get list patch update watch"
    assert {*verbs.split()} <= {*entries[name]["verbs"]}


@pytest.mark.parametrize(
    "path", [f"/apis/{GROUP}/v9", "/apis/nowhere.test", "/apis/nowhere.test/v1", "/api/v9"]
)
def test_what_is_not_served_is_not_found(client: Client, path: str) -> None:
    assert client("GET", path).status == 404


def test_every_document_of_the_openapi_index_is_served(cluster: AnyCluster) -> None:
    index = cluster.client("GET", "/openapi/v3").ok()["paths"]
    assert f"apis/{GROUP}/v1alpha1" in index
    for entry in index.values():
        document = cluster.client("GET", entry["serverRelativeURL"]).ok()
        assert document["openapi"].startswith("3.0")
