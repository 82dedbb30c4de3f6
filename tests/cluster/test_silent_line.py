"""A line to the API server that died in silence: what was missed comes soon after its return.

Two replicas with the default timings, each behind a line of its own and with an edge of its own.
The old connections of a cut line never pass anything again, as behind a NAT that forgot them.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.cluster.edge import Edge
from tests.cluster.replicas import Replica, Replicas
from tests.cluster.samples import service
from tests.support.waiting import PATIENCE_S, eventually

EDGE_OF: Final = {"east": "edge0", "west": "edge1"}
TOKENS: Final = {node: f"secret-of-{node}" for node in EDGE_OF.values()}
SILENT_S: Final = 20.0
RETURN_S: Final = 10.0  # after the line's return an assignment must come within this


class ReplicasWithEdges(Replicas):
    """Two replicas, each with an edge that dials no other."""

    def __init__(self, control_plane: ControlPlane, namespace: str, directory: Path) -> None:
        super().__init__(control_plane, namespace, directory, tokens=TOKENS)
        self._directory = directory
        self._edges: dict[str, Edge] = {}

    def launch_edge(self, replica: Replica, stack: ExitStack) -> None:
        node = EDGE_OF[replica.name]
        edge = Edge(
            node,
            token=TOKENS[node],
            port=replica.manager.edge_port,
            directory=self._directory / node,
        )
        self._edges[replica.name] = stack.enter_context(edge.running())

    def create_job(self, name: str, replica: Replica) -> None:
        """For the edge of the replica."""
        edge = {"nodeName": EDGE_OF[replica.name]}
        self.client.create(service(self.namespace, name=name, edge=edge))

    def tasks(self, replica: Replica) -> set[str]:
        """What the edge of the replica holds."""
        return self._edges[replica.name].tasks(self.namespace)

    def wait_for_task(self, name: str, replica: Replica, *, timeout_s: float = PATIENCE_S) -> None:
        def check() -> bool:
            held = self.tasks(replica)
            assert name in held, f"it holds {sorted(held)}"
            return True

        eventually(f"{name} on {EDGE_OF[replica.name]}", check, timeout_s=timeout_s)

    def cut_for(self, silent_s: float, *cut: Replica) -> dict[str, float]:
        """In that time a job for each of their edges is created.

        Args:
            silent_s: 0 for a line of which only the connections of now die
        Returns: of each, after how many seconds from the line's return its edge had the job
        """
        for each in cut:
            each.line.cut("silently")
        for each in cut:
            self.create_job(f"missed-{each.name}", each)
        time.sleep(silent_s)  # the line is silent for real time
        for each in cut:
            assert f"missed-{each.name}" not in self.tasks(each)
            each.line.forget()
            each.line.mend()
        returned = time.monotonic()
        took_s = {}
        for each in cut:
            self.wait_for_task(f"missed-{each.name}", each, timeout_s=2 * PATIENCE_S)
            took_s[each.name] = time.monotonic() - returned
        print(f"assigned after the line's return: {took_s} s")
        return took_s


@pytest.fixture
def world(
    crds: ControlPlane, namespace: str, nodes: tuple[str, ...], tmp_path: Path
) -> Iterator[ReplicasWithEdges]:
    """Both are ready, one leads, and each has given its edge a first job."""
    assert set(EDGE_OF.values()) <= set(nodes)
    world = ReplicasWithEdges(crds, namespace, tmp_path)
    with world.running(), ExitStack() as stack:
        for replica in world.replicas:
            world.launch_edge(replica, stack)
        for replica in world.replicas:
            world.create_job(f"first-{replica.name}", replica)
            world.wait_for_task(f"first-{replica.name}", replica)
        yield world


@pytest.mark.timeout(300)
@pytest.mark.parametrize("silent_s", [0.0, SILENT_S])
def test_a_follower_assigns_soon_after_the_return_of_its_line(
    world: ReplicasWithEdges, silent_s: float
) -> None:
    _, follower = world.roles()
    took_s = world.cut_for(silent_s, follower)
    assert max(took_s.values()) <= RETURN_S


@pytest.mark.timeout(300)
def test_all_replicas_assign_soon_after_the_return_of_the_api_server(
    world: ReplicasWithEdges,
) -> None:
    """Nobody renews a Lease meanwhile, and whoever led leads no more."""
    took_s = world.cut_for(SILENT_S, *world.replicas)
    assert max(took_s.values()) <= RETURN_S
