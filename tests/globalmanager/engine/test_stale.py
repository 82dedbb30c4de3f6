"""A new leader whose watch of the jobs is late makes and deletes no pod from an old status."""

import math
from pathlib import Path
from typing import Any

from edgeai.api.elastic import TRAINING_JOBS
from edgeai.api.resources import PODS, Object, ObjectRef
from globalmanager.ha.fence import Fence
from globalmanager.kinds.elastic.trainingjob import KIND as TRAINING_JOB
from globalmanager.kinds.shared.attempts import attempt_of
from globalmanager.kinds.training.pytorchjob import KIND
from tests.globalmanager.cluster import CRDS, TOKEN, LocalApi, User, run_manager
from tests.globalmanager.engine.late_watch import serve_late_watch
from tests.globalmanager.gadgets import crd_of
from tests.globalmanager.kinds.elastic import world as elastic
from tests.globalmanager.kinds.training.samples import pytorch_spec
from tests.support.kubeconfig import write_kubeconfig
from tests.support.waiting import async_eventually

JOBS = KIND.definition.resources[0]
WORKER = "mnist-worker-0"


async def pod_of(user: User, name: str, attempt: int) -> Object:
    async def find() -> Any:
        pod = await user.get(PODS, name)
        return pod if pod is not None and attempt_of(pod) == attempt else None

    found: Object = await async_eventually(f"{name} of attempt {attempt}", find)
    return found


async def test_a_pod_is_made_once_for_a_restart_that_the_leader_before_has_counted(
    cluster: LocalApi, user: User, tmp_path: Path
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


async def test_a_pod_that_the_leader_before_has_made_is_not_deleted_from_an_old_status(
    cluster: LocalApi, user: User, tmp_path: Path
) -> None:
    """The leader before has written another list of wanted workers and made the new one's pod, and
    then died. The new leader knows the pod, but not the list.
    """
    await user.create(CRDS, crd_of(TRAINING_JOBS))
    spec = elastic.example(launcherAttachMode="kubexec")["spec"]
    metadata = {"name": elastic.JOB, "namespace": "default"}
    job = await user.create(TRAINING_JOBS, {"metadata": metadata, "spec": spec})
    first = ObjectRef(PODS, "default", elastic.worker(1))
    async with run_manager(cluster.kubeconfig, kinds=[TRAINING_JOB]):
        await async_eventually("worker 1", lambda: user.get(PODS, first.name))

    fence = Fence()
    async with serve_late_watch(cluster.url, TRAINING_JOBS.plural) as late:
        kubeconfig = write_kubeconfig(tmp_path / "late-kubeconfig", late.url, TOKEN)
        async with run_manager(kubeconfig, kinds=[TRAINING_JOB], fence=fence) as manager:
            pods = manager.engine._informers.children(PODS)
            await async_eventually("the pod in the cache", lambda: pods.get(first) is not None)
            late.flowing.clear()
            target = [elastic.worker(0), elastic.worker(2)]
            ref = ObjectRef(TRAINING_JOBS, "default", elastic.JOB)
            status = {"status": {"targetWorkers": target, "nextWorkerIndex": 3}}
            await user.client.merge_patch(ref, status, subresource="status")
            pod = await user.get(PODS, first.name)
            assert pod is not None
            kept = {key: pod["metadata"][key] for key in ("labels", "ownerReferences")}
            named = {"name": target[1], "namespace": "default", **kept}
            made = await user.create(PODS, {"metadata": named, "spec": pod["spec"]})
            assert made["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
            second = ObjectRef(PODS, "default", target[1])
            await async_eventually("the new pod in the cache", lambda: pods.get(second) is not None)
            fence.open_until(math.inf)
            manager.engine.leadership_changed(True)
            await async_eventually("the end of worker 1", lambda: pods.get(first) is None)
            left = await user.get(PODS, target[1])
            assert left is not None
            assert left["metadata"]["uid"] == made["metadata"]["uid"]
