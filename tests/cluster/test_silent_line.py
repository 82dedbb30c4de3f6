"""A line to the API server that died in silence: what was missed comes soon after its return.

Two replicas with the default timings, each behind a line of its own and with an edge of its own.
The old connections of a cut line never pass anything again, as behind a NAT that forgot them.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from edgeai.api import Object, wait_until
from tests.cluster.client import Client
from tests.cluster.controlplane import ControlPlane
from tests.cluster.edge import Edge
from tests.cluster.lines import ApiLine
from tests.cluster.manager import GlobalManager
from tests.cluster.samples import model, service

EDGE_OF: Final = {"east": "edge0", "west": "edge1"}
TOKENS: Final = {node: f"secret-of-{node}" for node in EDGE_OF.values()}
SILENT_S: Final = 20.0
RETURN_S: Final = 10.0  # after the line's return an assignment must come within this
SETTLE_S: Final = 60.0


class Replica:
    """A GlobalManager, its line to the API server, and the edge that it serves."""

    def __init__(
        self, name: str, control_plane: ControlPlane, namespace: str, directory: Path
    ) -> None:
        self.name, self.node = name, EDGE_OF[name]
        self.line = ApiLine(control_plane.url, ca=control_plane.ca)
        self._token = control_plane.token
        self._namespace = namespace
        self._directory = directory

    def start(self, stack: ExitStack) -> None:
        stack.enter_context(self.line)
        self._directory.mkdir()
        kubeconfig = self._directory / "kubeconfig"
        self.manager = GlobalManager(
            kubeconfig=self.line.write_kubeconfig(kubeconfig, token=self._token),
            system_namespace=self._namespace,
            directory=self._directory,
            tokens=TOKENS,
            flags=("--replica-name", self.name),
        )
        self.manager.launch()
        stack.callback(self.manager.stop, signal.SIGKILL)
        self.edge = Edge(
            self.node,
            token=TOKENS[self.node],
            port=int(self.manager.edge_address.rpartition(":")[2]),
            directory=self._directory,
        )
        self.edge.start()
        stack.callback(self.edge.stop, signal.SIGKILL)

    def leads(self) -> bool:
        return any(self.manager.metric("edgeai_leading").values())

    def wait_for_task(self, job: Object, *, timeout_s: float = SETTLE_S) -> None:
        name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]

        def missing() -> str:
            held = self.edge.tasks(namespace)
            return "" if name in held else f"it holds {sorted(held)}"

        wait_until(f"{name} on {self.node}", missing, timeout_s=timeout_s, poll_s=0.05)


class World:
    def __init__(self, client: Client, namespace: str, replicas: tuple[Replica, ...]) -> None:
        self.client, self.namespace, self.replicas = client, namespace, replicas

    def follower(self) -> Replica:
        return next(each for each in self.replicas if not each.leads())

    def create_job(self, name: str, node: str) -> Object:
        return self.client.create(
            service(self.namespace, name=name, edge={"nodeName": node}),
        )

    def cut_for(self, silent_s: float, *cut: Replica) -> dict[str, float]:
        """In that time a job for each of their edges is created.

        Args:
            silent_s: 0 for a line of which only the connections of now die
        Returns: of each, after how many seconds from the line's return its edge had the job
        """
        for each in cut:
            each.line.cut("silently")
        jobs = {each.name: self.create_job(f"missed-{each.name}", each.node) for each in cut}
        time.sleep(silent_s)
        for each in cut:
            assert not each.edge.tasks(self.namespace) & {f"missed-{each.name}"}
            each.line.forget()
            each.line.mend()
        returned = time.monotonic()
        took_s = {}
        for each in cut:
            each.wait_for_task(jobs[each.name], timeout_s=2 * SETTLE_S)
            took_s[each.name] = time.monotonic() - returned
        print(f"assigned after the line's return: {took_s} s")
        return took_s


@pytest.fixture
def world(
    crds: ControlPlane, client: Client, namespace: str, nodes: tuple[str, ...], tmp_path: Path
) -> Iterator[World]:
    """Both are ready, one leads, and each has given its edge a first job."""
    assert set(EDGE_OF.values()) <= set(nodes)
    replicas = tuple(Replica(name, crds, namespace, tmp_path / name) for name in EDGE_OF)
    world = World(client, namespace, replicas)
    for name in ("small", "big"):
        client.create(model(name, namespace))
    with ExitStack() as stack:
        for replica in replicas:
            replica.start(stack)
        try:
            for replica in replicas:
                replica.manager.wait_until_ready()
                replica.wait_for_task(world.create_job(f"first-{replica.name}", replica.node))
            wait_until(
                "a leader",
                lambda: "" if any(each.leads() for each in replicas) else "nobody leads",
                timeout_s=SETTLE_S,
            )
            yield world
        finally:
            for replica in replicas:  # shown when the test failed
                replica.line.mend()
                print(f"--- {replica.name}\n{replica.manager.logs()}")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("silent_s", [0.0, SILENT_S])
def test_a_follower_assigns_soon_after_the_return_of_its_line(
    world: World, silent_s: float
) -> None:
    took_s = world.cut_for(silent_s, world.follower())
    assert max(took_s.values()) <= RETURN_S


@pytest.mark.timeout(300)
def test_all_replicas_assign_soon_after_the_return_of_the_api_server(world: World) -> None:
    """Nobody renews a Lease meanwhile, and whoever led leads no more."""
    took_s = world.cut_for(SILENT_S, *world.replicas)
    assert max(took_s.values()) <= RETURN_S
