"""Reads from the Kubernetes API what the checks need. Called by `diagnosis`."""

import asyncio
from datetime import datetime
from typing import Final

import msgspec

from common import times
from edgeai.doctor.parts import installed_groups, served_groups
from edgeai.doctor.rights import Denied, denied
from globalmanager.contract import DEPLOYMENTS, NODES, PODS, SECRETS, Object, ResourceType
from globalmanager.ha.elector import LEASES
from globalmanager.ha.presence import CONFIG_MAPS
from globalmanager.kube.client import KubeClient
from globalmanager.kube.errors import Forbidden, NotFound

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


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """An installation at one moment. All but definitions and nodes are objects of the namespace of
    edgeai. `now` is this machine's clock, in UTC.
    """

    namespace: str
    now: datetime
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


async def gather(client: KubeClient, namespace: str, now: times.Clock) -> Facts:
    """Read everything once. A right that the caller lacks is a fact.

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

    moment = now()  # slow lists make no Lease look silent
    # The first request fails alone when the API is away: its error is the answer to all.
    try:
        nodes: Objects = tuple((await client.list(NODES)).items)
    except Forbidden as error:
        if not error.reason:
            raise  # a proxy's page, and no Kubernetes API
        nodes = error
    namespaced = (DEPLOYMENTS, DAEMON_SETS, PODS, LEASES, CONFIG_MAPS, SECRETS)
    definitions, *others = await asyncio.gather(of(DEFINITIONS), *map(of, namespaced))
    deployments, daemon_sets, pods, leases, config_maps, secrets = others
    groups = () if isinstance(definitions, Forbidden) else installed_groups(definitions)
    if not isinstance(deployments, Forbidden):
        groups = tuple(group for group in groups if group in served_groups(deployments))
    return Facts(
        namespace=namespace,
        now=moment,
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
