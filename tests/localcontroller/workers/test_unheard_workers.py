"""Workers that never speak: the node's LocalController alone reports them, by their pods."""

import pytest

from common import wire
from edgeai.ids import WorkerName
from localcontroller.ledger.ledger import Ledger
from tests.localcontroller.builders import UID, assign, report_of
from tests.localcontroller.workers.cluster_api import (
    CRASHED,
    RUNNING,
    TERMINATED,
    ClusterApi,
    Manifest,
    pod,
    until_state,
    watching,
)
from tests.support.waiting import async_eventually

REPLICA = "mnist-worker-0"
JOB = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "mnist", "uid": UID}
IDENTITY = {"podUid": "pod-1", "podCreatedAt": "2026-01-01T00:00:00Z"}


def replica(name: str = REPLICA, *, uid: str = "pod-1", **fields: object) -> Manifest:
    """A pod of the replica; its controller is the job."""
    made = pod(name, worker=REPLICA, owner={**JOB, "controller": True}, **fields)  # type: ignore[arg-type]
    return {**made, "metadata": {**made["metadata"], "uid": uid}}


def replica_task(version: int = 1) -> wire.Assign:
    grants = {WorkerName(REPLICA): wire.THE_NODE_ITSELF}
    body = wire.pack(wire.AssignmentBody("default", "digits", {}, grants))
    return assign(version=version, body_=body)


@pytest.fixture
async def replicas(ledger: Ledger) -> Ledger:
    """A ledger with one task, whose worker has no secret."""
    await ledger.apply([replica_task()])
    return ledger


async def newest(ledger: Ledger) -> tuple[int, wire.ReportBody]:
    """The attempt and the report of the replica."""
    (outgoing,) = await ledger.reports()
    return outgoing.attempt, report_of(outgoing.body)


async def test_a_running_pod_is_reported_with_its_uid(replicas: Ledger, api: ClusterApi) -> None:
    async with watching(replicas, api.url):
        await api.until_watched()
        api.send_event("ADDED", replica(phase="Pending"))
        api.send_event("MODIFIED", replica(containers=[RUNNING]))
        await until_state(replicas, "running", REPLICA)
    attempt, report = await newest(replicas)
    assert (attempt, report.status, report.reason) == (1, "running", "")
    assert report.details == IDENTITY


ENDS: dict[str, tuple[Manifest, str, dict[str, str]]] = {
    "succeeded": (
        replica(phase="Succeeded", containers=[{**TERMINATED, "state": {"terminated": {}}}]),
        "completed",
        {**IDENTITY, "exitCodes": "main=0"},
    ),
    "failed": (
        replica(phase="Failed", containers=[TERMINATED]),
        "failed",
        {**IDENTITY, "exitCodes": "main=137"},
    ),
    "evicted": (replica(phase="Failed", reason="Evicted"), "failed", IDENTITY),
}


@pytest.mark.parametrize("case", ENDS)
async def test_the_end_of_a_pod_is_reported_with_its_exit_code(
    case: str, replicas: Ledger, api: ClusterApi
) -> None:
    manifest, status, details = ENDS[case]
    async with watching(replicas, api.url):
        await api.until_watched()
        api.send_event("ADDED", replica(containers=[RUNNING]))
        api.send_event("MODIFIED", manifest)
        await until_state(replicas, status, REPLICA)
    attempt, report = await newest(replicas)
    assert (attempt, report.details) == (1, details)


async def test_exit_codes_of_all_containers_are_told_by_name(
    replicas: Ledger, api: ClusterApi
) -> None:
    side = {"name": "side", "state": {"terminated": {"exitCode": 0}}}
    async with watching(replicas, api.url):
        await api.until_watched()
        api.send_event("ADDED", replica(phase="Failed", containers=[side, TERMINATED]))
        await until_state(replicas, "failed", REPLICA)
    _, report = await newest(replicas)
    assert report.details["exitCodes"] == "side=0,main=137"


async def test_another_pod_is_another_attempt(replicas: Ledger, api: ClusterApi) -> None:
    async with watching(replicas, api.url):
        await api.until_watched()
        first = replica(phase="Failed", containers=[TERMINATED])
        api.send_event("ADDED", first)
        await until_state(replicas, "failed", REPLICA)
        api.send_event("DELETED", first)
        again = replica(uid="pod-2", containers=[RUNNING], created="2026-01-01T00:01:00Z")
        api.send_event("ADDED", again)
        await until_state(replicas, "running", REPLICA)
    attempt, report = await newest(replicas)
    assert (attempt, report.details["podUid"]) == (2, "pod-2")


async def test_a_container_that_starts_again_is_no_new_attempt(
    replicas: Ledger, api: ClusterApi
) -> None:
    async with watching(replicas, api.url):
        await api.until_watched()
        api.send_event("ADDED", replica(containers=[CRASHED]))
        await until_state(replicas, "lost", REPLICA)
        api.send_event("MODIFIED", replica(containers=[RUNNING]))
        await until_state(replicas, "running", REPLICA)
    assert (await newest(replicas))[0] == 1


async def test_the_end_of_a_pod_is_final_for_this_pod(replicas: Ledger, api: ClusterApi) -> None:
    async with watching(replicas, api.url):
        await api.until_watched()
        api.send_event("ADDED", replica(phase="Succeeded"))
        await until_state(replicas, "completed", REPLICA)
        revision = replicas.view.revision
        api.send_event("MODIFIED", replica(containers=[RUNNING]))
        api.send_event("DELETED", replica())
        api.send_event("ADDED", replica("other", uid="pod-9", node="edge-2"))
        api.end_watches()
        await api.until_watched()
        await async_eventually("one more list", lambda: api.lists >= 2)
        assert replicas.view.revision == revision


async def test_a_pod_that_was_there_before_its_task_is_reported(
    ledger: Ledger, api: ClusterApi
) -> None:
    async with watching(ledger, api.url):
        await api.until_watched()
        api.send_event("ADDED", replica(containers=[RUNNING]))
        await async_eventually("the watch", lambda: api.lists == 1)
        await ledger.apply([replica_task()])
        await until_state(ledger, "running", REPLICA)
        assert api.lists == 1


async def test_nothing_new_is_written_for_the_same_pod(replicas: Ledger, api: ClusterApi) -> None:
    async with watching(replicas, api.url):
        await api.until_watched()
        api.send_event("ADDED", replica(containers=[RUNNING]))
        await until_state(replicas, "running", REPLICA)
        revision = replicas.view.revision
        for _ in range(3):
            api.send_event("MODIFIED", replica(containers=[RUNNING]))
        api.send_event("MODIFIED", replica(phase="Succeeded"))
        await until_state(replicas, "completed", REPLICA)
        assert replicas.view.revision == revision + 1


async def test_what_is_known_of_a_pod_outlives_the_localcontroller(
    replicas: Ledger, api: ClusterApi
) -> None:
    api.pods["pod-1"] = replica(containers=[RUNNING])
    async with watching(replicas, api.url):
        await until_state(replicas, "running", REPLICA)
    revision = replicas.view.revision
    async with watching(replicas, api.url):  # a watch that knows nothing yet
        await api.until_watched()
        assert replicas.view.revision == revision
        api.send_event("MODIFIED", replica(phase="Failed", containers=[TERMINATED]))
        await until_state(replicas, "failed", REPLICA)
    assert (await newest(replicas))[0] == 1
