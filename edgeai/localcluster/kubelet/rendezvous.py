"""Finds the ports where the processes of a training job meet.

All pods share the network of the machine, and TensorFlow and PyTorch listen on every address
(0.0.0.0). So two replicas with port 2222, or two jobs with port 23456, could not run at the same
time. All processes of a job read the port in the variables below, the process that listens and the
processes that connect. So the local cluster can replace the port there by a free port of the
machine. Other programs may listen on a port that no variable names, so their ports stay.

`launch` calls this module. The module is pure.

Sources: tensorflow/core/distributed_runtime/rpc/grpc_server_lib.cc (GrpcServer::Init binds 0.0.0.0
and the port of the task's own entry); pytorch issue 173909 (TCPStore binds every address).
"""

from collections.abc import Mapping
from typing import Final

from edgeai.localcluster.kubelet.expansion import Endpoint, HostRewriter
from edgeai.localcluster.objects.resources import Object

ENDPOINT_VARIABLES: Final = ("TF_CONFIG", "PET_RDZV_ENDPOINT")
"""Variables with HOST:PORT."""
HOST_AND_PORT_VARIABLES: Final = (
    ("MASTER_ADDR", "MASTER_PORT"),
    ("PET_MASTER_ADDR", "PET_MASTER_PORT"),
)
"""Pairs of variables, one with the host and one with the port."""


def rendezvous_endpoints(pod: Object, hosts: HostRewriter) -> set[Endpoint]:
    """The ports of headless Services that the variables of a pod's containers name.

    One container is enough: a container that waits for a port, and has no such variable, means the
    same port as the others. Only a plain `value` counts.
    """
    found: set[Endpoint] = set()
    spec = pod["spec"]
    for container in (*(spec.get("initContainers") or []), *spec["containers"]):
        env = {each["name"]: str(each.get("value") or "") for each in container.get("env") or []}
        texts = [env.get(name, "") for name in ENDPOINT_VARIABLES]
        texts += [_joined(env, *names) for names in HOST_AND_PORT_VARIABLES]
        for text in texts:
            found |= hosts.endpoints(text)
    return found


def port_variables(
    env: Mapping[str, str], hosts: HostRewriter, moved: Mapping[Endpoint, int]
) -> dict[str, str]:
    """New values for the variables with the port of a host that another variable names."""
    return {
        names[1]: str(moved[endpoint])
        for names in HOST_AND_PORT_VARIABLES
        for endpoint in hosts.endpoints(_joined(env, *names))
        if endpoint in moved
    }


def store_host_variable(env: Mapping[str, str], hosts: HostRewriter, pod_ip: str) -> dict[str, str]:
    """PET_RDZV_CONF with the answer to torchrun's question whether its own pod hosts the store.

    torchrun compares the host of PET_RDZV_ENDPOINT with its own addresses, and takes every loopback
    address for its own. Then any replica would host the store, and the job would end with it.

    Returns: an empty dict where the user has answered, or the endpoint is no headless Service
    Source: torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py (_create_tcp_store)
    """
    conf = env.get("PET_RDZV_CONF", "")
    if env.get("PET_RDZV_BACKEND") != "c10d" or "is_host=" in conf:
        return {}
    for endpoint in hosts.endpoints(env.get("PET_RDZV_ENDPOINT", "")):
        answer = f"is_host={int(endpoint.host.address == pod_ip)}"
        return {"PET_RDZV_CONF": f"{conf},{answer}" if conf else answer}
    return {}


def _joined(env: Mapping[str, str], host: str, port: str) -> str:
    return f"{env.get(host, '')}:{env.get(port, '')}"
