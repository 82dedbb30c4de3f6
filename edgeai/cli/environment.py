"""Runs a whole edgeai on this machine: a local cluster with edgeai in it.

Command, demos and tests call `up` and `down`. All files are in one directory, sockets on loopback.
"""

import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from edgeai.cli import interrupts, status, system
from edgeai.cli.api import Api, wait_until
from edgeai.errors import EdgeAIError, StateError
from edgeai.kubeconfig import kubeconfig_of
from edgeai.localcluster import process
from edgeai.localcluster.state import ClusterProcess, is_own
from globalmanager.kinds import KINDS
from globalmanager.manifests import crds

NODES_DIR: Final = "nodes"  # state of each LocalController


class Environment(msgspec.Struct, frozen=True):
    state_dir: Path
    cluster: ClusterProcess
    api: Api

    @property
    def kubeconfig(self) -> Path:
        return self.cluster.kubeconfig

    @property
    def remedy(self) -> str:
        """What a user can do when the GlobalManager does not answer."""
        pods = f"kubectl --kubeconfig {self.kubeconfig} --namespace {system.NAMESPACE} get pods"
        return f"see whether its pod runs: {pods}; or start again: edgeai down, then edgeai up"

    def rest_url(self) -> str:
        """Base URL of the GlobalManager's REST."""
        service = self.api.get(
            f"/api/v1/namespaces/{system.NAMESPACE}/services/{system.GLOBALMANAGER}"
        )
        return f"http://{service['spec']['clusterIP']}:{system.HTTP_PORT}"


def up(
    state_dir: Path,
    *,
    edges: tuple[str, ...] = system.EDGES,
    are_edges_isolated: bool = False,
    tuning: system.Tuning | None = None,
    pod_env: Mapping[str, str] | None = None,
    on_api: Callable[["Environment"], object] = lambda _environment: None,
    timeout_s: float = 60.0,
) -> Environment:
    """Start the local cluster and edgeai in it. Return when every edge has a session.

    Args:
        edges: names of the edge nodes
        are_edges_isolated: the edges reach the edge port of the GlobalManager and nothing else of
            the cluster; only root can start such a cluster
        pod_env: environment variables of every container
        on_api: called with the environment when the API runs, before edgeai starts
    Raises: StateError; EdgeAIError, which names what did not start. Then nothing runs.
    """
    state_dir = _own(state_dir)
    tuning = tuning or system.Tuning()
    isolated = edges if are_edges_isolated else ()
    cluster = process.start(
        state_dir,
        nodes=(system.CLOUD, *edges),
        pod_env=pod_env,
        isolated_nodes=isolated,
        openings=sorted({tuning.edge_port_of(node) for node in isolated}),
        timeout_s=timeout_s,
    )
    try:
        environment = Environment(state_dir, cluster, Api.from_kubeconfig(cluster.kubeconfig))
        on_api(environment)
        tokens = {node: secrets.token_urlsafe(32) for node in edges}
        _install_globalmanager(environment, tokens, tuning)
        # Wait, because an edge whose first dial fails waits for seconds before it dials again.
        wait_until(
            "start of the GlobalManager",
            lambda: missing_sessions(environment, ()),
            timeout_s=timeout_s,
        )
        access = system.ClusterAccess(cluster.api, environment.api.token)
        for node, token in tokens.items():
            own = None if node in isolated else access
            directory = state_dir / NODES_DIR / node
            for object_ in system.localcontroller(node, token, own, directory, tuning):
                environment.api.apply(object_)
        wait_until(
            "sessions of all edge nodes",
            lambda: missing_sessions(environment, edges),
            timeout_s=timeout_s,
        )
    except BaseException:
        with interrupts.held_back():
            process.stop(state_dir)
        raise
    return environment


def _install_globalmanager(
    environment: Environment, tokens: Mapping[str, str], tuning: system.Tuning
) -> None:
    definitions = [crds.crd(kind, type_) for kind in KINDS for type_ in kind.definition.resources]
    manifests = system.globalmanager(environment.kubeconfig, tokens, tuning)
    for object_ in definitions + manifests:
        environment.api.apply(object_)


def connect(state_dir: Path) -> Environment:
    """The environment that runs in `state_dir`. Raises: EdgeAIError if none runs there"""
    if running := find(state_dir):
        return running
    raise EdgeAIError(f"no local cluster runs in {state_dir.resolve()}; start one with: edgeai up")


def find(state_dir: Path) -> Environment | None:
    state_dir = state_dir.resolve()
    cluster = process.running(state_dir)
    if cluster is None:
        return None
    return Environment(state_dir, cluster, Api.from_kubeconfig(cluster.kubeconfig))


def target(path: Path | None, state_dir: Path, context: str = "") -> Environment | Path:
    """The local cluster if it is the one to use, else the kubeconfig to use.

    Args: context: of the kubeconfig; it need not be the local cluster's
    Raises: EdgeAIError when there is neither
    """
    running = find(state_dir)
    file = kubeconfig_of(path, state_dir)
    if running is not None and file.resolve() == running.kubeconfig.resolve():
        return file if context else running
    is_named = path is not None or bool(os.environ.get("KUBECONFIG"))
    if not is_named and not file.exists():
        connect(state_dir)  # raises, and says how to start a local cluster
    return file


def down(state_dir: Path) -> bool:
    """Stop the local cluster and remove the state directory.

    Returns: False if the state directory does not exist
    Raises: StateError if the directory has a file that edgeai did not create, and stays
    """
    state_dir = _own(state_dir)
    if not state_dir.exists():
        return False
    with interrupts.held_back():
        process.stop(state_dir)
        shutil.rmtree(state_dir)
    return True


def _own(state_dir: Path) -> Path:
    """Raises: StateError for a file that edgeai did not create, which `down` would remove"""
    state_dir = state_dir.resolve()
    try:
        names = sorted(entry.name for entry in state_dir.iterdir())
    except FileNotFoundError:
        return state_dir
    except OSError as error:
        problem = f"cannot be used: {error.strerror}"
        raise StateError(state_dir, problem, "give a directory of your own") from error
    foreign = [name for name in names if name != NODES_DIR and not is_own(name)]
    if foreign:
        problem = f"holds {foreign[0]!r}, which is not a local cluster's"
        raise StateError(state_dir, problem, "give an empty or new one, or move that away")
    return state_dir


def missing_sessions(environment: Environment, edges: tuple[str, ...]) -> str:
    """The edges without a session, or why the GlobalManager does not say; "" for none."""
    try:
        nodes = status.fetch(environment.rest_url(), "/api/v1/nodes")
    except status.RestUnavailable as error:
        return str(error)
    connected = {node["name"] for node in nodes if node.get("connected")}
    return ", ".join(f"{edge} has no session" for edge in edges if edge not in connected)
