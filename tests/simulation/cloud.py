"""A GlobalManager of the simulation: the shipped Core on the model of the API."""

from typing import Any, cast

from prometheus_client import CollectorRegistry

from common.tasks import TaskGroup
from edgeai.ids import NodeName
from edgeai.kube.client import KubeClient
from globalmanager.app import client_settings, end
from globalmanager.core import Core
from globalmanager.edge.metrics import EdgeMetrics
from globalmanager.engine.metrics import EngineMetrics
from globalmanager.ha.elector import Identity
from globalmanager.rootkey import get_root_key
from globalmanager.settings import Settings
from tests.simulation.api import Api
from tests.simulation.network import End, Network
from tests.simulation.transport import ApiTransport, Weather
from tests.simulation.world import Process, VirtualTime

GRACE_S = 40.0
SETTINGS = Settings(
    groups=("edgeai.io",),
    workers=4,
    watch_s=300.0,
    contact_grace_s=GRACE_S,
    lease_retry_s=4.0,
    node_path_prefixes=("/data",),
)


class SimulatedManager:
    """One process of one replica. After a crash another SimulatedManager takes its place.

    Args: replica: name that a restart keeps, like the name of a pod
    """

    def __init__(
        self, world: VirtualTime, replica: str, api: Api, weather: Weather, network: Network
    ) -> None:
        self.world = world
        self.replica = replica
        self.process = Process(world, world.new_id(replica))
        self.core: Core | None = None
        self._network = network
        self._serving = False
        with self.process.entered():
            transport = cast(Any, ApiTransport(world, self.process, api, weather))
            self._client = KubeClient(transport, client_settings(SETTINGS))
        network.listeners[replica] = self
        self.process.start(self._run())

    async def _run(self) -> None:
        """As `app.run`, without the two ports."""
        registry = CollectorRegistry()
        self.core = core = Core(
            SETTINGS,
            self._client,
            identity=Identity(self.replica, self.process.name.rpartition("-")[2]),
            metrics=EngineMetrics(registry),
            edge_metrics=EdgeMetrics(registry),
            clock=self.world,
        )
        root_key = await get_root_key(self._client, namespace=SETTINGS.system_namespace)
        async with TaskGroup() as tasks:
            core.start(tasks, root_key)
            presence = tasks.create_task(core.membership.presence.run(), name="presence")
            self._serving = True
            await core.membership.elector.run()
            await end(presence)

    # ---- the edge port, as far as the network needs it ------------------------------------------

    def refusal(self, node: str) -> int:
        if self.core is None or not self._serving or not self.core.can_open_sessions():
            return 503
        return 0 if self.core.sessions.must_wait_s(NodeName(node)) is None else 503

    def accept(self, node: str, connection: End) -> None:
        assert self.core is not None
        serving = self.core.sessions.serve(NodeName(node), cast(Any, connection))
        self.process.start(serving)

    def kill(self, *, is_silent: bool) -> None:
        self.process.kill()
        self._network.process_died(self.process, is_silent=is_silent)
