"""What a job resource is seen to own: its namespace and its controllers count, labels do not."""

from typing import Any

import pytest

from globalmanager.cache.store import Store
from globalmanager.contract import (
    DEPLOYMENTS,
    PODS,
    REPLICASETS,
    SERVICES,
    Job,
    Object,
    ResourceType,
)
from globalmanager.engine.observe import Owned, find_owned
from globalmanager.kinds.jointinferenceservice import KIND
from tests.globalmanager.objects import make

JOBS = KIND.resources[0]
JOB = make("digits", uid="uid-job", type_=JOBS, spec={})
LABELS = {
    "app.kubernetes.io/managed-by": "edgeai",
    "edgeai.io/uid": "uid-job",
    "edgeai.io/kind": str(JOBS),
    "edgeai.io/name": "digits",
    "edgeai.io/role": "edge",
}


def owned(
    type_: ResourceType, name: str, by: str, *, controller: bool = True, **fields: Any
) -> Object:
    """An object with all labels of the job whose owner reference has the uid `by`."""
    owner = {"uid": by, "controller": controller}
    metadata = {"labels": LABELS, "ownerReferences": [owner]}
    return make(name, type_=type_, metadata=metadata, **fields)


class Cache:
    """The stores of the engine."""

    def __init__(self) -> None:
        self._stores: dict[ResourceType, Store] = {}

    def store(self, type_: ResourceType) -> Store:
        return self._stores.setdefault(type_, Store(type_))

    def put(self, type_: ResourceType, object_: Object) -> None:
        self.store(type_).upsert(object_)

    def owned(self) -> Owned:
        return find_owned(KIND, Job(type=JOBS, object=JOB), self.store)

    def pods(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.owned().pods]

    def children(self) -> list[str]:
        return sorted(str(ref) for ref in self.owned().children)


@pytest.fixture
def cache() -> Cache:
    """With the edge worker's Deployment and its ReplicaSet, as Kubernetes makes it."""
    cache = Cache()
    cache.put(DEPLOYMENTS, owned(DEPLOYMENTS, "edge", "uid-job"))
    cache.put(REPLICASETS, owned(REPLICASETS, "edge-1", "uid-edge"))
    return cache


CONTROLLERS = {
    "the job itself": "uid-job",
    "its Deployment": "uid-edge",
    "a ReplicaSet": "uid-edge-1",
}


@pytest.mark.parametrize("uid", CONTROLLERS.values(), ids=CONTROLLERS)
def test_a_pod_counts_whose_controllers_lead_to_the_job(cache: Cache, uid: str) -> None:
    cache.put(PODS, owned(PODS, "pod", uid))
    assert cache.pods() == ["pod"]


def test_pods_are_told_by_name_whoever_controls_them(cache: Cache) -> None:
    for name, uid in (("c", "uid-job"), ("a", "uid-edge-1"), ("b", "uid-edge")):
        cache.put(PODS, owned(PODS, name, uid))
    assert cache.pods() == ["a", "b", "c"]


FOREIGN = {
    "labels alone": make("pod", type_=PODS, metadata={"labels": LABELS}),
    "an owner that is no controller": owned(PODS, "pod", "uid-edge-1", controller=False),
    "the job as an owner that is no controller": owned(PODS, "pod", "uid-job", controller=False),
    "the controller of somebody else": owned(PODS, "pod", "uid-other"),
    "another namespace, labels alone": make(
        "pod", type_=PODS, namespace="mallory", metadata={"labels": LABELS}
    ),
    **{
        f"another namespace, controlled by {word}": owned(PODS, "pod", uid, namespace="mallory")
        for word, uid in CONTROLLERS.items()
    },
}


@pytest.mark.parametrize("pod", FOREIGN.values(), ids=FOREIGN)
def test_a_pod_does_not_join_a_job_by(cache: Cache, pod: Object) -> None:
    cache.put(PODS, pod)
    assert cache.pods() == []


FORGED = {
    "a ReplicaSet of another namespace": (
        REPLICASETS,
        owned(REPLICASETS, "forged", "uid-edge", namespace="mallory"),
    ),
    "a ReplicaSet of another namespace that names the job": (
        REPLICASETS,
        owned(REPLICASETS, "forged", "uid-job", namespace="mallory"),
    ),
    "a Deployment of another namespace": (
        DEPLOYMENTS,
        owned(DEPLOYMENTS, "forged", "uid-job", namespace="mallory"),
    ),
    "a ReplicaSet with the labels alone": (
        REPLICASETS,
        make("forged", type_=REPLICASETS, metadata={"labels": LABELS}),
    ),
    "a ReplicaSet that is not controlled": (
        REPLICASETS,
        owned(REPLICASETS, "forged", "uid-edge", controller=False),
    ),
}


@pytest.mark.parametrize(("type_", "link"), FORGED.values(), ids=FORGED)
def test_a_chain_of_controllers_is_broken_by(
    cache: Cache, type_: ResourceType, link: Object
) -> None:
    """Wherever the pod is that the forged object controls."""
    cache.put(type_, link)
    cache.put(PODS, owned(PODS, "near", "uid-forged"))
    cache.put(PODS, owned(PODS, "far", "uid-forged", namespace="mallory"))
    assert cache.pods() == []


def test_a_pod_whose_replica_set_is_not_known_yet_counts_once_it_is() -> None:
    cache = Cache()
    cache.put(PODS, owned(PODS, "pod", "uid-edge-1"))
    cache.put(DEPLOYMENTS, owned(DEPLOYMENTS, "edge", "uid-job"))
    assert cache.pods() == []
    cache.put(REPLICASETS, owned(REPLICASETS, "edge-1", "uid-edge"))
    assert cache.pods() == ["pod"]


def test_what_another_namespace_says_to_be_a_child_is_none(cache: Cache) -> None:
    """A child that is not desired would be deleted."""
    cache.put(SERVICES, owned(SERVICES, "mine", "uid-job", namespace="mallory"))
    cache.put(SERVICES, owned(SERVICES, "loose", "uid-job", controller=False))
    cache.put(SERVICES, owned(SERVICES, "own", "uid-job"))
    assert cache.children() == ["deployments.apps ns/edge", "services ns/own"]
