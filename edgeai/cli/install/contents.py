"""What a namespace holds that the installation has not made: it would go with the namespace."""

import asyncio
from functools import partial
from typing import Final

from edgeai.api.objects import controllers
from edgeai.api.resources import Object, ResourceType
from edgeai.cli.install.cluster import Cluster
from edgeai.kube.errors import NotFound
from globalmanager.ha.elector import LEASE_NAME
from globalmanager.rootkey import SECRET_NAME

_OF_KUBERNETES: Final = (
    *(("ServiceAccount", "default"), ("ConfigMap", "kube-root-ca.crt")),
    ("ConfigMap", "openshift-service-ca.crt"),
)
"""Kubernetes, or OpenShift, makes these in every namespace."""
_ACCOUNT: Final = "kubernetes.io/service-account.name"  # annotation of the token of an account
_PASSING: Final = ("events", "endpoints", "endpointslices", "leases")
"""Types of which nobody misses an object without the others that it is about."""
_AT_ONCE: Final = 16


async def of_others(cluster: Cluster) -> list[str]:
    """Objects of any type, jobs too, as "Kind name". What another object controls goes with it,
    and is left out. Raises: InstallError
    """
    types = await cluster.retried(cluster.client.namespaced_types)
    slots = asyncio.Semaphore(_AT_ONCE)

    async def listed(type_: ResourceType) -> list[Object]:
        async with slots:
            return await _objects(cluster, type_)

    types = [each for each in types if each.plural not in _PASSING]
    found: dict[str, str] = {}  # by uid: one object may be seen in two groups
    for type_, objects in zip(types, await asyncio.gather(*map(listed, types)), strict=True):
        for each in objects:
            if _is_foreign(cluster, type_.kind, each):
                metadata = each["metadata"]
                found.setdefault(metadata["uid"], f"{type_.kind} {metadata['name']}")
    return [*found.values()]


async def _objects(cluster: Cluster, type_: ResourceType) -> list[Object]:
    list_ = partial(cluster.client.list, type_, namespace=cluster.namespace, metadata_only=True)
    try:
        return (await cluster.retried(list_)).items
    except NotFound:
        return []  # its definition was deleted meanwhile


def _is_foreign(cluster: Cluster, kind: str, object_: Object) -> bool:
    metadata = object_["metadata"]
    name = str(metadata["name"])
    return not (
        cluster.is_ours(object_)
        or "deletionTimestamp" in metadata
        or controllers(object_)
        or (kind, name) in (*_OF_KUBERNETES, ("Secret", SECRET_NAME))
        or name.startswith(LEASE_NAME)
        or _ACCOUNT in (metadata.get("annotations") or {})
    )
