"""The scheduler: which node a pod gets, and what becomes of a pod that fits nowhere."""

from pathlib import Path

import pytest

from edgeai.client.submission import placement
from edgeai.localcluster.controllers.scheduler import choose_node, why_unschedulable
from edgeai.localcluster.objects.resources import EVENTS, NODES, PODS, Object
from tests.edgeai.localcluster.running import container, new_pod, patch, running_cluster


def node_object(name: str, **labels: str) -> Object:
    role = "cloud" if name.startswith("cloud") else "edge"
    return {"metadata": {"name": name, "labels": {f"node-role.kubernetes.io/{role}": ""} | labels}}


NODE_OBJECTS = [node_object("edge0", zone="a"), node_object("edge1"), node_object("cloud0")]
ZONE_A = {"key": "zone", "operator": "In", "values": ["a"]}
AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [ZONE_A]}]
        }
    }
}


@pytest.mark.parametrize(
    ("spec", "node"),
    [
        ({}, "cloud0"),
        ({"nodeSelector": {"node-role.kubernetes.io/edge": ""}}, "edge0"),
        ({"nodeSelector": {"zone": "a"}}, "edge0"),
        ({"nodeSelector": {"zone": "b"}}, None),
        ({"affinity": AFFINITY}, "edge0"),
        (placement(["edge0"]), "edge0"),
        (placement(["elsewhere"]), None),
    ],
)
def test_scheduling(spec: Object, node: str | None) -> None:
    assert choose_node({"spec": spec}, NODE_OBJECTS) == node


GPU_NODE = node_object("gpu0", zone="gpu") | {
    "spec": {"taints": [{"key": "gpu", "value": "true", "effect": "NoSchedule"}]}
}


@pytest.mark.parametrize(
    ("tolerations", "node"),
    [
        ([], None),
        ([{"key": "gpu", "operator": "Exists"}], "gpu0"),
        ([{"operator": "Exists"}], "gpu0"),
        ([{"key": "gpu", "value": "true", "effect": "NoSchedule"}], "gpu0"),
        ([{"key": "gpu", "value": "false"}], None),
        ([{"key": "gpu", "operator": "Exists", "effect": "NoExecute"}], None),
    ],
)
def test_a_taint_needs_a_toleration(tolerations: list[Object], node: str | None) -> None:
    spec = {"nodeSelector": {"zone": "gpu"}, "tolerations": tolerations}
    assert choose_node({"spec": spec}, [*NODE_OBJECTS, GPU_NODE]) == node


def test_a_preference_of_a_node_keeps_no_pod_away() -> None:
    taint = {"key": "gpu", "effect": "PreferNoSchedule"}
    node = node_object("gpu0", zone="gpu") | {"spec": {"taints": [taint]}}
    assert choose_node({"spec": {"nodeSelector": {"zone": "gpu"}}}, [node]) == "gpu0"


def test_the_reasons_are_counted_as_kubernetes_counts_them() -> None:
    closed = node_object("old0", zone="gpu") | {"spec": {"unschedulable": True}}
    pod = {"spec": {"nodeSelector": {"zone": "gpu"}}}
    assert why_unschedulable(pod, [*NODE_OBJECTS, GPU_NODE, closed]) == (
        "0/5 nodes are available: 1 node(s) had untolerated taint {gpu: true}, "
        "1 node(s) were unschedulable, 3 node(s) didn't match Pod's node affinity/selector."
    )
    assert why_unschedulable(pod, []) == "no nodes available to schedule pods"


async def test_a_pod_that_fits_nowhere_says_so_until_it_does(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        spec = {"nodeName": "", "nodeSelector": {"zone": "a"}, "restartPolicy": "Never"}
        cluster.store.create(PODS, new_pod("p", container("true"), **spec))
        found = await cluster.until_pod("p", lambda pod: pod["status"].get("conditions"))
        condition = found["status"]["conditions"][0]
        assert (condition["type"], condition["reason"]) == ("PodScheduled", "Unschedulable")
        assert any(e["reason"] == "FailedScheduling" for e in cluster.store.list(EVENTS).items)
        patch(cluster.store, NODES, "", "edge0", {"metadata": {"labels": {"zone": "a"}}})
        await cluster.until_phase("p", "Succeeded")


async def test_a_pod_of_an_unknown_node_stays_pending_and_can_be_deleted(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        cluster.store.create(PODS, new_pod("p", container("true"), nodeName="elsewhere"))
        assert (await cluster.until_phase("p", "Pending"))["spec"]["nodeName"] == "elsewhere"
        cluster.store.delete(PODS, "default", "p")
        await cluster.until_gone("p")
