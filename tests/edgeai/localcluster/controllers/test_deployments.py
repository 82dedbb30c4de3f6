"""Deployments: the plan as a table, then with real pods."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeai.localcluster.controllers.deployments import (
    HASH_LABEL,
    SURGE,
    DeploymentController,
    deployment_status,
    new_pod,
    plan,
    template_hash,
)
from edgeai.localcluster.objects.pods import is_ready
from edgeai.localcluster.objects.resources import DEPLOYMENTS, PODS, RESOURCEQUOTAS, Object
from edgeai.localcluster.objects.store import Change, Store
from edgeai.times import rfc3339
from tests.edgeai.localcluster.conftest import until
from tests.edgeai.localcluster.running import (
    RunningCluster,
    container,
    patch,
    running_cluster,
    server,
)

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)


def deployment(replicas: int = 2, *containers: Object, **spec: object) -> Object:
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": list(containers) or [container("sleep 60")]},
    }
    return {
        "metadata": {"name": "web", "namespace": "default", "uid": "u", "generation": 1},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": template,
            **spec,
        },
    }


def pods(shape: str, owner: Object) -> list[Object]:
    """One pod per letter: N new and ready, n new and not, O/o old, L leaving, l of an old
    template and leaving, D dead."""
    return [_pod(letter, index, owner) for index, letter in enumerate(shape)]


def _pod(letter: str, index: int, owner: Object) -> Object:
    pod = new_pod(owner)
    pod["metadata"]["name"] = f"{letter}{index}"
    if letter in "Ool":
        pod["metadata"]["labels"][HASH_LABEL] = "old"
    if letter in "Ll":
        pod["metadata"]["deletionTimestamp"] = rfc3339(NOW)
    ready = {"type": "Ready", "status": "True" if letter in "NOL" else "False"}
    ready["lastTransitionTime"] = rfc3339(NOW - timedelta(seconds=30))
    phase = "Failed" if letter == "D" else "Running"
    pod["status"] = {"phase": phase, "conditions": [ready]}
    return pod


ROLLING = {"type": "RollingUpdate"}
RECREATE = {"type": "Recreate"}


@pytest.mark.parametrize(
    ("shape", "replicas", "strategy", "create", "delete"),
    [
        pytest.param("", 2, ROLLING, 2, "", id="from nothing"),
        pytest.param("NN", 2, ROLLING, 0, "", id="settled"),
        pytest.param("NNN", 2, ROLLING, 0, "N", id="scale down"),
        pytest.param("NnN", 2, ROLLING, 0, "n", id="scale down takes who does not serve"),
        pytest.param("ND", 2, ROLLING, 1, "D", id="a dead pod is replaced"),
        pytest.param("NL", 2, ROLLING, 1, "", id="a leaving pod is replaced at once"),
        pytest.param("OO", 2, ROLLING, 1, "", id="roll: first one more"),
        pytest.param("OOn", 2, ROLLING, 0, "", id="roll: wait until it serves"),
        pytest.param("OON", 2, ROLLING, 0, "O", id="roll: then one less"),
        pytest.param("ON", 2, ROLLING, 1, "", id="roll: and again"),
        pytest.param("ONN", 2, ROLLING, 0, "O", id="roll: the last old one"),
        pytest.param("oo", 2, ROLLING, 1, "", id="roll: old ones wait, though they do not serve"),
        pytest.param("ooN", 2, ROLLING, 0, "o", id="roll: they go as new ones serve"),
        pytest.param("oON", 2, ROLLING, 0, "o", id="roll: who does not serve goes first"),
        pytest.param("OO", 0, ROLLING, 0, "OO", id="scale to nothing"),
        pytest.param("OO", 2, RECREATE, 0, "OO", id="recreate: first all go"),
        pytest.param("ll", 2, RECREATE, 0, "", id="recreate: wait until they are gone"),
        pytest.param("L", 2, RECREATE, 2, "", id="recreate: same template, no wait"),
        pytest.param("n", 2, RECREATE, 1, "", id="recreate: then all come"),
    ],
)
def test_plan(shape: str, replicas: int, strategy: Object, create: int, delete: str) -> None:
    owner = deployment(replicas, strategy=strategy)
    step = plan(owner, pods(shape, owner))
    assert (step.create, "".join(name[0] for name in step.delete)) == (create, delete)


@given(st.text(alphabet="NnOoLlD", max_size=12), st.integers(0, 5))
def test_a_roll_keeps_its_bounds(shape: str, replicas: int) -> None:
    owner = deployment(replicas, strategy=ROLLING)
    present = pods(shape, owner)
    step = plan(owner, present)
    alive = [pod for pod in present if pod["metadata"]["name"][0] in "NnOo"]
    left = [pod for pod in alive if pod["metadata"]["name"] not in step.delete]
    ready = [pod for pod in alive if is_ready(pod)]
    still = [pod for pod in left if is_ready(pod)]
    assert len(still) >= min(len(ready), replicas)
    assert step.create == 0 or len(alive) + step.create <= replicas + SURGE


def test_the_hash_is_of_the_template_alone() -> None:
    one, scaled, changed = deployment(1), deployment(5), deployment(1, container("sleep 61"))
    assert template_hash(one) == template_hash(scaled) != template_hash(changed)


def conditions(status: Object) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}


@pytest.mark.parametrize(
    ("shape", "available"),
    [
        ("nn", ("False", "MinimumReplicasUnavailable")),
        ("NN", ("True", "MinimumReplicasAvailable")),
        ("OON", ("True", "MinimumReplicasAvailable")),
    ],
)
def test_conditions(shape: str, available: object) -> None:
    owner = deployment(2)
    found = conditions(deployment_status(owner, pods(shape, owner), NOW))
    assert found == {"Available": available}


def test_counts() -> None:
    owner = deployment(3)
    status = deployment_status(owner, pods("NnOlD", owner), NOW)
    del status["conditions"]
    assert status == {
        "observedGeneration": 1,
        "replicas": 3,
        "updatedReplicas": 2,
        "readyReplicas": 2,
        "availableReplicas": 2,
        "unavailableReplicas": 1,
    }


def test_nothing_new_is_no_other_status() -> None:
    owner = deployment(2)
    owner["status"] = deployment_status(owner, pods("Nn", owner), NOW)
    later = NOW + timedelta(seconds=5)
    assert deployment_status(owner, pods("Nn", owner), later) == owner["status"]


# Whose a pod is


@pytest.fixture
async def controller(store: Store) -> AsyncIterator[None]:
    """The controller runs; no kubelet runs the pods."""
    task = asyncio.create_task(DeploymentController(store).run(), name="deployments")
    yield
    task.cancel()
    await asyncio.wait([task])


def owners(store: Store) -> dict[str, list[str]]:
    """Uid of each pod -> uids of its owners."""
    return {
        pod["metadata"]["uid"]: [
            owner["uid"] for owner in pod["metadata"].get("ownerReferences") or []
        ]
        for pod in store.list(PODS).items
    }


async def test_a_pod_of_an_earlier_deployment_of_that_name_does_not_count(
    store: Store, controller: None
) -> None:
    leftover = new_pod(deployment(1)) | {"apiVersion": "v1"}
    leftover["metadata"]["ownerReferences"][0]["uid"] = "of-the-one-before"
    left = store.create(PODS, leftover)["metadata"]["uid"]
    present = store.create(DEPLOYMENTS, deployment(1))["metadata"]["uid"]
    await until(store, lambda: len(owners(store)) == 2)
    assert owners(store).pop(left) == ["of-the-one-before"]
    assert [present] in owners(store).values()


@pytest.mark.parametrize("label", ["app", HASH_LABEL])
async def test_a_pod_that_is_labelled_otherwise_is_released_and_replaced(
    store: Store, controller: None, label: str
) -> None:
    present = store.create(DEPLOYMENTS, deployment(1))["metadata"]["uid"]
    await until(store, lambda: len(owners(store)) == 1)
    (pod,) = store.list(PODS).items
    another = {"apiVersion": "v1", "kind": "ConfigMap", "name": "another", "uid": "x"}
    pod["metadata"]["ownerReferences"].append(another)
    store.update(PODS, pod)
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    patch(store, PODS, "default", name, {"metadata": {"labels": {label: None}}})
    await until(store, lambda: len(owners(store)) == 2)
    found = owners(store)
    assert found.pop(uid) == ["x"]
    assert list(found.values()) == [[present]]


# With real pods


def is_rolled_out(cluster: RunningCluster) -> bool:
    found = cluster.find(DEPLOYMENTS, "web")
    status = (found or {}).get("status") or {}
    return bool(
        found
        and status.get("observedGeneration") == found["metadata"]["generation"]
        and {status.get(name, 0) for name in ("replicas", "updatedReplicas", "readyReplicas")}
        == {found["spec"]["replicas"]}
    )


async def test_a_rolling_update_keeps_availability(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        cluster.store.create(DEPLOYMENTS, deployment(2, server(), strategy=ROLLING))
        await cluster.until(lambda: is_rolled_out(cluster))
        available: list[int] = []

        def count(change: Change) -> None:
            if change.resource is PODS:
                serving = [
                    pod
                    for pod in cluster.store.list(PODS).items
                    if is_ready(pod) and "deletionTimestamp" not in pod["metadata"]
                ]
                available.append(len(serving))

        unlisten = cluster.store.listen(count)
        old = {pod["metadata"]["uid"] for pod in cluster.store.list(PODS).items}
        content = {"spec": {"template": {"metadata": {"annotations": {"changed": "1"}}}}}
        patch(cluster.store, DEPLOYMENTS, "default", "web", content)
        await cluster.until(lambda: is_rolled_out(cluster))
        await cluster.until(lambda: len(cluster.store.list(PODS).items) == 2)
        unlisten()
        new = {pod["metadata"]["uid"] for pod in cluster.store.list(PODS).items}
        assert not old & new
        assert min(available) >= 2
        assert max(available) <= 3


async def test_a_pod_that_is_evicted_is_replaced(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        cluster.store.create(DEPLOYMENTS, deployment(1))
        await cluster.until(lambda: is_rolled_out(cluster))
        (pod,) = cluster.store.list(PODS).items
        pod["status"] |= {"phase": "Failed", "reason": "Evicted"}
        cluster.store.update(PODS, pod, subresource="status")
        await cluster.until_gone(pod["metadata"]["name"])
        await cluster.until(lambda: is_rolled_out(cluster))
        (replacement,) = cluster.store.list(PODS).items
        assert replacement["metadata"]["uid"] != pod["metadata"]["uid"]


async def test_pods_go_with_their_deployment(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        cluster.store.create(DEPLOYMENTS, deployment(2))
        await cluster.until(lambda: is_rolled_out(cluster))
        cluster.store.delete(DEPLOYMENTS, "default", "web")
        await cluster.until(lambda: not cluster.store.list(PODS).items)


async def test_a_quota_refuses_a_pod_until_it_is_raised(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        metadata = {"name": "small", "namespace": "default"}
        quota: Object = {"metadata": metadata, "spec": {"hard": {"pods": "0"}}}
        cluster.store.create(RESOURCEQUOTAS, quota)
        cluster.store.create(DEPLOYMENTS, deployment(1))

        def failure() -> Object | None:
            found = cluster.find(DEPLOYMENTS, "web") or {}
            conditions = (found.get("status") or {}).get("conditions") or []
            return next((one for one in conditions if one["type"] == "ReplicaFailure"), None)

        told = await cluster.until(failure)
        assert (told["status"], told["reason"]) == ("True", "FailedCreate")
        expected = "exceeded quota: small, requested: pods=1, used: pods=0, limited: pods=0"
        assert told["message"].endswith(f" is forbidden: {expected}")
        quota["spec"] = {"hard": {"pods": "1"}}
        cluster.store.update(RESOURCEQUOTAS, quota)
        await cluster.until(lambda: cluster.store.list(PODS).items)
        await cluster.until(lambda: not failure())
