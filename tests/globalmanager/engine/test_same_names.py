"""Two training jobs of one name in one namespace: they would have the same pods."""

from typing import Any

from globalmanager.contract import PODS, SERVICES, Object, ObjectRef
from globalmanager.kinds import pytorchjob, tfjob
from tests.globalmanager.cluster import CRDS, Cluster, User, run_manager
from tests.globalmanager.gadgets import crd_of
from tests.globalmanager.kinds.training import pytorch_spec, tf_spec
from tests.waiting import async_eventually

KINDS = [pytorchjob.KIND, tfjob.KIND]
PYTORCH_JOBS, TF_JOBS = (kind.resources[0] for kind in KINDS)
FIRST = ("mnist-worker-0", PYTORCH_JOBS.kind)
LAST = ("mnist-worker-1", TF_JOBS.kind)


async def owner(user: User, type_: Any, name: str) -> tuple[str, str] | None:
    """(uid of the object, kind of its controller)"""
    found = await user.get(type_, name)
    if found is None:
        return None
    (reference,) = found["metadata"]["ownerReferences"]
    return found["metadata"]["uid"], reference["kind"]


async def stalled(user: User) -> Object:
    found = await user.get(TF_JOBS, "mnist") or {}
    listed = (found.get("status") or {}).get("conditions") or []
    return next((one for one in listed if one["type"] == "Stalled"), {})


async def test_the_second_job_waits_and_says_for_whom_and_the_first_is_left_alone(
    cluster: Cluster, user: User
) -> None:
    for type_ in (PYTORCH_JOBS, TF_JOBS):
        await user.create(CRDS, crd_of(type_))
    about = {"metadata": {"name": "mnist", "namespace": "default"}}
    async with run_manager(cluster.kubeconfig, kinds=KINDS):
        await user.create(PYTORCH_JOBS, {**about, "spec": pytorch_spec(1, master=False)})

        async def is_made() -> bool:
            return await user.get(PODS, FIRST[0]) is not None

        await async_eventually("the pod of the PyTorchJob", is_made)
        before = [await owner(user, type_, FIRST[0]) for type_ in (SERVICES, PODS)]
        await user.create(TF_JOBS, {**about, "spec": tf_spec(Worker=2)})

        async def is_told() -> Object:
            return await stalled(user)

        told = await async_eventually("a condition of the TFJob", is_told)
        assert told["reason"] == "NameConflict"
        assert "default/mnist-worker-0 exists already" in told["message"]
        assert "belongs to PyTorchJob.kubeflow.org mnist" in told["message"]
        assert "rename or delete one of the two" in told["message"]
        assert [await owner(user, type_, FIRST[0]) for type_ in (SERVICES, PODS)] == before
        assert await user.get(PODS, LAST[0]) is None

        await user.delete(PYTORCH_JOBS, "mnist")

        async def has_the_name() -> bool:
            found = await owner(user, PODS, FIRST[0])
            return found is not None and found[1] == TF_JOBS.kind and not await stalled(user)

        await async_eventually("the pods of the TFJob", has_the_name)
        assert await user.client.get(ObjectRef(PODS, "default", LAST[0]))
