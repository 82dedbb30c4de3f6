"""The commands to type next, printed at the end of a command."""

from pathlib import Path
from typing import Final, Literal

import msgspec

from edgeai.api.resources import NODES
from edgeai.cli.doctor.edges import EDGE_LABEL
from edgeai.cli.install.cluster import Cluster
from edgeai.cli.install.readiness import edges
from edgeai.cli.system import NAMESPACE

EXAMPLE: Final = Path(__file__).parents[2] / "demo" / "joint_inference" / "first.yaml"


class Outcome(msgspec.Struct, frozen=True):
    """What a command has done, also as `-o json` prints it."""

    namespace: str
    state: Literal["installed", "ready", "removed"]
    next: tuple[str, ...] = ()
    """The commands to type next."""

    def __str__(self) -> str:
        if self.state == "removed":
            return f"edgeai is removed from namespace {self.namespace}"
        commands = "".join(f"\n  {each}" for each in self.next)
        return f"edgeai is {self.state} in namespace {self.namespace}. Type next:{commands}"


async def after_install(cluster: Cluster) -> Outcome:
    nodes = (await cluster.retried(lambda: cluster.client.list(NODES))).items
    if not edges(nodes):
        steps = (f"kubectl label node NODE {EDGE_LABEL}=", _doctor(cluster))
        return Outcome(cluster.namespace, "installed", steps)
    where = "" if cluster.namespace == NAMESPACE else f" --namespace {cluster.namespace}"
    steps = (f"edgeai submit {_shown(EXAMPLE)} --wait", f"edgeai open{where}")
    return Outcome(cluster.namespace, "installed", steps)


def _shown(path: Path) -> str:
    """From the present directory, where that is shorter."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def after_upgrade(cluster: Cluster) -> Outcome:
    pods = (
        f"kubectl -n {cluster.namespace} get pods --selector app.kubernetes.io/name=localcontroller"
    )
    return Outcome(cluster.namespace, "ready", (_doctor(cluster), f"{pods} --output wide"))


def after_uninstall(cluster: Cluster) -> Outcome:
    return Outcome(cluster.namespace, "removed")


def _doctor(cluster: Cluster) -> str:
    return f"edgeai doctor --namespace {cluster.namespace}"
