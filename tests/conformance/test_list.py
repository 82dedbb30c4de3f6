"""Lists: pages, selectors, forms."""

from typing import Any

import pytest

from edgeai.cli.api import Object
from tests.conformance.clusters import AnyCluster
from tests.conformance.objects import (
    UNSERVED_NODE,
    bound_pod,
    pod,
    widget,
)
from tests.conformance.space import Space
from tests.support.client import Client

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PARTIAL = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


def names(page: Object) -> list[str]:
    return [item["metadata"]["name"] for item in page["items"]]


def labelled(name: str, **labels: str) -> Object:
    made = widget(name)
    made["metadata"]["labels"] = labels
    return made


def test_a_list_is_ordered_by_name_and_has_a_version(space: Space) -> None:
    for name in "cab":
        space.create("widgets", widget(name))
    page = space.page("widgets")
    assert (page["kind"], page["apiVersion"]) == ("WidgetList", "conformance.test/v1alpha1")
    assert names(page) == ["a", "b", "c"]
    versions = [int(item["metadata"]["resourceVersion"]) for item in page["items"]]
    assert int(page["metadata"]["resourceVersion"]) >= max(versions)


def test_an_empty_list_is_a_list(space: Space) -> None:
    assert space.page("widgets")["items"] == []


def test_a_list_of_a_namespace_that_is_not_there_is_empty(cluster: AnyCluster) -> None:
    page = cluster.client("GET", "/api/v1/namespaces/nowhere/configmaps").ok()
    assert page["items"] == []


def test_a_list_of_all_namespaces(space: Space) -> None:
    space.create("widgets", widget())
    page = space.client("GET", "/apis/conformance.test/v1alpha1/widgets").ok()
    found = [item["metadata"]["name"] for item in page["items"] if _is_in(space, item)]
    assert found == ["one"]


def _is_in(space: Space, item: Object) -> bool:
    return bool(item["metadata"]["namespace"] == space.name)


# Pages


def test_the_pages_of_a_list_are_complete_and_ordered(space: Space) -> None:
    for index in range(7):
        space.create("widgets", widget(f"w{index}"))
    seen: list[str] = []
    remaining: list[int | None] = []
    query: dict[str, str] = {}
    while True:
        page = space.page("widgets", limit=3, **query)
        seen += names(page)
        remaining.append(page["metadata"].get("remainingItemCount"))
        if not (token := page["metadata"].get("continue")):
            break
        query = {"continue": token}
    assert seen == [f"w{index}" for index in range(7)]
    assert remaining == [4, 1, None]


def test_later_pages_have_the_version_of_the_first(space: Space) -> None:
    for index in range(3):
        space.create("widgets", widget(f"w{index}"))
    first = space.page("widgets", limit=2)
    space.create("widgets", widget("a-late"))
    second = space.page("widgets", limit=2, **{"continue": first["metadata"]["continue"]})
    version = second["metadata"]["resourceVersion"]
    assert version == first["metadata"]["resourceVersion"]
    assert names(first) + names(second) == ["w0", "w1", "w2"]
    with space.watch("widgets", resourceVersion=version) as watch:
        assert watch.take(1) == [("ADDED", "a-late")]


def test_with_a_selector_nobody_knows_how_many_remain(space: Space) -> None:
    for index in range(3):
        space.create("widgets", labelled(f"w{index}", a="b"))
    page = space.page("widgets", limit=1, labelSelector="a=b")
    assert "continue" in page["metadata"]
    assert "remainingItemCount" not in page["metadata"]


def test_a_limit_that_suffices_has_no_next_page(space: Space) -> None:
    space.create("widgets", widget())
    assert not space.page("widgets", limit=1)["metadata"].get("continue")


def test_a_token_that_is_none_is_refused(space: Space) -> None:
    query: dict[str, Any] = {"limit": 1, "continue": "garbage"}
    answer = space.client("GET", space.path("widgets"), **query)
    assert answer.refusal == (400, "BadRequest")
    assert "continue" in answer.body["message"]


# Selectors

LABELS: dict[str, tuple[str, list[str]]] = {
    "equality": ("tier=edge", ["a", "b"]),
    "double equality": ("tier==edge", ["a", "b"]),
    "inequality": ("tier!=edge", ["c", "d"]),
    "existence": ("tier", ["a", "b", "c"]),
    "absence": ("!tier", ["d"]),
    "set": ("tier in (cloud, far)", ["c"]),
    "excluded set": ("tier notin (edge)", ["c", "d"]),
    "both": ("tier=edge,color=red", ["a"]),
    "set and equality": ("tier in (edge,cloud),color!=red", ["b", "c"]),
    "qualified key": ("edgeai.io/role=x", ["d"]),
    "nothing": ("tier=none", []),
    "no selector": ("", ["a", "b", "c", "d"]),
}


