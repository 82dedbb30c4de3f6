"""activeDeadlineSeconds: a pod that is active for longer fails, and stays in the API."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

import pytest

from edgeai.localcluster.kubelet.kubelet import Kubelet
from edgeai.localcluster.kubelet.pod import PodHost
from edgeai.localcluster.kubelet.process import Reaper
from edgeai.localcluster.network.addresses import AddressPool, claim_network
from edgeai.localcluster.network.pod_addresses import PodAddresses
from edgeai.localcluster.objects.pods import is_ended, is_ready
from edgeai.localcluster.objects.resources import EVENTS, PODS, Object
from edgeai.localcluster.objects.store import Store
from tests.edgeai.localcluster.conftest import Client, pod, until
from tests.edgeai.localcluster.running import (
    RunningCluster,
    container,
    new_pod,
    patch,
    running_cluster,
)
from tests.support.clock import Clock
from tests.support.waiting import async_eventually

MESSAGE = "Pod was active on the node longer than the specified deadline"
LONG = container("exec sleep 60")
MISSING = {"configMapRef": {"name": "missing"}}
ACTIVE: dict[str, Object] = {
    "runs": new_pod("runs", LONG),
    "ends well when asked to": new_pod(
        "polite", container("trap 'exit 0' TERM; while :; do sleep 0.05; done")
    ),
    "one of two runs": new_pod(
        "two", LONG, container("exit 1", name="other"), restartPolicy="Never"
    ),
    "starts again and again": new_pod("loops", container("exit 1"), restartPolicy="OnFailure"),
    "waits for a ConfigMap": new_pod("waits", container("true", envFrom=[MISSING])),
    "its init container runs": new_pod(
        "init", container("true"), initContainers=[container("exec sleep 60", name="first")]
    ),
    "waits for a volume": new_pod(
        "volume",
        container("true", volumeMounts=[{"name": "v", "mountPath": "/v"}]),
        volumes=[{"name": "v", "configMap": {"name": "missing"}}],
    ),
}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    async with running_cluster(tmp_path) as cluster:
        yield cluster


async def test_it_fails_whatever_its_containers_do(cluster: RunningCluster) -> None:
    for each in ACTIVE.values():
        cluster.store.create(PODS, {**each, "spec": {**each["spec"], "activeDeadlineSeconds": 1}})
    for case, each in ACTIVE.items():
        status = (await cluster.until_phase(each["metadata"]["name"], "Failed"))["status"]
        assert (status["reason"], status["message"]) == ("DeadlineExceeded", MESSAGE), case
        entries = status["containerStatuses"] + status.get("initContainerStatuses", [])
        assert not any("running" in entry["state"] for entry in entries), case
    events = [e for e in cluster.store.list(EVENTS).items if e["reason"] == "DeadlineExceeded"]
    assert len(events) == len(ACTIVE)


async def test_its_files_stay_until_it_is_deleted(cluster: RunningCluster, tmp_path: Path) -> None:
    cluster.store.create(PODS, new_pod("p", LONG, activeDeadlineSeconds=1))
    failed = await cluster.until_phase("p", "Failed")
    directory = tmp_path / "state" / "pods" / failed["metadata"]["uid"]
    assert list(directory.rglob("0.log"))
    cluster.store.delete(PODS, "default", "p")
    await cluster.until_gone("p")
    await async_eventually("the end of its files", lambda: not directory.exists())


async def test_a_deadline_may_be_set_while_it_runs(cluster: RunningCluster) -> None:
    cluster.store.create(PODS, new_pod("p", LONG))
    await cluster.until_phase("p", "Running")
    patch(cluster.store, PODS, "default", "p", {"spec": {"activeDeadlineSeconds": 1}})
    assert (await cluster.until_phase("p", "Failed"))["status"]["reason"] == "DeadlineExceeded"


async def test_who_has_ended_is_not_active(cluster: RunningCluster) -> None:
    done = new_pod("done", container("true"), activeDeadlineSeconds=1, restartPolicy="Never")
    cluster.store.create(PODS, done)
    ended = await cluster.until_phase("done", "Succeeded")
    cluster.store.create(PODS, new_pod("later", LONG, activeDeadlineSeconds=1))
    await cluster.until_phase("later", "Failed")
    assert cluster.pod("done") == ended


async def test_a_second_that_has_just_begun_does_not_count(store: Store, tmp_path: Path) -> None:
    """startTime is told in whole seconds, and a deadline that came early would end the pod."""
    clock = Clock(1000.997)

    def ticking() -> datetime:
        clock.now_s += 0.002
        return clock.utcnow()

    with (
        contextlib.closing(claim_network()) as network,
        contextlib.closing(Reaper(tmp_path)) as reaper,
    ):
        host = PodHost(
            store=store,
            reaper=reaper,
            addresses=PodAddresses(store, AddressPool("pod", network.pods())),
            pods_directory=tmp_path,
            base_env={},
            now=ticking,
        )
        kubelet = asyncio.create_task(Kubelet({"edge0": "127.0.0.1"}, host).run(), name="kubelet")
        pod = new_pod("p", container("true"), activeDeadlineSeconds=1, restartPolicy="Never")
        store.create(PODS, pod)
        try:
            await until(store, lambda: is_ended(store.get(PODS, "default", "p")))
        finally:
            kubelet.cancel()
            await asyncio.wait([kubelet])
    assert store.get(PODS, "default", "p")["status"]["phase"] == "Succeeded"


async def test_the_time_in_an_earlier_life_of_the_cluster_counts(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        cluster.store.create(PODS, new_pod("p", LONG, activeDeadlineSeconds=600))
        running = await cluster.until_pod("p", is_ready)
    with_old_start = {
        **running,
        "status": running["status"] | {"startTime": "2020-01-01T00:00:00Z"},
    }
    store = Store(tmp_path / "state" / "cluster.db")
    store.update(PODS, with_old_start, subresource="status")
    store.close()
    async with running_cluster(tmp_path) as cluster:
        status = (await cluster.until_phase("p", "Failed"))["status"]
    assert status["reason"] == "DeadlineExceeded"
    assert status["containerStatuses"][0]["restartCount"] == 0


@pytest.mark.parametrize("seconds", [0, -1, 2**31])
async def test_a_deadline_that_cannot_be_is_refused(client: Client, seconds: int) -> None:
    answer = await client(
        "POST", "/api/v1/namespaces/default/pods", pod(activeDeadlineSeconds=seconds)
    )
    assert answer.status == 422
    assert "spec.activeDeadlineSeconds" in answer.body["message"]


async def test_a_deadline_is_a_number(client: Client) -> None:
    answer = await client("POST", "/api/v1/namespaces/default/pods", pod(activeDeadlineSeconds="5"))
    assert answer.status == 400
    assert "spec.activeDeadlineSeconds must be an integer" in answer.body["message"]
