"""Two tenants of one engine: what one of them writes joins no job of the other.

A Gadget here is assigned to the nodes of its pods, and deletes each ConfigMap of its own. Its pods
are those of a Deployment and a ReplicaSet, which the tests write in Kubernetes' place.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from aiohttp import web

from edgeai.api import pod_state
from edgeai.api.resources import DEPLOYMENTS, PODS, REPLICASETS, Object, ObjectRef, ResourceType
from edgeai.ids import NodeName
from edgeai.kube.client import KubeClient
from globalmanager.contract import Assignment, Observed, Plan, UpdateRule
from globalmanager.engine.settings import EngineSettings
from globalmanager.kinds.shared import children
from tests.globalmanager.cluster import FAST, LocalApi, Manager, User, run_manager
from tests.globalmanager.gadgets import CONFIGMAPS, GADGET, counting, gadget
from tests.globalmanager.objects import GADGETS, make
from tests.globalmanager.scripted_api import ScriptedApi
from tests.support.kubeconfig import write_kubeconfig
from tests.support.waiting import async_eventually

NAMESPACES = ResourceType("", "v1", "namespaces", "Namespace", namespaced=False)
FOREIGN: Final = "mallory"
MANAGED: Final = {"app.kubernetes.io/managed-by": "edgeai"}


def plan(observed: Observed, _now: datetime) -> Plan:
    kept = [ref for ref in observed.children if ref.type == DEPLOYMENTS]
    stages = children.reconcile(observed, (), KIND.owns, exempt=kept)
    failed = [pod for pod in observed.pods if pod_state.phase_of(pod) == "Failed"]
    told = {"phase": "Failed" if failed else "Ready", "pods": len(observed.pods)}
    current = observed.object.get("status") or {}
    return Plan(stages=stages, status=None if current == told else told)


def assignments(observed: Observed) -> Mapping[NodeName, Assignment]:
    nodes = {NodeName(pod_state.node_of(pod)) for pod in observed.pods}
    return {node: Assignment.of(observed, spec={}, workers={}) for node in nodes}


KIND = msgspec.structs.replace(
    GADGET,
    owns={**GADGET.owns, DEPLOYMENTS: UpdateRule.REPLACE},
    plan=plan,
    assignments=assignments,
)


def labels_of(job: Object) -> dict[str, str]:
    metadata = job["metadata"]
    names = {"edgeai.io/kind": str(GADGETS), "edgeai.io/name": metadata["name"]}
    return {**MANAGED, **names, "edgeai.io/uid": metadata["uid"], "edgeai.io/role": "edge"}


class Writer(User):
    """Writes objects with the labels of `job`."""

    def __init__(self, client: KubeClient, job: Object) -> None:
        super().__init__(client)
        self.job = job

    async def write(
        self,
        type_: ResourceType,
        name: str,
        *,
        by: Object | None = None,
        namespace: str = "default",
        controller: bool = True,
        labels: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> Object:
        """Args: by: the owner that it names, as its controller if `controller`"""
        metadata: Object = {"name": name, "namespace": namespace}
        metadata["labels"] = labels_of(self.job) if labels is None else labels
        if by is not None:
            owner = {key: by[key] for key in ("apiVersion", "kind")}
            owner |= {key: by["metadata"][key] for key in ("name", "uid")}
            metadata["ownerReferences"] = [{**owner, "controller": controller}]
        return await self.create(type_, {"metadata": metadata, **fields})

    async def deployment(self, name: str, **given: Any) -> Object:
        return await self.write(DEPLOYMENTS, name, spec=workload(), **given)

    async def replica_set(self, name: str, **given: Any) -> Object:
        return await self.write(REPLICASETS, name, spec=workload(), **given)

    async def pod(self, name: str, *, node: str, **given: Any) -> Object:
        containers = [{"name": "c", "image": "busybox:1"}]
        spec = {"nodeName": node, "containers": containers}
        return await self.write(PODS, name, spec=spec, **given)


def workload() -> Object:
    template = {
        "metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "busybox:1"}]},
    }
    return {"replicas": 0, "selector": {"matchLabels": {"app": "a"}}, "template": template}


@pytest.fixture
async def writer(cluster: LocalApi, user: User) -> Writer:
    """Of the Gadget `a` of namespace default."""
    await user.create(NAMESPACES, {"metadata": {"name": FOREIGN}})
    return Writer(user.client, await user.create(GADGETS, gadget("a")))


@pytest.fixture
async def manager(cluster: LocalApi, writer: Writer) -> AsyncIterator[Manager]:
    async with run_manager(cluster.kubeconfig, kinds=(KIND,)) as manager:
        await manager.wait_for_phase("a")
        yield manager


async def look_again(manager: Manager, writer: Writer) -> None:
    """Until the engine has seen all that was written so far, and has acted on it.

    The last things written are a Deployment, a ReplicaSet and a pod of the job's own. Each comes
    after all others in the watch of its type, and only the three together bind the pod's node.
    """
    deployment = await writer.deployment("last", by=writer.job)
    replica_set = await writer.replica_set("last-1", by=deployment)
    await writer.pod("last-1-x", node="n9", by=replica_set)

    def check() -> bool:
        nodes, status = manager.edge.nodes_of("a"), manager.status("a")
        assert "n9" in nodes, f"the nodes are {nodes}"
        assert status.get("pods") == len(nodes), f"status is {status}, the nodes are {nodes}"
        return True

    await async_eventually("the last pod in the assignment and the status", check)


async def test_pods_count_that_a_replica_set_of_a_child_controls(
    manager: Manager, writer: Writer
) -> None:
    deployment = await writer.deployment("edge", by=writer.job)
    replica_set = await writer.replica_set("edge-1", by=deployment)
    await writer.pod("edge-1-x", node="n1", by=replica_set)
    await async_eventually(
        "manager.edge.nodes_of('a') == ['n1']", lambda: manager.edge.nodes_of("a") == ["n1"]
    )
    await writer.pod("edge-y", node="n2", by=deployment)  # as the local cluster makes it
    await async_eventually(
        "manager.edge.nodes_of('a') == ['n1', 'n2']",
        lambda: manager.edge.nodes_of("a") == ["n1", "n2"],
    )
    await async_eventually(
        "manager.status('a').get('pods') == 2", lambda: manager.status("a").get("pods") == 2
    )


async def test_a_pod_whose_replica_set_is_seen_later_counts_then(
    manager: Manager, writer: Writer
) -> None:
    """The watches of two types tell in any order."""
    deployment = await writer.deployment("edge", by=writer.job)
    unseen = await writer.replica_set("edge-1", by=deployment, labels={})
    await writer.pod("edge-1-x", node="n1", by=unseen)
    await look_again(manager, writer)
    assert manager.edge.nodes_of("a") == ["n9"]
    ref = ObjectRef(REPLICASETS, "default", "edge-1")
    await writer.client.merge_patch(ref, {"metadata": {"labels": MANAGED}})
    await async_eventually(
        "manager.edge.nodes_of('a') == ['n1', 'n9']",
        lambda: manager.edge.nodes_of("a") == ["n1", "n9"],
    )


async def test_labels_bind_no_pod(manager: Manager, writer: Writer) -> None:
    await writer.pod("loose", node="n1")
    await writer.pod("uncontrolled", node="n2", by=writer.job, controller=False)
    await look_again(manager, writer)
    assert manager.edge.nodes_of("a") == ["n9"]


async def test_labels_of_one_job_on_another_bind_nothing(manager: Manager, writer: Writer) -> None:
    for name in ("b", "c"):
        forged = gadget(name)
        forged["metadata"]["labels"] = labels_of(writer.job)
        await writer.pod(f"{name}-x", node=f"n-{name}", by=await writer.create(GADGETS, forged))
    await async_eventually(
        "manager.edge.nodes_of('b') == ['n-b']", lambda: manager.edge.nodes_of("b") == ["n-b"]
    )
    await async_eventually(
        "manager.edge.nodes_of('c') == ['n-c']", lambda: manager.edge.nodes_of("c") == ["n-c"]
    )
    await look_again(manager, writer)
    assert manager.edge.nodes_of("a") == ["n9"]


async def test_a_pod_of_another_namespace_joins_no_job(manager: Manager, writer: Writer) -> None:
    """Neither its node nor its failure is the job's."""
    deployment = await writer.deployment("edge", by=writer.job)
    replica_set = await writer.replica_set("edge-1", by=deployment)
    forged = await writer.replica_set("forged", by=deployment, namespace=FOREIGN)
    for number, owner in enumerate((None, writer.job, deployment, replica_set, forged)):
        name = f"forged-{number}"
        await writer.pod(name, node="spy", by=owner, namespace=FOREIGN)
        status = {"status": {"phase": "Failed"}}
        ref = ObjectRef(PODS, FOREIGN, name)
        await writer.client.merge_patch(ref, status, subresource="status")
    await writer.pod("near", node="spy", by=forged)
    await look_again(manager, writer)
    assert manager.edge.nodes_of("a") == ["n9"]
    assert manager.status("a") == {"phase": "Ready", "pods": 1}


