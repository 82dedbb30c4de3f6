"""Garbage collection: what goes with its owner, with its namespace, with its CRD."""

from typing import Any

import pytest

from localcluster import errors
from localcluster.collector import Collector
from localcluster.resources import (
    CONFIGMAPS,
    CUSTOMRESOURCEDEFINITIONS,
    EVENTS,
    NAMESPACES,
    PODS,
    Object,
    Resource,
)
from localcluster.store import Store
from tests.localcluster.conftest import configmap, pod, widget, widget_crd


@pytest.fixture
def collector(store: Store) -> Collector:
    """Follows the store; the tests call `settle` where the task would wake up."""
    collector = Collector(store)
    store.listen(collector.note)
    return collector


def owned_by(*owners: Object, **reference: Any) -> list[Object]:
    return [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            **reference,
        }
        for owner in owners
    ]


def exists(store: Store, resource: Resource, name: str, namespace: str = "default") -> bool:
    try:
        store.get(resource, namespace, name)
    except errors.NotFound:
        return False
    return True


def test_dependents_go_after_their_owner_in_the_background(
    store: Store, collector: Collector
) -> None:
    owner = store.create(CONFIGMAPS, configmap("owner"))
    child = store.create(CONFIGMAPS, configmap("child", ownerReferences=owned_by(owner)))
    store.create(CONFIGMAPS, configmap("grandchild", ownerReferences=owned_by(child)))
    store.delete(CONFIGMAPS, "default", "owner")
    assert exists(store, CONFIGMAPS, "child")
    assert collector.settle()
    assert store.list(CONFIGMAPS).items == []


def test_an_owner_deleted_in_the_foreground_waits_for_those_that_block_it(
    store: Store, collector: Collector
) -> None:
    owner = store.create(CONFIGMAPS, configmap("owner"))
    references = owned_by(owner, blockOwnerDeletion=True)
    held = configmap("held", ownerReferences=references, finalizers=["test/hold"])
    store.create(CONFIGMAPS, held)
    store.delete(CONFIGMAPS, "default", "owner", propagation="Foreground")
    collector.settle()
    assert "deletionTimestamp" in store.get(CONFIGMAPS, "default", "held")["metadata"]
    assert exists(store, CONFIGMAPS, "owner")
    store.patch(CONFIGMAPS, "default", "held", {"metadata": {"finalizers": None}})
    collector.settle()
    assert not exists(store, CONFIGMAPS, "owner")


def test_a_dependent_that_comes_while_its_owner_waits_in_the_foreground_goes_too(
    store: Store, collector: Collector
) -> None:
    owner = store.create(CONFIGMAPS, configmap("owner"))
    references = owned_by(owner, blockOwnerDeletion=True)
    held = configmap("held", ownerReferences=references, finalizers=["test/hold"])
    store.create(CONFIGMAPS, held)
    store.delete(CONFIGMAPS, "default", "owner", propagation="Foreground")
    collector.settle()
    store.create(CONFIGMAPS, configmap("late", ownerReferences=references))
    collector.settle()
    assert not exists(store, CONFIGMAPS, "late")


def test_an_owner_deleted_in_the_foreground_does_not_wait_for_others(
    store: Store, collector: Collector
) -> None:
    owner = store.create(CONFIGMAPS, configmap("owner"))
    held = configmap("held", ownerReferences=owned_by(owner), finalizers=["test/hold"])
    store.create(CONFIGMAPS, held)
    store.delete(CONFIGMAPS, "default", "owner", propagation="Foreground")
    collector.settle()
    assert not exists(store, CONFIGMAPS, "owner")


def test_orphans_stay_without_a_reference(store: Store, collector: Collector) -> None:
    owner = store.create(CONFIGMAPS, configmap("owner"))
    store.create(CONFIGMAPS, configmap("child", ownerReferences=owned_by(owner)))
    store.delete(CONFIGMAPS, "default", "owner", propagation="Orphan")
    collector.settle()
    assert not exists(store, CONFIGMAPS, "owner")
    assert store.get(CONFIGMAPS, "default", "child")["metadata"]["ownerReferences"] == []


def test_an_object_stays_while_one_owner_is_left(store: Store, collector: Collector) -> None:
    first, second = (store.create(CONFIGMAPS, configmap(name)) for name in ("first", "second"))
    store.create(CONFIGMAPS, configmap("child", ownerReferences=owned_by(first, second)))
    store.delete(CONFIGMAPS, "default", "first")
    collector.settle()
    child = store.get(CONFIGMAPS, "default", "child")
    assert [owner["name"] for owner in child["metadata"]["ownerReferences"]] == ["second"]


