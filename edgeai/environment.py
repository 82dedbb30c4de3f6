"""A whole edgeai on this machine: the local cluster, and edgeai running in it.

`up` and `down` for the command, the demos and the tests. Everything lives under one state
directory; nothing listens beyond loopback.
"""

import shutil
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

import msgspec

from common.errors import EdgeAIError, StateError
from edgeai import system
from edgeai.api import Api, Object, wait_until
from globalmanager import crds
from localcluster import process

CLOUD: Final = "cloud0"
EDGES: Final = ("edge0", "edge1")


class Environment(msgspec.Struct, frozen=True):
    """A running edgeai."""

    state_dir: Path
    cluster: process.ClusterProcess
    api: Api

    @property
    def kubeconfig(self) -> Path:
        return self.cluster.kubeconfig

    def rest_url(self) -> str:
        """Base URL of the GlobalManager's REST."""
        service = self.api.get(
            f"/api/v1/namespaces/{system.NAMESPACE}/services/{system.GLOBALMANAGER}"
        )
        return f"http://{service['spec']['clusterIP']}:{system.HTTP_PORT}"


def up(
    state_dir: Path,
    *,
    edges: tuple[str, ...] = EDGES,
    tuning: system.Tuning | None = None,
    timeout_s: float = 60.0,
) -> Environment:
    """Start the local cluster and edgeai in it; returns when every edge has its session.

    Raises: StateError, EdgeAIError naming what did not come up; nothing is left running then
    """
    cluster = process.start(state_dir, nodes=(CLOUD, *edges), timeout_s=timeout_s)
    try:
        environment = Environment(state_dir, cluster, Api.from_kubeconfig(cluster.kubeconfig))
        _install(environment, edges, tuning or system.Tuning())
        wait_until(
            "sessions of all edge nodes",
            lambda: missing_sessions(environment, edges),
            timeout_s=timeout_s,
        )
    except BaseException:
        process.stop(state_dir)
        raise
    return environment


def connect(state_dir: Path) -> Environment:
    """The environment that runs in `state_dir`. Raises: EdgeAIError when there is none."""
    cluster = process.running(state_dir)
    if cluster is None:
        raise EdgeAIError(f"no local cluster runs in {state_dir}; start one with: edgeai up")
    return Environment(state_dir, cluster, Api.from_kubeconfig(cluster.kubeconfig))


def down(state_dir: Path) -> bool:
    """Stop everything and remove the state directory; False when there was nothing.

    Raises: StateError for a directory that is not edgeai's, and leaves it as it is
    """
    if not state_dir.exists():
        return False
    if any(state_dir.iterdir()) and not process.is_state_dir(state_dir):
        raise StateError(state_dir, "is not a local cluster's", "give the one that `up` used")
    process.stop(state_dir)
    shutil.rmtree(state_dir)
    return True


def _install(environment: Environment, edges: tuple[str, ...], tuning: system.Tuning) -> None:
    objects: list[Object] = list(crds.manifests())
    objects += system.manifests(
        kubeconfig=environment.kubeconfig,
        edges=edges,
        state_dir=environment.state_dir,
        tuning=tuning,
    )
    for object_ in objects:
        environment.api.apply(object_)


def missing_sessions(environment: Environment, edges: tuple[str, ...]) -> str:
    """Which edges have no session yet; "" when all have."""
    try:
        nodes = nodes_of(environment.rest_url())
    except (urllib.error.URLError, OSError, ValueError, EdgeAIError) as error:
        return f"GlobalManager does not answer yet ({error})"
    connected = {node["name"] for node in nodes if node.get("connected")}
    return ", ".join(f"{edge} has no session" for edge in edges if edge not in connected)


def nodes_of(rest_url: str) -> list[Object]:
    """GET /api/v1/nodes. Raises: URLError, OSError, ValueError"""
    with urllib.request.urlopen(f"{rest_url}/api/v1/nodes", timeout=5) as response:
        answer: Object = msgspec.json.decode(response.read())
    items: list[Object] = answer["items"]
    return items
