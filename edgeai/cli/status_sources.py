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
from edgeai.cli.doctor.edges import is_edge, nodes_served
from edgeai.cli.status import RestUnavailable, Status
from edgeai.cli.system import NAMESPACE
from edgeai.client.asynchronous import OF_A_USER
from edgeai.client.objects import types_of
from edgeai.errors import EdgeAIError
from edgeai.ids import NodeName
from edgeai.kube.client import KubeClient
from edgeai.kube.errors import Forbidden, NotFound
from globalmanager.ha.claims import Claim, ClaimsError
from globalmanager.ha.elector import LEASES

_REMEDY_OF_URL: Final = "check --url, which is its HTTP port, and whether the GlobalManager runs"


def source_of(
    url: str, kubeconfig: Path | None, state_dir: Path, context: str, namespace: str
) -> Callable[[], Status]:
    """A reader of the status.

    Args:
        url: of the REST; "" for the REST of the local cluster if that is meant, else the API
        context: of the kubeconfig; "" for the current context
        namespace: of the jobs and scalers; "" for all namespaces
    Raises: EdgeAIError when there is nothing to read from
    """
    cluster = environment.target(kubeconfig, state_dir) if not url else None

    def read() -> Status:
        if cluster is None:
            return _from_url(url)
        if isinstance(cluster, environment.Environment) and not context:
            return from_local(cluster)
        file = cluster.kubeconfig if isinstance(cluster, environment.Environment) else cluster
        return asyncio.run(from_api(file, context))

    return lambda: read().in_namespace(namespace)


def _from_url(url: str) -> Status:
    try:
        return status.from_rest(url)
    except RestUnavailable as error:
        raise EdgeAIError(f"{error}; {_REMEDY_OF_URL}") from error


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
    async with await KubeClient.from_kubeconfig(kubeconfig, OF_A_USER, context=context) as client:

        async def of(type_: ResourceType, namespace: str = "") -> list[Object]:
            try:
                return (await client.list(type_, namespace=namespace)).items
            except NotFound:
                return []  # the definition is not installed
            except Forbidden as error:
                unknown.append(str(error))
                return []

        kinds = [type_ for type_ in types_of() if type_.plural in _PLURALS]
        nodes = await of(NODES)  # alone: when the API is away, one error is the answer to all
        leases, config_maps, *objects = await asyncio.gather(
            of(LEASES, NAMESPACE), of(CONFIG_MAPS, NAMESPACE), *map(of, kinds)
        )
    has_sessions = not any(str(kind) in text for text in unknown for kind in (LEASES, CONFIG_MAPS))
    sessions = _served(leases, config_maps, unknown) if has_sessions else None
    items = [object_ for group in objects for object_ in group]
    scalers = [one for one in items if one["kind"] in _SCALERS]
    jobs = [one for one in items if one["kind"] not in _SCALERS]
    return Status([_node(node, sessions) for node in nodes], jobs, scalers, unknown)


_SCALERS: Final = ("ScaleOut", "ScaleIn")
_PLURALS: Final = (*status.JOB_PLURALS, *status.SCALER_PLURALS)


def _served(
    leases: list[Object], config_maps: list[Object], unknown: list[str]
) -> Mapping[NodeName, Claim] | None:
    try:
        return nodes_served(leases, config_maps, times.utc_now())
    except ClaimsError as error:
        unknown.append(f"a ConfigMap of a GlobalManager cannot be read: {error}")
        return None


def _node(node: Object, sessions: Mapping[NodeName, Claim] | None) -> Object:
    """A node in the form of the REST. What the API does not know is null."""
    name = node["metadata"]["name"]
    connected = None if sessions is None else name in sessions
    claim = (sessions or {}).get(name)
    ends_on = None if claim is None else claim.certificate_ends_on
    return {
        "name": name,
        "inCluster": True,
        "isEdge": is_edge(node),
        "connected": connected,
        "since": None,
        "problem": "",
        "certificateEndsOn": None if ends_on is None else str(ends_on),
        "tasksDesired": None,
        "tasksHeld": None,
        "session": None,
    }