async def test_an_object_of_another_namespace_is_nobodys_child(
    cluster: LocalApi, manager: Manager, writer: Writer
) -> None:
    """The plan deletes each ConfigMap that the job owns."""
    await cluster.stop_collector()  # whose part it is to delete the forged one
    await writer.write(CONFIGMAPS, "forged", by=writer.job, namespace=FOREIGN, data={})
    await writer.write(CONFIGMAPS, "own", by=writer.job, data={})
    await async_eventually(
        "('delete', '200') in manager.writes", lambda: ("delete", "200") in manager.writes
    )
    await look_again(manager, writer)
    assert [verb for verb, _ in manager.writes].count("delete") == 1
    assert await writer.get(CONFIGMAPS, "own") is None
    assert await writer.client.get(ObjectRef(CONFIGMAPS, FOREIGN, "forged"))


async def test_another_namespace_makes_the_engine_look_at_no_job(
    cluster: LocalApi, writer: Writer
) -> None:
    """Job b comes after job a, and its pod after the forged ones."""
    kind, plans = counting(KIND)
    async with run_manager(cluster.kubeconfig, kinds=(kind,)) as manager:
        await look_again(manager, writer)
        b = await writer.create(GADGETS, gadget("b"))
        await manager.wait_for_phase("b")
        before = plans["a"]
        for number in range(20):
            await writer.pod(f"forged-{number}", node="spy", by=writer.job, namespace=FOREIGN)
        await writer.pod("of-b", node="n1", by=b, labels=labels_of(b))
        await async_eventually("b's pod", lambda: manager.status("b").get("pods") == 1)
        assert plans["a"] == before


