"""What the caches of children keep of objects that anybody may label as edgeai's own."""

from typing import Any

import pytest

from edgeai.api.resources import (
    DEPLOYMENTS,
    PODS,
    REPLICASETS,
    SERVICES,
    Object,
    ResourceType,
    ref_of,
)
from edgeai.kube.client import KubeClient
from globalmanager.cache.informer import InformerSettings
from globalmanager.cache.informers import MANAGED, Informers, Scope, Subscriber
from tests.globalmanager.objects import GADGETS

LABELS = {
    "app.kubernetes.io/managed-by": "edgeai",
    "edgeai.io/kind": "gadgets.example.com",
    "edgeai.io/name": "job",
    **{f"mine/{number}": "x" for number in range(1000)},
}
CHANGES: list[tuple[Object | None, Object | None]] = []


class Noting(Subscriber):
    def changed(self, scope: Scope, old: Object | None, new: Object | None) -> None:
        CHANGES.append((old, new))


@pytest.fixture
def informers(scripted_client: KubeClient) -> Informers:
    CHANGES.clear()
    informers = Informers(
        scripted_client,
        namespace="",
        owners=(GADGETS, DEPLOYMENTS, REPLICASETS),
        settings=InformerSettings(),
    )
    informers.subscribe(Noting())
    return informers


def labelled(version: int = 7, *, owner: Object | None = None) -> Object:
    metadata: dict[str, Any] = {
        "name": "a",
        "namespace": "team",
        "uid": "u",
        "resourceVersion": str(version),
        "labels": LABELS,
        "annotations": {"large": "x" * 100_000},
    }
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    return {"metadata": metadata, "spec": {"large": "x" * 100_000}}


def owner_of(type_: ResourceType, *, controller: bool = True) -> Object:
    identity = {"apiVersion": type_.api_version, "kind": type_.kind, "name": "job", "uid": "j"}
    return {**identity, "controller": controller}


STRANGER = ResourceType("", "v1", "configmaps", "ConfigMap")
NOBODY = {
    "no owner": None,
    "an owner that is no controller": owner_of(GADGETS, controller=False),
    "a controller that is no job": owner_of(STRANGER),
}
STUB = {
    "metadata": {
        "name": "a",
        "namespace": "team",
        "uid": "u",
        "resourceVersion": "7",
        "labels": {"edgeai.io/kind": "gadgets.example.com", "edgeai.io/name": "job"},
    }
}


@pytest.mark.parametrize("type_", [PODS, SERVICES, DEPLOYMENTS], ids=str)
@pytest.mark.parametrize("owner", NOBODY)
def test_of_an_object_of_nobody_only_its_name_stays(
    informers: Informers, type_: ResourceType, owner: str
) -> None:
    store = informers.get(type_, MANAGED).store
    store.upsert(labelled(owner=NOBODY[owner]))
    assert store.get(ref_of(type_, labelled())) == STUB


@pytest.mark.parametrize("owner", [GADGETS, REPLICASETS], ids=str)
def test_an_object_that_a_job_may_own_stays_whole(
    informers: Informers, owner: ResourceType
) -> None:
    store = informers.get(PODS, MANAGED).store
    given = labelled(owner=owner_of(owner))
    store.upsert(given)
    assert store.get(ref_of(PODS, given)) == given


def test_an_object_of_nobody_that_a_job_adopts_is_found(informers: Informers) -> None:
    store = informers.get(PODS, MANAGED).store
    store.upsert(labelled())
    adopted = labelled(8, owner=owner_of(GADGETS))
    store.upsert(adopted)
    assert store.find("controller", "team/j") == (adopted,)
    store.upsert(labelled(9))
    assert store.find("controller", "team/j") == ()


def test_a_name_that_becomes_free_is_told(informers: Informers) -> None:
    """A job that waits for the name of the object is planned again, as the labels name the job."""
    store = informers.get(PODS, MANAGED).store
    store.upsert(labelled())
    store.remove(labelled(8))
    assert CHANGES == [(None, STUB), (STUB, None)]


def test_of_a_replica_set_only_its_links_stay(informers: Informers) -> None:
    store = informers.get(REPLICASETS, MANAGED).store
    given = labelled(owner=owner_of(DEPLOYMENTS))
    store.upsert(given)
    metadata = {key: value for key, value in given["metadata"].items() if key != "annotations"}
    assert store.get(ref_of(REPLICASETS, given)) == {"metadata": metadata}
