"""What a job resource is seen to own, and how seldom its spec is decoded.

Of what it owns its namespace and its controllers are proof, labels are not.
"""

from typing import Any

import msgspec
import pytest

from edgeai.api.resources import (
    DEPLOYMENTS,
    NODES,
    PODS,
    REPLICASETS,
    SERVICES,
    Object,
    ResourceType,
    ref_of,
)
from edgeai.ids import Uid
from globalmanager.cache.store import uid_of
from globalmanager.contract import Job, Observed, ServicePort, WorkerSettings
from globalmanager.engine.jobs import Jobs, Owned
from globalmanager.engine.observe import Observer
from globalmanager.ha.contacts import Contacts
from globalmanager.kinds.edge.jointinferenceservice import KIND
from tests.globalmanager.engine.stores import Stores
from tests.globalmanager.gadgets import GADGET, GadgetSpec, read
from tests.globalmanager.kinds.edge.samples import joint_inference_spec
from tests.globalmanager.objects import GADGETS, make

JOBS = KIND.definition.resources[0]
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


class Cache(Stores):
    """The stores of the engine."""

    def owned(self) -> Owned:
        self.kinds = {JOBS: KIND}
        return Jobs(self).owned_by(Job(type=JOBS, object=JOB))

    def pods(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.owned().pods]

    def names(self) -> list[str]:
        return sorted(str(ref) for ref in self.owned().children)


def test_what_a_job_owns_is_told_to_others_too(cache: Cache) -> None:
    cache.kinds = {JOBS: KIND}
    jobs = Jobs(cache)
    assert jobs.owned(ref_of(JOBS, JOB)) is None
    cache.put(JOBS, JOB)
    cache.put(PODS, owned(PODS, "mine", "uid-edge-1"))
    cache.put(PODS, owned(PODS, "only labels", "uid-other"))
    found = jobs.owned(ref_of(JOBS, JOB))
    assert found is not None
    assert [pod["metadata"]["name"] for pod in found.pods] == ["mine"]
    assert ref_of(DEPLOYMENTS, owned(DEPLOYMENTS, "edge", "uid-job")) in found.children


@pytest.mark.parametrize(
    ("spec", "of_child", "of_reference"),
    [
        ({"clusterIP": "10.0.0.1", "selector": {"app": "a"}}, "10.0.0.1", "10.0.0.1"),
        ({"clusterIP": "10.0.0.1"}, "10.0.0.1", ""),
        ({"clusterIP": "10.0.0.1", "selector": {}}, "10.0.0.1", ""),
        ({"clusterIP": "None", "selector": {"app": "a"}}, "", ""),
        ({"type": "ExternalName", "externalName": "metadata.internal"}, "", ""),
    ],
)
def test_the_relay_reaches_what_selects_pods(
    cache: Cache, spec: Object, of_child: str, of_reference: str
) -> None:
    jobs = Jobs(cache)

    def address(name: str, uid: str = "uid-job", *, is_child: bool) -> str:
        port = ServicePort(name, 80, is_child=is_child)
        return jobs.cluster_ip(Uid(uid), "ns", port)

    cache.put(SERVICES, owned(SERVICES, "mine", "uid-job", spec=spec))
    cache.put(SERVICES, make("users", type_=SERVICES, spec=spec))
    assert address("mine", is_child=True) == of_child
    assert address("mine", "uid-other", is_child=True) == ""
    assert address("users", is_child=True) == ""
    assert address("users", is_child=False) == of_reference
    assert address("nobody", is_child=False) == ""


def test_children_that_control_no_pods_are_not_asked_for_pods(cache: Cache) -> None:
    """A training job may have a thousand Services, and each key takes memory and a lookup."""
    cache.put(SERVICES, owned(SERVICES, "of-a-worker", "uid-job"))
    service, deployment, replica_set = (
        f"ns/{uid_of(cache.children(type_).list()[0])}"
        for type_ in (SERVICES, DEPLOYMENTS, REPLICASETS)
    )
    keys = cache.owned().controllers
    assert {"ns/uid-job", deployment, replica_set} <= keys
    assert service not in keys


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
    assert cache.names() == ["deployments.apps ns/edge", "services ns/own"]


