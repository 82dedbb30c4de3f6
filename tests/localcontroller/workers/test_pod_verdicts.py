"""What the pod watch says of a worker by its pod, and that the worker's own messages win."""

import asyncio

import pytest

from localcontroller.ledger.ledger import Ledger
from localcontroller.workers.heartbeats import Heartbeats, watch_heartbeats
from tests.localcontroller.builders import UID, WORKER, worker_message
from tests.localcontroller.workers.cluster_api import (
    CRASHED,
    PULLING,
    REPLICA_SET,
    RUNNING,
    TERMINATED,
    ClusterApi,
    Manifest,
    pod,
    until_state,
    watching,
)
from tests.support.clock import Clock


def with_policy(policy: str, manifest: Manifest) -> Manifest:
    return {**manifest, "spec": {**manifest["spec"], "restartPolicy": policy}}


DONE = {"name": "main", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
DEATHS: dict[str, tuple[Manifest, str, str]] = {
    "evicted": (
        pod(phase="Failed", reason="Evicted", message="disk pressure"),
        "failed",
        "pod pod-a failed: Evicted: disk pressure",
    ),
    "failed by exit code": (
        pod(phase="Failed", containers=[TERMINATED]),
        "failed",
        "pod pod-a failed: container main exited with code 137 (OOMKilled)",
    ),
    "failed without a reason": (
        pod(phase="Failed"),
        "failed",
        "pod pod-a failed: no reason given",
    ),
    "succeeded": (
        pod(phase="Succeeded"),
        "completed",
        "pod pod-a succeeded without a final message",
    ),
    "container terminated": (
        pod(containers=[TERMINATED]),
        "lost",
        "pod pod-a: container main exited with code 137 (OOMKilled)",
    ),
    "container waits for its next start": (
        pod(containers=[CRASHED]),
        "lost",
        "pod pod-a: container main exited with code 1 (Error)",
    ),
    "container that must not end": (
        with_policy("Always", pod(containers=[DONE])),
        "lost",
        "pod pod-a: container main exited with code 0 (Completed)",
    ),
    "one of two containers terminated": (
        pod(containers=[{**RUNNING, "name": "side"}, TERMINATED]),
        "lost",
        "pod pod-a: container main exited with code 137 (OOMKilled)",
    ),
}


@pytest.mark.parametrize("case", DEATHS)
async def test_a_pod_that_ended_without_a_message_is_reported(
    case: str, tasks: Ledger, api: ClusterApi
) -> None:
    manifest, status, reason = DEATHS[case]
    await tasks.record(UID, WORKER, [worker_message(3, heartbeat_s=10.0)])
    async with watching(tasks, api.url):
        await api.until_watched()
        api.send_event("MODIFIED", manifest)
        assert await until_state(tasks, status) == reason
    (row,) = await tasks.workers()
    assert (row.worker.totals, row.is_acked) == ({"seen": 3}, False)


async def test_a_pod_that_failed_before_the_first_message_is_found_in_the_list(
    tasks: Ledger, api: ClusterApi
) -> None:
    api.pods["a"] = pod(phase="Failed")
    async with watching(tasks, api.url):
        await until_state(tasks, "failed")


ALIVE = {
    "running": pod(containers=[RUNNING]),
    "its work done while its sidecars stop": with_policy("Never", pod(containers=[DONE])),
    "image not pulled": pod(phase="Pending", containers=[PULLING]),
    "scheduled just now": pod(phase="Pending"),
}


@pytest.mark.parametrize("case", ALIVE)
async def test_a_pod_that_has_not_ended_changes_nothing(
    case: str, tasks: Ledger, api: ClusterApi
) -> None:
    await tasks.record(UID, WORKER, [worker_message(3)])
    revision = tasks.view.revision
    async with watching(tasks, api.url):
        await api.until_watched()
        api.send_event("ADDED", ALIVE[case])
        api.send_event("ADDED", pod("marker", worker="other", phase="Failed"))
        await until_state(tasks, "failed", "other")
    assert tasks.view.revision == revision + 1  # one report: the marker's


FOREIGN = {
    "of another operator": {"metadata": {"name": "x", "uid": "x", "labels": None}, "status": {}},
    "of a task that is not held": {
        **pod(phase="Failed"),
        "metadata": {
            **pod()["metadata"],
            "labels": {"edgeai.io/uid": "ghost", "edgeai.io/worker": WORKER},
        },
    },
    "in another namespace": pod(phase="Failed", namespace="stranger"),
    "on another node": pod(phase="Failed", node="edge-2"),
    "on no node": {**pod(phase="Failed"), "spec": {}},
    "without a controller": pod(phase="Failed", owner=None),
    "of a Job": pod(phase="Failed", owner={**REPLICA_SET, "kind": "Job"}),
    "of a ReplicaSet of another group": pod(
        phase="Failed", owner={**REPLICA_SET, "apiVersion": "stranger.io/v1"}
    ),
    "of an owner that is not the controller": pod(
        phase="Failed", owner={**REPLICA_SET, "controller": False}
    ),
}

OWNERS = {
    "a ReplicaSet": REPLICA_SET,
    "a Deployment, as in the local cluster": {**REPLICA_SET, "kind": "Deployment"},
    "the job itself": {
        "apiVersion": "edgeai.io/v1alpha1",
        "kind": "FederatedLearningJob",
        "name": "digits",
        "uid": UID,
        "controller": True,
    },
}


@pytest.mark.parametrize("case", OWNERS)
async def test_a_pod_whose_controller_may_belong_to_the_job_counts(
    case: str, tasks: Ledger, api: ClusterApi
) -> None:
    api.pods["a"] = pod(phase="Failed", owner=OWNERS[case])
    async with watching(tasks, api.url):
        await until_state(tasks, "failed")


@pytest.mark.parametrize("case", FOREIGN)
async def test_a_pod_of_no_worker_of_this_node_changes_nothing(
    case: str, tasks: Ledger, api: ClusterApi
) -> None:
    """Not when it appears and not when it goes, in a list and in a watch."""
    await tasks.record(UID, WORKER, [worker_message(3)])
    revision = tasks.view.revision
    api.pods["listed"] = FOREIGN[case]
    async with watching(tasks, api.url):
        await api.until_watched()
        api.send_event("ADDED", FOREIGN[case])
        api.send_event("DELETED", FOREIGN[case])
        api.send_event("ADDED", pod("marker", worker="other", phase="Failed"))
        await until_state(tasks, "failed", "other")
    assert tasks.view.revision == revision + 1  # one report: the marker's


async def test_a_final_state_that_the_worker_sent_stays(tasks: Ledger, api: ClusterApi) -> None:
    await tasks.record(UID, WORKER, [worker_message(3, status="completed")])
    api.pods["a"] = pod(phase="Failed")
    api.pods["b"] = pod("marker", worker="other", phase="Failed")
    async with watching(tasks, api.url):
        await until_state(tasks, "failed", "other")
    assert await until_state(tasks, "completed") == ""


async def test_a_worker_without_heartbeats_is_back_once_its_containers_run(
    tasks: Ledger, api: ClusterApi
) -> None:
    await tasks.record(UID, WORKER, [worker_message(3)])
    api.pods["uid of pod-a"] = pod(containers=[CRASHED])
    async with watching(tasks, api.url):
        await until_state(tasks, "lost")
        await api.until_watched()
        api.send_event("MODIFIED", pod(containers=[RUNNING]))
        await until_state(tasks, "running")


# ---- the worker's own messages -------------------------------------------------------------------


async def test_a_failed_pod_does_not_fail_a_worker_that_still_sends_messages(
    tasks: Ledger, api: ClusterApi
) -> None:
    """Everybody who may create pods in the namespace can create one like the worker's."""
    heartbeats = Heartbeats(silence_factor=3.0, clock=Clock())
    await tasks.record(UID, WORKER, [worker_message(3, sequence=1, heartbeat_s=10.0)])
    heartbeats.expect(UID, WORKER, 10.0)
    async with watching(tasks, api.url, heartbeats=heartbeats):
        await api.until_watched()
        api.send_event("ADDED", pod("spoofed", phase="Failed"))
        assert await until_state(tasks, "lost") == "pod spoofed failed: no reason given"
        await tasks.record(UID, WORKER, [worker_message(4, sequence=2, heartbeat_s=10.0)])
        heartbeats.expect(UID, WORKER, 10.0)
        assert await until_state(tasks, "running") == ""
    assert (await tasks.workers())[0].worker.totals == {"seen": 4}


async def test_a_worker_that_becomes_silent_gets_the_verdict_of_its_pod(
    tasks: Ledger, api: ClusterApi
) -> None:
    clock = Clock()
    heartbeats = Heartbeats(silence_factor=3.0, clock=clock)
    await tasks.record(UID, WORKER, [worker_message(3, sequence=1, heartbeat_s=10.0)])
    heartbeats.expect(UID, WORKER, 10.0)
    listening = asyncio.create_task(watch_heartbeats(tasks, heartbeats), name="heartbeats")
    async with watching(tasks, api.url, heartbeats=heartbeats):
        await api.until_watched()
        api.send_event("ADDED", pod(phase="Failed"))
        await until_state(tasks, "lost")
        clock.now_s += 31
        heartbeats.news.set()
        assert await until_state(tasks, "failed") == "pod pod-a failed: no reason given"
    listening.cancel()
