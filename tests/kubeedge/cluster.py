"""A Kubernetes whose edge nodes are of KubeEdge."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from edgeai.cli.api import Object
from tests.cluster import binaries, packages
from tests.cluster.images import SANDBOX, Images, Recipe
from tests.cluster.machine import Machine
from tests.kubeedge import programs
from tests.kubeedge.nodes import CloudCore, EdgeNode
from tests.support.cluster import CLOUD, Cluster
from tests.support.node import Node


def prepared(recipes: Sequence[Recipe]) -> "KubeEdge":
    """As tests.support.cluster.prepared. Raises: Unavailable"""
    packages.obtain()
    kubernetes = binaries.obtain([*binaries.PROGRAMS, *binaries.NODE_PROGRAMS])
    kubeedge = programs.obtain()
    return KubeEdge(kubernetes, kubeedge, archive=Images().archive(recipes))


class KubeEdge(Cluster):
    """Args:
    kubernetes, kubeedge: directories of programs
    archive: as for Cluster
    """

    def __init__(self, kubernetes: Path, kubeedge: Path, *, archive: Path) -> None:
        super().__init__(kubernetes, archive=archive, visible=[kubeedge])
        self._kubeedge = kubeedge
        self._cloudcores: list[CloudCore] = []  # one, once it was made
        self.edges: dict[str, EdgeNode] = {}

    @property
    def cloudcore(self) -> CloudCore:
        (cloudcore,) = self._cloudcores
        return cloudcore

    def _start_control_plane(self, directory: Path, stack: ExitStack) -> None:
        super()._start_control_plane(directory, stack)
        self.control_plane.install_crds(programs.crds())

    def _started_node(self, machine: Machine, stack: ExitStack) -> Node:
        """The cloud's comes first."""
        node = super()._started_node(machine, stack)
        if machine.name == CLOUD:
            self._cloudcores = [CloudCore(node, self._kubeedge, self.control_plane)]
            stack.callback(self.cloudcore.stop)
            self.cloudcore.start()
        return node

    def _node(self, machine: Machine) -> Node:
        if machine.name == CLOUD:
            return super()._node(machine)
        node = EdgeNode(
            machine,
            binaries=self._kubeedge,
            control_plane=self.control_plane,
            network=self._network,
            sandbox_image=SANDBOX,
        )
        node.join(self.cloudcore)
        self.edges[machine.name] = node
        return node

    def _label_edges(self) -> None:
        """edgecore does."""

    def log_of(self, pod: Object) -> str:
        node = self.edges.get(pod["spec"]["nodeName"])
        return node.log_of(pod) if node else super().log_of(pod)

    def check_alive(self) -> None:
        super().check_alive()
        self.cloudcore.check_alive()

    def logs(self) -> str:
        return "\n\n".join([super().logs(), *(each.logs() for each in self._cloudcores)])
