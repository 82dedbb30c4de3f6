"""The commands to type next, printed at the end of a command."""

from pathlib import Path
from typing import Final

from edgeai.doctor.edges import EDGE_LABEL
from edgeai.install.cluster import Cluster
from edgeai.install.readiness import edges
from edgeai.system import NAMESPACE
from globalmanager.contract import NODES

EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "joint_inference" / "first.yaml"


async def after_install(cluster: Cluster) -> str:
    nodes = (await cluster.retried(lambda: cluster.client.list(NODES))).items
    if not edges(nodes):
        return _lines(
            cluster,
            "edgeai is installed",
            f"kubectl label node NODE {EDGE_LABEL}=",
            _doctor(cluster),
        )
    where = "" if cluster.namespace == NAMESPACE else f" --namespace {cluster.namespace}"
    submit = f"edgeai submit {_shown(EXAMPLE)} --wait"
    return _lines(cluster, "edgeai is installed", submit, f"edgeai open{where}")


def _shown(path: Path) -> str:
    """From the present directory, where that is shorter."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def after_upgrade(cluster: Cluster) -> str:
    pods = (
        f"kubectl -n {cluster.namespace} get pods --selector app.kubernetes.io/name=localcontroller"
    )
    return _lines(cluster, "edgeai is ready", _doctor(cluster), f"{pods} --output wide")


def _doctor(cluster: Cluster) -> str:
    return f"edgeai doctor --namespace {cluster.namespace}"


def _lines(cluster: Cluster, what: str, first: str, second: str) -> str:
    return f"{what} in namespace {cluster.namespace}. Type next:\n  {first}\n  {second}"
