"""Runs all parts of a cluster: store, API server, controllers, kubelet, service proxy.

One TaskGroup owns every task. A task that fails ends the cluster, so a running one is complete.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from common.logs import get_logger
from common.settings import Env
from common.tasks import TaskGroup
from edgeai.errors import SettingsError
from edgeai.localcluster.api.server import Server, serve
from edgeai.localcluster.controllers.deployments import DeploymentController
from edgeai.localcluster.controllers.garbage_collector import GarbageCollector
from edgeai.localcluster.controllers.scheduler import Scheduler
from edgeai.localcluster.errors import ClusterError, StateError
from edgeai.localcluster.kubelet.accounts import ApiAccess
from edgeai.localcluster.kubelet.container import ContainerSettings
from edgeai.localcluster.kubelet.kubelet import Kubelet
from edgeai.localcluster.kubelet.nodes import register_nodes
from edgeai.localcluster.kubelet.pod import PodHost
from edgeai.localcluster.kubelet.process import Reaper
from edgeai.localcluster.network.addresses import AddressPool, Network, claim_network
from edgeai.localcluster.network.isolation import Isolation, Opening, isolation
from edgeai.localcluster.network.listener import Listener
from edgeai.localcluster.network.pod_addresses import PodAddresses
from edgeai.localcluster.network.service_proxy import ServiceProxy
from edgeai.localcluster.objects.errors import APIError
from edgeai.localcluster.objects.store import Store
from edgeai.localcluster.state import (
    ClusterProcess,
    StateDirectory,
    lock_directory,
    start_ticks,
    write_kubeconfig,
)
from edgeai.times import utc_now

log = get_logger(__name__)

STOP_LIMIT_S = 7.0
"""Longest grace of a pod, in seconds, when the cluster stops: keeps the whole stop below 10 s."""
Ready = Callable[[Store, ClusterProcess], None]
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ClusterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the command line and of the environment."""

    state_dir: Annotated[Path, Env("LOCALCLUSTER_STATE_DIR")]
    """directory of the cluster's objects and pods"""
    nodes: Annotated[tuple[str, ...], Env("LOCALCLUSTER_NODES")] = ("cloud0", "edge0", "edge1")
    """names of the nodes; one that begins with "cloud" is a cloud node"""
    pod_env: Annotated[dict[str, str], Env("LOCALCLUSTER_POD_ENV")] = {}
    """environment variables of every container"""
    isolated_nodes: Annotated[tuple[str, ...], Env("LOCALCLUSTER_ISOLATED_NODES")] = ()
    """nodes whose pods reach only each other and --openings; needs root"""
    openings: Annotated[tuple[str, ...], Env("LOCALCLUSTER_OPENINGS")] = ()
    """what isolated nodes reach: SERVICE.NAMESPACE:PORT or ADDRESS:PORT"""
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Env("LOCALCLUSTER_LOG_LEVEL")
    ] = "info"
    """least severe message that is logged"""


