"""Pods that are deleted or replaced, and lists that do not have them."""

import pytest

from localcontroller.ledger.ledger import Ledger
from tests.localcontroller.builders import UID, WORKER, worker_message
from tests.localcontroller.workers.cluster_api import (
    RUNNING,
    TERMINATED,
    ClusterApi,
    pod,
    until_state,
    watching,
)
from tests.support.waiting import async_eventually


async def test_a_deleted_pod_leaves_its_worker_lost(tasks: Ledger, api: ClusterApi) -> None:
    api.pods["uid of pod-a"] = pod(containers=[RUNNING])
    async with watching(tasks, api.url):
        await api.until_watched()
        api.send_event("DELETED", pod())
        assert await until_state(tasks, "lost") == "pod pod-a was deleted"


async def test_a_deletion_that_the_watch_missed_is_found_by_the_next_list(
    tasks: Ledger, api: ClusterApi
) -> None:
    api.pods["uid of pod-a"] = pod(containers=[RUNNING])
    async with watching(tasks, api.url, min_round_s=0.01):
        await api.until_watched()
        api.pods.clear()
        api.end_watches()
        assert await until_state(tasks, "lost") == "pod pod-a was deleted"


async def test_an_api_without_the_field_selector_makes_no_running_worker_lost(
    tasks: Ledger, api: ClusterApi
) -> None:
    """While KubeEdge's MetaServer is offline, a list by spec.nodeName is empty."""
    api.pods["uid of pod-a"] = pod(containers=[RUNNING])
    api.pods["uid of elsewhere"] = pod("elsewhere", node="edge-2", phase="Failed")
    await tasks.record(UID, WORKER, [worker_message(3)])
    revision = tasks.view.revision
    async with watching(tasks, api.url, min_round_s=0.01):
        await api.until_watched()
        api.knows_selector = False
        lists = api.lists
        api.end_watches()
        await async_eventually("another list", lambda: api.lists > lists)
        await api.until_watched()
        assert tasks.view.revision == revision
        api.send_event("MODIFIED", pod(containers=[TERMINATED]))
        await until_state(tasks, "lost")
        assert "fieldSelector" not in api.requests[-1]


async def test_a_failed_pod_is_found_through_an_api_without_the_field_selector(
    tasks: Ledger, api: ClusterApi
) -> None:
    api.knows_selector = False
    api.pods["a"] = pod(phase="Failed")
    async with watching(tasks, api.url):
        await until_state(tasks, "failed")


@pytest.mark.parametrize("status_by_name", [200, 403, 503])
async def test_an_empty_list_alone_makes_no_worker_lost(
    status_by_name: int, tasks: Ledger, api: ClusterApi
) -> None:
    """Only the answer that the pod does not exist proves its end."""
    api.pods["uid of pod-a"] = pod(containers=[RUNNING])
    await tasks.record(UID, WORKER, [worker_message(3)])
    revision = tasks.view.revision
    async with watching(tasks, api.url, min_round_s=0.01):
        await api.until_watched()
        api.forgets, api.status_by_name = True, status_by_name
        lists = api.lists
        api.end_watches()
        await async_eventually("another list", lambda: api.lists > lists)
        await api.until_watched()
        assert tasks.view.revision == revision
        api.pods.clear()
        api.status_by_name = 200
        api.end_watches()
        assert await until_state(tasks, "lost") == "pod pod-a was deleted"


async def test_the_youngest_pod_of_a_worker_counts(tasks: Ledger, api: ClusterApi) -> None:
    await tasks.record(UID, WORKER, [worker_message(3)])
    young = pod("pod-b", containers=[RUNNING], created="2026-01-01T00:05:00Z")
    api.pods["uid of pod-b"] = young
    api.pods["uid of pod-a"] = pod(containers=[RUNNING])
    revision = tasks.view.revision
    async with watching(tasks, api.url):
        await api.until_watched()
        api.send_event("MODIFIED", pod(phase="Failed"))
        api.send_event("DELETED", pod(phase="Failed"))
        api.send_event("ADDED", pod("marker", worker="other", phase="Failed"))
        await until_state(tasks, "failed", "other")
        assert tasks.view.revision == revision + 1  # one report: the marker's
        api.send_event("MODIFIED", {**young, "status": pod(containers=[TERMINATED])["status"]})
        await until_state(tasks, "lost")
