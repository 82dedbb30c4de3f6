"""A new leader whose watch of the jobs is late makes no pod from an old status."""

import math
from pathlib import Path
from typing import Any

from globalmanager.contract import PODS, Object, ObjectRef
from globalmanager.ha.fence import Fence
from globalmanager.kinds.pytorchjob import KIND
from globalmanager.rules.training.replicas import attempt_of
from tests.globalmanager.cluster import CRDS, TOKEN, Cluster, User, run_manager
from tests.globalmanager.engine.late_watch import serve_late_watch
from tests.globalmanager.gadgets import crd_of
from tests.globalmanager.kinds.training import pytorch_spec
from tests.globalmanager.scripted_api import write_kubeconfig
from tests.waiting import async_eventually

JOBS = KIND.resources[0]
WORKER = "mnist-worker-0"


async def pod_of(user: User, name: str, attempt: int) -> Object:
    async def find() -> Any:
        pod = await user.get(PODS, name)
        return pod if pod is not None and attempt_of(pod) == attempt else None

    found: Object = await async_eventually(f"{name} of attempt {attempt}", find)
    return found


async def test_a_pod_is_made_once_for_a_restart_that_the_leader_before_has_counted(
    cluster: Cluster, user: User, tmp_path: Path
) -> None:
    """The leader before has written the count and deleted the pod, and then died. The new leader
    knows that the pod is gone, but not the count.
    """
    await user.create(CRDS, crd_of(JOBS))
    job = {"metadata": {"name": "mnist", "namespace": "default"}, "spec": pytorch_spec(1)}
    await user.create(JOBS, job)
    async with run_manager(cluster.kubeconfig, kinds=[KIND]):
        await pod_of(user, WORKER, 0)
        await pod_of(user, "mnist-master-0", 0)

    fence = Fence()
    async with serve_late_watch(cluster.url, JOBS.plural) as late:
        kubeconfig = write_kubeconfig(tmp_path / "late-kubeconfig", late.url, TOKEN)
        async with run_manager(kubeconfig, kinds=[KIND], fence=fence) as manager:
            pods = manager.engine._informers.children(PODS)
            ref = ObjectRef(PODS, "default", WORKER)
            await async_eventually("the pod in the cache", lambda: pods.get(ref) is not None)
            late.flowing.clear()
            patch = {"status": {"restarts": {WORKER: 1}}}
            await user.client.merge_patch(
                ObjectRef(JOBS, "default", "mnist"), patch, subresource="status"
            )
            await user.delete(PODS, WORKER)
            await async_eventually("the loss in the cache", lambda: pods.get(ref) is None)
            late.told.clear()
            fence.open_until(math.inf)
            manager.engine.leadership_changed(True)
            first = await pod_of(user, WORKER, 1)
            late.flowing.set()
            spec = {"spec": pytorch_spec(2)}
            await user.client.merge_patch(ObjectRef(JOBS, "default", "mnist"), spec)
            await pod_of(user, "mnist-worker-1", 0)  # all earlier news of the job are known too
            last = await pod_of(user, WORKER, 1)
            assert last["metadata"]["uid"] == first["metadata"]["uid"]
            assert [each.plural for each in late.created].count("pods") == 2
