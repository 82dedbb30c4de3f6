"""Two training jobs of one name in one namespace: they would have the same pods."""

from typing import Any

from edgeai.api.resources import PODS, SERVICES, Object, ObjectRef
from globalmanager.kinds.training import pytorchjob, tfjob
from tests.globalmanager.cluster import CRDS, LocalApi, User, run_manager
from tests.globalmanager.gadgets import crd_of
from tests.globalmanager.kinds.training.samples import pytorch_spec, tf_spec
from tests.support.waiting import async_eventually

KINDS = [pytorchjob.KIND, tfjob.KIND]
PYTORCH_JOBS, TF_JOBS = (kind.definition.resources[0] for kind in KINDS)
SHARED = "mnist-worker-0"
OWN = "mnist-worker-1"  # of the TFJob alone


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
    cluster: LocalApi, user: User
) -> None:
    for type_ in (PYTORCH_JOBS, TF_JOBS):
        await user.create(CRDS, crd_of(type_))
    about = {"metadata": {"name": "mnist", "namespace": "default"}}
    async with run_manager(cluster.kubeconfig, kinds=KINDS):
        await user.create(PYTORCH_JOBS, {**about, "spec": pytorch_spec(1, master=False)})

        async def is_made() -> bool:
            return await user.get(PODS, SHARED) is not None

        await async_eventually("the pod of the PyTorchJob", is_made)
        before = [await owner(user, type_, SHARED) for type_ in (SERVICES, PODS)]
        await user.create(TF_JOBS, {**about, "spec": tf_spec(Worker=2)})

        async def is_told() -> Object:
            return await stalled(user)

        told = await async_eventually("a condition of the TFJob", is_told)
        assert told["reason"] == "NameConflict"
        assert "default/mnist-worker-0 exists already" in told["message"]
        assert "belongs to PyTorchJob.kubeflow.org mnist" in told["message"]
        assert "rename or delete one of the two" in told["message"]
        assert [await owner(user, type_, SHARED) for type_ in (SERVICES, PODS)] == before
        assert await user.get(PODS, OWN) is None

        await user.delete(PYTORCH_JOBS, "mnist")

        async def is_free() -> bool:
            found = [await owner(user, type_, SHARED) for type_ in (SERVICES, PODS)]
            return all(one is None or one[1] == TF_JOBS.kind for one in found)

        await async_eventually("the end of the children of the PyTorchJob", is_free)
        # The engine tries again by itself, on a slow machine only after a minute.
        await user.client.merge_patch(
            ObjectRef(TF_JOBS, "default", "mnist"), {"metadata": {"labels": {"touched": "yes"}}}
        )

        async def has_the_name() -> bool:
            found = await owner(user, PODS, SHARED)
            return found is not None and found[1] == TF_JOBS.kind and not await stalled(user)

        await async_eventually("the pods of the TFJob", has_the_name)
        assert await user.client.get(ObjectRef(PODS, "default", OWN))