class Cluster:
    """One local cluster. The cluster lives from `run` to `stop`. Raises: SettingsError"""

    def __init__(
        self,
        settings: ClusterSettings,
        *,
        containers: ContainerSettings = ContainerSettings(),  # noqa: B008 - frozen
    ) -> None:
        if not settings.nodes:
            raise SettingsError("flag --nodes", "must name one node at least")
        self._settings = settings
        self._openings = tuple(map(_opening, settings.openings))
        self._containers = containers
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Ask the cluster to stop. Returns at once; `run` returns when the cluster has stopped."""
        self._stopping.set()

    async def run(self, ready: Ready = lambda _, __: None) -> None:
        """Run the cluster until `stop` is called. Call `ready` once, when clients can connect.

        Raises: StateError when the state directory cannot be used; ClusterError when the cluster
            cannot start for another reason; ExceptionGroup when a task of the cluster failed
        """
        async with contextlib.AsyncExitStack() as stack:
            state = stack.enter_context(lock_directory(self._settings.state_dir))
            network = stack.enter_context(contextlib.closing(claim_network(state.network())))
            state.record_network(network.number)
            store = stack.enter_context(contextlib.closing(Store(state.database)))
            reaper = stack.enter_context(contextlib.closing(Reaper(self._settings.state_dir)))
            isolated = stack.enter_context(isolation(self._settings.isolated_nodes, self._openings))
            nodes = self._register_nodes(store, network)
            server = await serve(store, token=state.token(), host=network.api_host)
            stack.push_async_callback(server.close)
            for bridge in await _bridges(isolated):
                stack.push_async_callback(bridge.close)
            # A container finds the cluster's python3 first, then the commands of the cluster's
            # virtual environment, then the commands of the machine.
            path = f"{state.bin}:{Path(sys.executable).parent}:{SYSTEM_PATH}"
            host = PodHost(
                store=store,
                reaper=reaper,
                addresses=PodAddresses(store, AddressPool("pod", network.pods())),
                pods_directory=state.pods,
                base_env={"PATH": path, "LANG": "C.UTF-8"} | self._settings.pod_env,
                settings=self._containers,
                access=ApiAccess(host=network.api_host, port=server.port, token=state.token()),
                isolation=isolated,
            )
            kubelet = Kubelet(nodes, host)
            server.api.log_source, server.api.exec_target = kubelet.logs, kubelet.execute
            proxy = ServiceProxy(store, AddressPool("Service", network.services()), isolated)
            running = _describe(server, state, network, nodes)
            write_kubeconfig(state.kubeconfig, url=server.url, token=state.token())
            async with self._tasks(host, kubelet, proxy):
                state.write_running(running)
                log.info("cluster ready", api=running.api, network=running.network, nodes=nodes)
                ready(store, running)
                await self._stopping.wait()
                log.info("cluster stopping")
                state.clear_running()

    @contextlib.asynccontextmanager
    async def _tasks(
        self, host: PodHost, kubelet: Kubelet, proxy: ServiceProxy
    ) -> AsyncIterator[None]:
        """Run all tasks. Controllers end first: they would replace the pods that stop."""
        async with TaskGroup() as tasks:
            controllers = [
                tasks.create_task(controller.run(), name=controller.name)
                for controller in (
                    DeploymentController(host.store),
                    Scheduler(host.store),
                    GarbageCollector(host.store),
                )
            ]
            node_tasks = [
                tasks.create_task(host.reaper.guard(), name="reaper"),
                tasks.create_task(proxy.run(), name=proxy.name),
                tasks.create_task(kubelet.run(), name=kubelet.name),
            ]
            yield
            for task in controllers:
                task.cancel()
            await kubelet.stop(STOP_LIMIT_S)
            for task in node_tasks:
                task.cancel()

    def _register_nodes(self, store: Store, network: Network) -> dict[str, str]:
        try:
            return register_nodes(store, network, dict.fromkeys(self._settings.nodes), utc_now)
        except APIError as error:
            raise ClusterError(f"--nodes: {error.message}") from error


def _opening(text: str) -> Opening:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise SettingsError("flag --openings", f"{text!r} is not HOST:PORT")
    return Opening(host, int(port))


async def _bridges(isolation: Isolation) -> list[Listener]:
    """Listen for the openings of isolated nodes that are addresses. Raises: OSError"""
    return [
        await Listener.open(*opening, isolation.networks_that_reach(opening), is_bridge=True)
        for opening in isolation.openings
        if opening.is_address
    ]


def _describe(
    server: Server, state: StateDirectory, network: Network, nodes: dict[str, str]
) -> ClusterProcess:
    pid = os.getpid()
    ticks = start_ticks(pid)
    if ticks is None:
        raise StateError("/proc is not mounted: the local cluster needs Linux with /proc")
    return ClusterProcess(
        pid=pid,
        start_ticks=ticks,
        api=server.url,
        network=network.prefix,
        nodes=nodes,
        kubeconfig=state.kubeconfig,
    )
