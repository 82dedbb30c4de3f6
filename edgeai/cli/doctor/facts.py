"""Reads from the Kubernetes API what the checks need."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final

import msgspec

from edgeai import times
from edgeai.api.resources import (
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
from globalmanager.ha.presence import CONFIG_MAPS

DEFINITIONS: Final = ResourceType(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
)
DAEMON_SETS: Final = ResourceType("apps", "v1", "daemonsets", "DaemonSet")

Objects = tuple[Object, ...] | Forbidden
"""The objects of one type, or the error that names the right which the caller lacks."""


AskAbout = Callable[[UserClient], Awaitable[About]]


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """An installation at one moment. All but definitions and nodes are objects of the namespace of
    edgeai.
    """

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
    definitions: Objects
    nodes: Objects
    deployments: Objects
    daemon_sets: Objects
    pods: Objects
    leases: Objects
    config_maps: Objects
    secrets: Objects
    denied: Denied


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
    namespaced = (DEPLOYMENTS, DAEMON_SETS, PODS, LEASES, CONFIG_MAPS, SECRETS)
    definitions, nodes, *others = await asyncio.gather(*map(of, (DEFINITIONS, NODES, *namespaced)))
    deployments, daemon_sets, pods, leases, config_maps, secrets = others
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
        definitions=definitions,
        nodes=nodes,
        deployments=deployments,
        daemon_sets=daemon_sets,
        pods=pods,
        leases=leases,
        config_maps=config_maps,
        secrets=secrets,
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