async def test_no_node_loses_its_task_while_replica_sets_are_not_known(
    scripted: ScriptedApi, tmp_path: Path
) -> None:
    """After a restart each type is listed at its own time."""
    known = asyncio.Event()
    job = make("a", namespace="default", spec={})
    deployment = _linked("edge", job)
    replica_set = _linked("edge-1", deployment)
    pod = {**_linked("edge-1-x", replica_set), "spec": {"nodeName": "n1"}}
    objects = {"gadgets": job, "deployments": deployment, "replicasets": replica_set, "pods": pod}

    async def listing(request: web.Request) -> web.StreamResponse:
        plural = request.path.split("/")[-1]
        if plural == "replicasets":
            await known.wait()
        found = [objects[plural]] if plural in objects else []
        return await scripted.listing(*found, version=5)(request)

    scripted.lists = [listing]
    scripted.watches = [scripted.stream(then="hang")]
    scripted.others = [scripted.json(job)]
    path = write_kubeconfig(tmp_path / "kubeconfig", scripted.url)
    settings = EngineSettings(informer=FAST)
    async with run_manager(path, kinds=(KIND,), settings=settings) as manager:
        await async_eventually(
            "the pod in the cache",
            lambda: manager.engine._informers.children(PODS).find(
                "controller", "default/uid-edge-1"
            ),
        )
        before = manager.reconciles
        manager.engine.leadership_changed(leads=True)  # it looks again at each job
        await async_eventually("a reconcile that waits", lambda: manager.reconciles > before)
        assert manager.edge.desired == {}
        assert not manager.engine.initially_assigned.is_set()
        known.set()
        await manager.engine.initially_assigned.wait()
        assert manager.edge.nodes_of("a") == ["n1"]


def _linked(name: str, owner: Object) -> Object:
    identity = {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
    reference = {**identity, "uid": owner["metadata"]["uid"], "controller": True}
    metadata = {"labels": MANAGED, "ownerReferences": [reference]}
    return make(name, namespace="default", metadata=metadata)
