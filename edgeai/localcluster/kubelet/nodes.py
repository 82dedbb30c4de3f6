"""The Node objects of the cluster, one for each kubelet.

A node whose name begins with "cloud" has the cloud role. Any other node has the edge role. Nodes
send no heartbeats: every node is ready while the cluster runs.
"""

import os
import platform
from collections.abc import Collection

from edgeai.localcluster.controllers.scheduler import CLOUD_LABEL, EDGE_LABEL
from edgeai.localcluster.network.addresses import AddressPool, Network
from edgeai.localcluster.objects.resources import NODES, Object
from edgeai.localcluster.objects.store import Store
from edgeai.times import Clock, rfc3339

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def register_nodes(
    store: Store, network: Network, names: Collection[str], now: Clock
) -> dict[str, str]:
    """Create, update and delete Nodes, so that exactly the nodes in `names` exist.

    A node that existed before keeps its address.

    Returns: name -> InternalIP
    Raises: AddressesExhausted for more than 254 nodes; errors.APIError for an invalid name
    """
    nodes = {node["metadata"]["name"]: node for node in store.list(NODES).items}
    for name in nodes.keys() - set(names):
        store.delete(NODES, "", name)
    pool = AddressPool("node", network.nodes())
    former = {name: _internal_ip(nodes[name]) for name in names if name in nodes}
    addresses = {name: ip for name, ip in former.items() if pool.reserve(ip)}
    for name in names:
        if name not in addresses:
            addresses[name] = pool.take()
        _write(store, nodes.get(name), _node(name, addresses[name], rfc3339(now())))
    return addresses


def _write(store: Store, present: Object | None, node: Object) -> None:
    """Write one Node. Keep the labels of users. Write the status only for a new address."""
    if present is None:
        store.create(NODES, node)
        return
    labels = (present["metadata"].get("labels") or {}) | node["metadata"]["labels"]
    present["metadata"]["labels"] = labels
    present = store.update(NODES, present)
    if _internal_ip(present) != _internal_ip(node):
        store.update(NODES, present | {"status": node["status"]}, subresource="status")


def _node(name: str, address: str, now: str) -> Object:
    role = CLOUD_LABEL if name.startswith("cloud") else EDGE_LABEL
    machine = platform.machine()
    architecture = _ARCHITECTURES.get(machine, machine)
    capacity = {"cpu": str(os.cpu_count() or 1), "memory": _memory(), "pods": "110"}
    return {
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": architecture,
                role: "",
            },
        },
        "spec": {},
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": address},
                {"type": "Hostname", "address": name},
            ],
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "KubeletReady",
                    "message": "the process kubelet runs",
                    "lastHeartbeatTime": now,
                    "lastTransitionTime": now,
                }
            ],
            "nodeInfo": {
                "architecture": architecture,
                "operatingSystem": "linux",
                "kernelVersion": platform.release(),
                "osImage": "this machine",
                "containerRuntimeVersion": "process://1",
                "kubeletVersion": "v1.32.0+localcluster",
            },
        },
    }


def _memory() -> str:
    return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') // 1024}Ki"


def _internal_ip(node: Object) -> str:
    for address in (node.get("status") or {}).get("addresses") or []:
        if address["type"] == "InternalIP":
            return str(address["address"])
    return ""
