"""Where `edgeai status` reads: the GlobalManager's REST, or the Kubernetes API where no REST is in
reach. The API knows the jobs and the sessions, but neither tasks nor the times of reports.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from edgeai import times
from edgeai.api.resources import CONFIG_MAPS, NODES, Object, ResourceType
from edgeai.cli import environment, status
from edgeai.cli.doctor.edges import nodes_served
from edgeai.cli.options import Cluster
from edgeai.cli.status import RestUnavailable, Status
from edgeai.cli.system import NAMESPACE
from edgeai.client.asynchronous import AsyncClient
from edgeai.client.objects import TYPES
from edgeai.errors import EdgeAIError
from edgeai.ids import NodeName
from edgeai.kube.errors import Forbidden, NotFound
from globalmanager.ha.claims import Claim, ClaimsError
from globalmanager.ha.elector import LEASES
from globalmanager.kinds.training.edge_placement import is_edge

_REMEDY_OF_URL: Final = "check --url, which is its HTTP port, and whether the GlobalManager runs"


def source_of(url: str, cluster: Cluster) -> Callable[[], Status]:
    """A reader of the status.

    Args:
        url: of the REST; "" for the REST of the local cluster if that is meant, else the API
        cluster: its namespace is that of the jobs and scalers; "" for all namespaces
    Raises: EdgeAIError when there is nothing to read from
    """
    target = None
    if not url:
        target = environment.target(cluster.kubeconfig, cluster.state_dir, cluster.context)

    def read() -> Status:
        if isinstance(target, environment.Environment):
            return from_local(target)
        if target is not None:
            return asyncio.run(from_api(target, cluster.context))
        try:
            return status.from_rest(url)
        except RestUnavailable as error:
            raise EdgeAIError(f"{error}; {_REMEDY_OF_URL}") from error

    return lambda: read().in_namespace(cluster.namespace)


def from_local(running: environment.Environment) -> Status:
    """From the REST of the local cluster; from its API where the REST does not answer."""
    try:
        return status.from_rest(running.rest_url())
    except RestUnavailable as error:
        snapshot = asyncio.run(from_api(running.kubeconfig))
        snapshot.unknown.append(f"{error}; {running.remedy}; this is what the Kubernetes API has")
        return snapshot


async def from_api(kubeconfig: Path, context: str = "") -> Status:
    """What the Kubernetes API has. A right that the caller lacks is told.

    Raises: SettingsError, ApiError
    """
    unknown: list[str] = []
    async with await AsyncClient.open(kubeconfig, context=context) as client:

        async def of(type_: ResourceType, namespace: str = "") -> list[Object]:
            try:
                return (await client.kube.list(type_, namespace=namespace)).items
            except NotFound:
                return []  # the definition is not installed
            except Forbidden as error:
                unknown.append(str(error))
                return []

        kinds = [type_ for type_ in TYPES if type_.plural in _PLURALS]
        nodes = await of(NODES)  # alone: when the API is away, one error is the answer to all
        leases, config_maps, *objects = await asyncio.gather(
            of(LEASES, NAMESPACE), of(CONFIG_MAPS, NAMESPACE), *map(of, kinds)
        )
    sessions: Mapping[NodeName, Claim] | None = None
    if not any(str(kind) in text for text in unknown for kind in (LEASES, CONFIG_MAPS)):
        try:
            sessions = nodes_served(leases, config_maps, times.utc_now())
        except ClaimsError as error:
            unknown.append(f"a ConfigMap of a GlobalManager cannot be read: {error}")
    items = [object_ for group in objects for object_ in group]
    scalers = [one for one in items if one["kind"] in _SCALERS]
    jobs = [one for one in items if one["kind"] not in _SCALERS]
    return Status([_node(node, sessions) for node in nodes], jobs, scalers, unknown)


_SCALERS: Final = ("ScaleOut", "ScaleIn")
_PLURALS: Final = (*status.JOB_PLURALS, *status.SCALER_PLURALS)


def _node(node: Object, sessions: Mapping[NodeName, Claim] | None) -> Object:
    """A node in the form of the REST. What the API does not know is null."""
    name = node["metadata"]["name"]
    claim = (sessions or {}).get(name)
    ends_on = None if claim is None else claim.certificate_ends_on
    return {
        "name": name,
        "inCluster": True,
        "isEdge": is_edge(node),
        "connected": None if sessions is None else name in sessions,
        "since": None,
        "problem": "",
        "certificateEndsOn": None if ends_on is None else str(ends_on),
        "tasksDesired": None,
        "tasksHeld": None,
        "session": None,
    }
