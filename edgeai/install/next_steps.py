"""The commands to type next, printed at the end of a command."""

from edgeai.doctor.edges import EDGE_LABEL
from edgeai.install.cluster import Cluster
from edgeai.install.readiness import edges
from globalmanager.contract import NODES

_EXAMPLE = "kubectl apply -f examples/joint_inference/joint_inference.yaml"


async def after_install(cluster: Cluster) -> str:
    nodes = (await cluster.retried(lambda: cluster.client.list(NODES))).items
    job = _EXAMPLE if edges(nodes) else f"kubectl label node NODE {EDGE_LABEL}="
    return _lines(cluster, "edgeai is installed", job)


def after_upgrade(cluster: Cluster) -> str:
    pods = (
        f"kubectl -n {cluster.namespace} get pods --selector app.kubernetes.io/name=localcontroller"
    )
    return _lines(cluster, "edgeai is ready", f"{pods} --output wide")


def _lines(cluster: Cluster, what: str, second: str) -> str:
    doctor = f"edgeai doctor --namespace {cluster.namespace}"
    return f"{what} in namespace {cluster.namespace}. Type next:\n  {doctor}\n  {second}"
