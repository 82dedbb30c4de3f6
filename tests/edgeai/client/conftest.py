"""An API with the definitions of edgeai and no GlobalManager: the tests write the statuses."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from edgeai.api.resources import PODS, Object, ObjectRef
from edgeai.client import AsyncClient
from edgeai.times import rfc3339, utc_now
from tests.globalmanager.cluster import LocalApi
from tests.support.manifests import owned_by


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalApi]:
    async with LocalApi(tmp_path, is_installed=True) as cluster:
        yield cluster


@pytest.fixture
async def client(cluster: LocalApi) -> AsyncIterator[AsyncClient]:
    async with await AsyncClient.open(cluster.kubeconfig) as client:
        yield client


async def tell(client: AsyncClient, ref: ObjectRef, *conditions: Object, **status: Any) -> None:
    """Write a status, as a GlobalManager does."""
    patch = {"status": {"conditions": list(conditions), "observedGeneration": 1, **status}}
    await client.kube.merge_patch(ref, patch, subresource="status")


def condition(type_: str, truth: str, reason: str, message: str = "") -> Object:
    return {
        "type": type_,
        "status": truth,
        "reason": reason,
        "message": message,
        "lastTransitionTime": rfc3339(utc_now()),
        "observedGeneration": 1,
    }


async def add_pod(
    client: AsyncClient, name: str, owner: Object | None, node: str = "", **status: Any
) -> Object:
    """A pod, the controller of which is `owner`."""
    metadata: Object = {
        "name": name,
        "namespace": "default",
        "labels": {"edgeai.io/name": "digits"},
    }
    if owner is not None:
        metadata["ownerReferences"] = owned_by(owner, controller=True)
    spec: Object = {"containers": [{"name": "main", "image": "any"}]}
    spec |= {"nodeName": node} if node else {}
    made = await client.kube.create(PODS, {"metadata": metadata, "spec": spec})
    if status:
        ref = ObjectRef(PODS, "default", name)
        made = await client.kube.merge_patch(ref, {"status": status}, subresource="status")
    return made
