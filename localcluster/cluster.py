"""Joins everything: store, API server, collector, controllers, kubelets and service proxy.

Started by __main__, and by tests within their own loop. One TaskGroup owns every task. A task that
fails ends the cluster: a part that is missing in silence would be worse.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from common.logs import get_logger
from common.tasks import TaskGroup
from localcluster import kubeconfig
from localcluster.api.server import Server, serve
from localcluster.clock import Clock, utcnow
from localcluster.controllers.deployment_controller import DeploymentController
from localcluster.controllers.garbage_collector import Collector
from localcluster.controllers.scheduler import Scheduler
from localcluster.errors import ClusterError, StateError
from localcluster.kubelet.container import ContainerSettings
from localcluster.kubelet.kubelet import Kubelet, KubeletLogs, sweep_pod_directories
from localcluster.kubelet.launch import Image
from localcluster.kubelet.nodes import register_nodes
from localcluster.kubelet.pod import PodHost
from localcluster.kubelet.process import Reaper
from localcluster.network.addresses import AddressPool, Network, claim_network
from localcluster.network.service_proxy import ServiceProxy
from localcluster.objects.errors import APIError
from localcluster.objects.store import Store
from localcluster.state import Running, StateDirectory, hold, start_ticks

log = get_logger(__name__)

STOP_LIMIT_S = 7.0
"""What pods get when the cluster stops, whatever their grace: the whole stop takes under 10 s."""
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ClusterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a cluster is run."""

    state_dir: Path
    nodes: tuple[str, ...] = ("cloud0", "edge0", "edge1")
    """A name that begins with "cloud" makes a cloud node, any other an edge node."""
    api_port: int = 0
    """On the cluster's own API address; 0: any free one."""
    pod_env: Mapping[str, str] = {}
    """Environment variables of every container."""
    images: Mapping[str, Image] = {}
    """What to run for containers that have no command, by image name."""
    containers: ContainerSettings = ContainerSettings()


class Cluster:
    """One local cluster; `run` is its life, `stop` asks it to end."""

    def __init__(self, settings: ClusterSettings, *, now: Clock = utcnow) -> None:
        self._settings = settings
        self._now = now
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Returns at once; `run` returns when everything has ended."""
        self._stopping.set()

    async def run(self, ready: Callable[[Store, Running], None] = lambda _, __: None) -> None:
        """Until `stop`; `ready` is called once when clients may come.

        Raises: StateError when the state directory cannot be used; ClusterError for what else
            makes a start impossible; ExceptionGroup of what ended a part of it
        """
        with contextlib.ExitStack() as stack:
            state = stack.enter_context(hold(self._settings.state_dir))
            network = claim_network(state.network())
            stack.callback(network.close)
            state.record_network(network.number)
            store = Store(state.database, now=self._now)
            stack.callback(store.close)
            reaper = stack.enter_context(Reaper(self._settings.state_dir))
            await self._serve(state, network, store, reaper, ready)

    async def _serve(
        self,
        state: StateDirectory,
        network: Network,
        store: Store,
        reaper: Reaper,
        ready: Callable[[Store, Running], None],
    ) -> None:
        nodes = self._register_nodes(store, network)
        sweep_pod_directories(store, state.pods)
        host = self._pod_host(state, network, store, reaper)
        kubelets = [Kubelet(name, address, host) for name, address in nodes.items()]
        server = await serve(
            store,
            token=state.token(),
            host=network.api_host,
            port=self._settings.api_port,
            now=self._now,
        )
        try:
            server.set_log_source(KubeletLogs(store, state.pods, kubelets))
            running = _describe(server, network, nodes)
            kubeconfig.write(state.kubeconfig, url=server.url, token=state.token())
            async with TaskGroup() as tasks:
                makers = self._start_makers(tasks, store)
                runners = self._start_runners(tasks, store, network, reaper, kubelets)
                state.write_running(running)
                log.info("cluster ready", api=running.api, network=running.network, nodes=nodes)
                ready(store, running)
                await self._stopping.wait()
                log.info("cluster stopping")
                state.clear_running()
                await _end(makers, kubelets, runners)
        finally:
            await server.close()

    def _start_makers(self, tasks: TaskGroup, store: Store) -> list[asyncio.Task[None]]:
        """What makes and removes objects: stopped first, so that nothing replaces what stops."""
        return [
            tasks.create_task(DeploymentController(store, now=self._now).run(), name="deployments"),
            tasks.create_task(Scheduler(store, now=self._now).run(), name="scheduler"),
            tasks.create_task(Collector(store).run(), name="collector"),
        ]

    def _start_runners(
        self,
        tasks: TaskGroup,
        store: Store,
        network: Network,
        reaper: Reaper,
        kubelets: list[Kubelet],
    ) -> list[asyncio.Task[None]]:
        proxy = ServiceProxy(store, AddressPool("Service", network.services()))
        return [
            tasks.create_task(reaper.guard(), name="reaper"),
            tasks.create_task(proxy.run(), name="service proxy"),
            *(tasks.create_task(kubelet.run(), name=kubelet.name) for kubelet in kubelets),
        ]

    def _register_nodes(self, store: Store, network: Network) -> dict[str, str]:
        try:
            return register_nodes(store, network, self._settings.nodes, self._now)
        except APIError as error:
            raise ClusterError(f"--nodes: {error.message}") from error

    def _pod_host(
        self, state: StateDirectory, network: Network, store: Store, reaper: Reaper
    ) -> PodHost:
        # First the interpreter that runs the cluster, then the commands that are installed
        # beside it, then the machine's.
        path = f"{state.bin}:{Path(sys.executable).parent}:{SYSTEM_PATH}"
        return PodHost(
            store=store,
            reaper=reaper,
            addresses=AddressPool("pod", network.pods()),
            pods_directory=state.pods,
            base_env={"PATH": path, "LANG": "C.UTF-8"} | dict(self._settings.pod_env),
            images=self._settings.images,
            settings=self._settings.containers,
            now=self._now,
        )


async def _end(
    makers: list[asyncio.Task[None]],
    kubelets: list[Kubelet],
    runners: list[asyncio.Task[None]],
) -> None:
    for task in makers:
        task.cancel()
    await asyncio.gather(*(kubelet.stop(STOP_LIMIT_S) for kubelet in kubelets))
    for task in runners:
        task.cancel()


def _describe(server: Server, network: Network, nodes: dict[str, str]) -> Running:
    pid = os.getpid()
    ticks = start_ticks(pid)
    if ticks is None:
        raise StateError("/proc is not mounted: the local cluster needs Linux with /proc")
    return Running(pid=pid, start_ticks=ticks, api=server.url, network=network.prefix, nodes=nodes)