def test_an_object_whose_owner_is_gone_before_it_came_is_collected(
    store: Store, collector: Collector
) -> None:
    owner = store.create(CONFIGMAPS, configmap("owner"))
    store.delete(CONFIGMAPS, "default", "owner")
    store.create(CONFIGMAPS, configmap("owner"))  # the name again, but another uid
    store.create(CONFIGMAPS, configmap("late", ownerReferences=owned_by(owner)))
    collector.settle()
    assert not exists(store, CONFIGMAPS, "late")
    assert exists(store, CONFIGMAPS, "owner")


def test_an_owner_in_another_namespace_counts_as_absent(store: Store, collector: Collector) -> None:
    owner = store.create(CONFIGMAPS, configmap("owner", namespace="kube-system"))
    store.create(CONFIGMAPS, configmap("child", ownerReferences=owned_by(owner)))
    collector.settle()
    assert not exists(store, CONFIGMAPS, "child")


def test_a_pod_on_a_node_is_not_torn_away(store: Store, collector: Collector) -> None:
    owner = store.create(CONFIGMAPS, configmap("owner"))
    running = pod("worker", nodeName="edge-1")
    running["metadata"]["ownerReferences"] = owned_by(owner)
    store.create(PODS, running)
    store.delete(CONFIGMAPS, "default", "owner")
    collector.settle()
    assert store.get(PODS, "default", "worker")["metadata"]["deletionGracePeriodSeconds"] == 30


def test_a_namespace_goes_with_all_that_it_holds(store: Store, collector: Collector) -> None:
    store.create(NAMESPACES, {"metadata": {"name": "lab"}})
    store.create(CONFIGMAPS, configmap("a", namespace="lab"))
    held = configmap("held", namespace="lab", finalizers=["test/hold"])
    store.create(CONFIGMAPS, held)
    store.delete(NAMESPACES, "", "lab")
    collector.settle()
    namespace = store.get(NAMESPACES, "", "lab")
    assert namespace["status"]["phase"] == "Terminating"
    assert not exists(store, CONFIGMAPS, "a", "lab")
    with pytest.raises(errors.Forbidden, match="being terminated"):
        store.create(CONFIGMAPS, configmap("b", namespace="lab"))
    store.patch(CONFIGMAPS, "lab", "held", {"metadata": {"finalizers": None}})
    collector.settle()
    assert not exists(store, NAMESPACES, "lab", "")


def test_an_applied_namespace_keeps_its_finalizer(store: Store, collector: Collector) -> None:
    store.create(NAMESPACES, {"metadata": {"name": "lab"}})
    store.update(NAMESPACES, {"metadata": {"name": "lab", "labels": {"a": "b"}}})
    store.create(CONFIGMAPS, configmap("a", namespace="lab"))
    store.delete(NAMESPACES, "", "lab")
    assert exists(store, NAMESPACES, "lab", "")
    collector.settle()
    assert store.list(CONFIGMAPS, namespace="lab").items == []


def test_a_crd_goes_with_its_objects_and_its_paths(store: Store, collector: Collector) -> None:
    store.create(CUSTOMRESOURCEDEFINITIONS, widget_crd())
    resource = store.registry.find("edgeai.io", "v1alpha1", "widgets")
    assert resource is not None
    store.create(resource, widget())
    held = widget("held")
    held["metadata"]["finalizers"] = ["test/hold"]
    store.create(resource, held)
    store.delete(CUSTOMRESOURCEDEFINITIONS, "", "widgets.edgeai.io")
    collector.settle()
    assert [item["metadata"]["name"] for item in store.list(resource).items] == ["held"]
    store.patch(resource, "default", "held", {"metadata": {"finalizers": None}})
    collector.settle()
    assert store.registry.find("edgeai.io", "v1alpha1", "widgets") is None
    assert not exists(store, CUSTOMRESOURCEDEFINITIONS, "widgets.edgeai.io", "")


def test_only_the_newest_events_are_kept(store: Store) -> None:
    collector = Collector(store, max_events=10)
    store.listen(collector.note)
    for index in range(15):
        metadata = {"name": f"e{index:02}", "namespace": "default"}
        store.create(EVENTS, {"metadata": metadata, "involvedObject": {}})
        collector.settle()
    names = [event["metadata"]["name"] for event in store.list(EVENTS).items]
    assert len(names) <= 11
    assert names[-1] == "e14"
    assert "e00" not in names


async def test_what_happened_while_it_was_down_is_caught_up(store: Store) -> None:
    owner = store.create(CONFIGMAPS, configmap("owner"))
    store.create(CONFIGMAPS, configmap("child", ownerReferences=owned_by(owner)))
    store.delete(CONFIGMAPS, "default", "owner")
    collector = Collector(store)
    collector.note_everything()
    assert collector.settle()
    assert not exists(store, CONFIGMAPS, "child")