# ---- a spec is decoded once for each change ------------------------------------------------------


class Counted:
    """An observer of one gadget, whose kind counts how often it decodes a spec."""

    def __init__(self) -> None:
        self.reads = 0
        cache = Cache({GADGETS: msgspec.structs.replace(GADGET, read=self._read)})
        self.jobs = cache.all_of(GADGETS)
        self.observer = Observer(Jobs(cache), Contacts(), WorkerSettings(root_key=bytes(32)))

    def _read(self, object_: Object) -> GadgetSpec:
        self.reads += 1
        return read(object_)

    def see(self, job: Object) -> Observed | None:
        self.jobs.upsert(job)
        return self.observer.observe(ref_of(GADGETS, job))


def seen(version: int, data: object = "x", **metadata: Any) -> Object:
    spec, status = {"data": data}, {"seen": version}
    return make("a", version=version, spec=spec, metadata=metadata, status=status)


def test_a_status_that_changes_is_shown_but_the_spec_is_not_decoded_again() -> None:
    counted = Counted()
    for version in range(1, 20):
        observed = counted.see(seen(version, generation=1))
        assert observed is not None
        assert observed.object["status"] == {"seen": version}
        assert observed.spec.data == "x"
    assert counted.reads == 1


@pytest.mark.parametrize(
    "change",
    [
        seen(2, "y", generation=2),
        seen(2, generation=1, annotations={"tune": "yes"}),
        seen(2, generation=1, uid="uid-of-another"),
        seen(2, "restored from a backup", generation=1),
    ],
    ids=["spec", "annotations", "uid", "history"],
)
def test_a_spec_is_decoded_anew_after_a_change_of(change: Object) -> None:
    counted = Counted()
    counted.see(seen(1, generation=1))
    observed = counted.see(change)
    assert observed is not None
    assert observed.spec.data == change["spec"]["data"]
    assert counted.reads == 2


def test_a_spec_that_is_not_accepted_is_not_decoded_again_either() -> None:
    counted = Counted()
    for version in (1, 2):
        observed = counted.see(seen(version, data=["no text"], generation=1))
        assert observed is not None
        assert observed.invalid is not None
    assert counted.reads == 1


def test_of_a_job_that_is_gone_nothing_is_kept() -> None:
    counted = Counted()
    job = seen(1, generation=1)
    counted.see(job)
    counted.jobs.remove(job)
    assert counted.observer.observe(ref_of(GADGETS, job)) is None
    counted.jobs.replace([job], "9", absences=0, rewound=True)
    assert counted.observer.observe(ref_of(GADGETS, job)) is not None
    assert counted.reads == 2


def test_a_job_reads_the_nodes_with_its_labels_and_hears_of_their_changes(cache: Cache) -> None:
    cache.kinds = {JOBS: KIND}
    edge = {"nodeName": "", "perNode": True, "nodeSelector": {"camera": "yes"}}
    cache.put(JOBS, {**JOB, "spec": joint_inference_spec(edge=edge)})
    member = make("edge0", type_=NODES, metadata={"labels": {"camera": "yes", "hall": "1"}})
    stranger = make("edge1", type_=NODES, metadata={"labels": {"camera": "no"}})
    for node in (member, stranger):
        cache.put(NODES, node)
    observer = Observer(Jobs(cache), Contacts(), WorkerSettings())
    ref = ref_of(JOBS, JOB)
    observed = observer.observe(ref)
    assert observed is not None
    assert observed.invalid is None
    assert set(observed.nodes) == {"edge0"}
    assert observer.selecting(None, member) == observer.selecting(member, None) == (ref,)
    assert observer.selecting(stranger, member) == observer.selecting(member, stranger) == (ref,)
    # the kubelet writes the status of its node all the time
    assert observer.selecting(member, {**member, "status": {}}) == ()
    silent = {**member, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    assert observer.selecting(member, silent) == observer.selecting(silent, member) == (ref,)
    assert observer.selecting(None, stranger) == ()