@pytest.mark.parametrize("case", LABELS)
def test_a_label_selector(space: Space, case: str) -> None:
    selector, expected = LABELS[case]
    for made in (
        labelled("a", tier="edge", color="red"),
        labelled("b", tier="edge", color="green"),
        labelled("c", tier="cloud"),
        labelled("d", **{"edgeai.io/role": "x"}),
    ):
        space.create("widgets", made)
    assert names(space.page("widgets", labelSelector=selector)) == expected


FIELDS: dict[str, tuple[str, list[str]]] = {
    "name": ("metadata.name=a", ["a"]),
    "not a name": ("metadata.name!=a", ["b", "c"]),
    "node": (f"spec.nodeName={UNSERVED_NODE}", ["b"]),
    "no node": ("spec.nodeName=", ["a", "c"]),
    "phase": ("status.phase=Failed", ["c"]),
    "restart policy": ("spec.restartPolicy=Never", ["a"]),
    "both": (f"spec.nodeName!={UNSERVED_NODE},status.phase=Pending", ["a"]),
}


@pytest.mark.parametrize("case", FIELDS)
def test_a_field_selector(space: Space, case: str) -> None:
    selector, expected = FIELDS[case]
    for made in (pod("a", restartPolicy="Never"), bound_pod("b"), pod("c")):
        space.create("pods", made)
    space.patch("pods", "c", {"status": {"phase": "Failed"}}, subresource="status").ok()
    assert names(space.page("pods", fieldSelector=selector)) == expected


def test_a_custom_resource_is_found_by_its_name(space: Space) -> None:
    for name in "ab":
        space.create("widgets", widget(name))
    assert names(space.page("widgets", fieldSelector="metadata.name=b")) == ["b"]


BAD_QUERIES: dict[str, tuple[str, dict[str, str]]] = {
    "label selector": ("configmaps", {"labelSelector": "a in b"}),
    "field selector": ("configmaps", {"fieldSelector": "a"}),
    "unknown field": ("pods", {"fieldSelector": "spec.color=red"}),
    "unknown field of a custom resource": ("widgets", {"fieldSelector": "spec.size=3"}),
}


@pytest.mark.parametrize("case", BAD_QUERIES)
def test_a_bad_query_is_refused(space: Space, case: str) -> None:
    plural, query = BAD_QUERIES[case]
    answer = space.client("GET", space.path(plural), **query)
    assert answer.refusal == (400, "BadRequest")


# Forms


@pytest.fixture
def client(cluster: AnyCluster) -> Client:
    return cluster.client


def test_a_table_has_the_columns_of_the_crd(space: Space) -> None:
    space.create("widgets", widget())
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    space.patch("widgets", "one", {"status": ready}, subresource="status").ok()
    table = space.client("GET", space.path("widgets"), accept=TABLE).ok()
    assert table["kind"] == "Table"
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Size", "Ready"]
    (row,) = table["rows"]
    assert row["cells"] == ["one", 3, "True"]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert row["object"]["metadata"]["name"] == "one"


def test_a_table_of_pods_tells_their_state(space: Space) -> None:
    space.create("pods", bound_pod())
    table = space.client("GET", space.path("pods"), accept=TABLE).ok()
    columns = [column["name"] for column in table["columnDefinitions"]]
    assert columns[:5] == ["Name", "Ready", "Status", "Restarts", "Age"]
    assert table["rows"][0]["cells"][:3] == ["one", "0/1", "Pending"]


def test_one_object_as_a_table(space: Space) -> None:
    space.create("widgets", widget())
    table = space.client("GET", space.path("widgets", "one"), accept=TABLE).ok()
    assert [row["cells"][0] for row in table["rows"]] == ["one"]


def test_metadata_alone_can_be_listed(space: Space) -> None:
    space.create("widgets", widget())
    body = space.client("GET", space.path("widgets"), accept=PARTIAL).ok()
    assert body["kind"] == "PartialObjectMetadataList"
    (item,) = body["items"]
    assert item["metadata"]["name"] == "one"
    assert "spec" not in item
