"""Reads from the Kubernetes API what the checks need."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from edgeai import times
from edgeai.api.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    PODS,
    SECRETS,
    Object,
    ObjectRef,
    ResourceType,
)
from edgeai.cli.doctor.parts import installed_groups, served_groups
from edgeai.cli.doctor.rights import Denied, denied
from edgeai.kube.errors import Forbidden, NotFound
from edgeai.kube.user import About, UserClient, Version
from globalmanager.ha.elector import LEASES

DEFINITIONS: Final = ResourceType(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
)
DAEMON_SETS: Final = ResourceType("apps", "v1", "daemonsets", "DaemonSet")
_TYPES: Final = (DEFINITIONS, NODES, DEPLOYMENTS, DAEMON_SETS, PODS, LEASES, CONFIG_MAPS, SECRETS)

Objects = tuple[Object, ...] | Forbidden
"""The objects of one type, or the error that names the right which the caller lacks."""

AskAbout = Callable[[UserClient], Awaitable[About]]


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """An installation at one moment."""

    namespace: str
    is_namespace_there: bool | None
    """None where the caller may not read it."""
    now: datetime
    """Time of this machine's clock, in UTC."""
    clock: datetime
    """The same moment by the clock of the API server."""
    version: Version | None
    """Of Kubernetes; None where the API server tells none."""
    groups: tuple[str, ...]
    """The API groups that are installed, of those that the GlobalManager is told to serve."""
    objects: Mapping[ResourceType, Objects]
    """Of the namespace of edgeai, where the type has namespaces."""
    denied: Denied

    def of(self, type_: ResourceType) -> tuple[Object, ...]:
        """Raises: Forbidden, which names the right that the caller lacks"""
        objects = self.objects[type_]
        if isinstance(objects, Forbidden):
            raise objects
        return objects


async def gather(
    client: UserClient, namespace: str, now: times.Clock, about: AskAbout = UserClient.about
) -> Facts:
    """Read everything once. A right that the caller lacks is a fact.

    Args:
        now: this machine's clock
        about: asks the API server about itself
    Raises: ApiError when the API does not answer, or does not know the caller
    """

    async def of(type_: ResourceType) -> Objects:
        where = namespace if type_.namespaced else ""
        try:
            return tuple((await client.list(type_, namespace=where)).items)
        except NotFound:
            return ()  # the local cluster has no DaemonSets
        except Forbidden as error:
            return error

    # The first request fails alone when the API is away: its error is the answer to all.
    try:
        about_cluster = await about(client)
    except Forbidden as error:
        if not error.reason:
            raise  # a proxy's page, and no Kubernetes API
        about_cluster = About(None, None)
    moment = now()  # slow lists make no Lease look silent
    objects = dict(zip(_TYPES, await asyncio.gather(*map(of, _TYPES)), strict=True))
    definitions, deployments = objects[DEFINITIONS], objects[DEPLOYMENTS]
    groups = () if isinstance(definitions, Forbidden) else installed_groups(definitions)
    if not isinstance(deployments, Forbidden):
        groups = tuple(group for group in groups if group in served_groups(deployments))
    return Facts(
        namespace=namespace,
        is_namespace_there=await _is_there(client, namespace),
        now=moment,
        clock=about_cluster.clock or moment,
        version=about_cluster.version,
        groups=groups,
        objects=objects,
        denied=await denied(client, namespace, groups),
    )


async def _is_there(client: UserClient, namespace: str) -> bool | None:
    try:
        await client.get(ObjectRef(NAMESPACES, "", namespace))
    except NotFound:
        return False
    except Forbidden:
        return None
    return True
