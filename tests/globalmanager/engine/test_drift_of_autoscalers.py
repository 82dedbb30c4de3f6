"""Autoscalers of jobs that somebody edits by hand, on an API that serves autoscaling/v2."""

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from edgeai.api.resources import AUTOSCALERS, NODES, ObjectRef, ResourceType
from globalmanager.kinds.edge.jointinferenceservice import KIND as SERVICE
from globalmanager.kinds.edge.model import KIND as MODEL
from globalmanager.kinds.training.pytorchjob import KIND as PYTORCH
from globalmanager.manifests.crds import crd
from tests.globalmanager.cluster import CRDS, LocalApi, Manager, User, run_manager
from tests.globalmanager.kinds.edge.samples import EDGEAI, joint_inference_spec
from tests.globalmanager.kinds.training.pytorchjob.test_autoscaler import elastic
from tests.support.waiting import async_eventually

KINDS: Final = (SERVICE, MODEL, PYTORCH)
HPA: Final = {"minReplicas": 1, "maxReplicas": 4}
TRAINING: Final = PYTORCH.definition.resources[0]


@pytest.fixture
async def manager(bare_cluster: LocalApi, user: User) -> AsyncIterator[Manager]:
    for kind in KINDS:
        await user.create(CRDS, crd(kind, kind.definition.resources[0]))
    await user.create(NODES, {"metadata": {"name": "edge0"}})
    for name in ("small", "big"):
        metadata = {"name": name, "namespace": "default"}
        await user.create(
            MODEL.definition.resources[0],
            {"metadata": metadata, "spec": {"url": f"/models/{name}.onnx"}},
        )
    async with run_manager(bare_cluster.kubeconfig, kinds=KINDS) as manager:
        yield manager


@pytest.mark.parametrize(
    ("type_", "spec", "name"),
    [
        (EDGEAI, joint_inference_spec(cloud={"hpa": HPA}), "hpa-digits-deployment-cloud"),
        (TRAINING, elastic(), "digits"),
    ],
    ids=["JointInferenceService", "PyTorchJob"],
)
async def test_what_somebody_edits_in_an_autoscaler_is_put_back(
    manager: Manager, user: User, type_: ResourceType, spec: dict[str, Any], name: str
) -> None:
    metadata = {"name": "digits", "namespace": "default"}
    await user.create(type_, {"metadata": metadata, "spec": spec})

    async def found() -> dict[str, Any] | None:
        return await user.get(AUTOSCALERS, name)

    await async_eventually("the autoscaler", found)
    ref = ObjectRef(AUTOSCALERS, "default", name)
    await user.client.merge_patch(ref, {"spec": {"maxReplicas": 40}})

    async def is_restored() -> bool:
        autoscaler = await found()
        assert autoscaler is not None
        assert autoscaler["spec"]["maxReplicas"] == 4, f"it is {autoscaler['spec']}"
        return True

    await async_eventually("four replicas at most", is_restored)
