"""Rewrites a container's command, args and environment for a local process.

The module has three rules. The first rule expands `$(VAR)` as Kubernetes does. The second rule
replaces mount paths by the real paths of the volumes. The third rule replaces host names of
Services by addresses, and the ports where training processes meet. Pure.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Final

import msgspec

from edgeai.localcluster.objects.resources import Object

_REFERENCE: Final = re.compile(r"\$(?:\$|\(([^)]*)\))")

# The rewriter replaces a mount path only where a path begins: not in the middle of a longer path,
# not in the host of a URL, not after an unexpanded variable.
_PATH_BEFORE: Final = r"(?:(?<![\w.~%+@/)}\]*?-])|(?<=file://))"
_PATH_AFTER: Final = r"(?![\w.~%+@-])"

# The rewriter replaces a host name as a whole word, not in a longer name, a path or an image.
_HOST_BEFORE: Final = r"(?<![\w./-])|(?<=://)"
_HOST_AFTER: Final = r"(?![\w-]|\.\w)"
_QUALIFIERS: Final = ("svc", "svc.cluster.local")
# HOSTNAME alone is the name of the container's own pod.
_HOST_VARIABLE: Final = re.compile(
    r"(?:(?:^|_)(?:HOST|ADDR|ADDRESS|IP|SERVER|ENDPOINT)|_HOSTNAME)$", re.IGNORECASE
)


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace each `$(NAME)` by the value of the variable NAME.

    `$$` becomes `$`. If the variable NAME does not exist, `$(NAME)` stays.

    Source: the Kubernetes API reference of Container.args and EnvVar.value.
    """

    def value(match: re.Match[str]) -> str:
        name = match[1]
        return "$" if name is None else variables.get(name, match[0])

    return _REFERENCE.sub(value, text)


class PathRewriter:
    """Replaces mount paths by real paths, beginning with the longest mount path.

    Args:
        mounts: mount path in the container -> path on this machine, both absolute
    """

    def __init__(self, mounts: Mapping[str, str]) -> None:
        self._mounts = {path.rstrip("/"): real for path, real in mounts.items()}
        paths = sorted(self._mounts, key=len, reverse=True)
        pattern = "|".join(re.escape(path) for path in paths)
        self._pattern = re.compile(f"{_PATH_BEFORE}({pattern}){_PATH_AFTER}") if paths else None

    def __call__(self, text: str) -> str:
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda match: self._mounts[match[1]], text)


class ServiceHost(msgspec.Struct, frozen=True):
    name: str
    namespace: str
    address: str
    is_headless: bool = False


class Endpoint(msgspec.Struct, frozen=True):
    """A port of a headless Service."""

    host: ServiceHost
    port: int


class HostRewriter:
    """Replaces the DNS names of Services by addresses, for the pods of one namespace.

    A Service name without namespace may be an ordinary word. So the rewriter replaces such a name
    only in a URL, before a port, or as a whole variable (MASTER_ADDR, BIG_MODEL_IP).
    """

    def __init__(self, namespace: str, services: Iterable[ServiceHost]) -> None:
        qualified_names: dict[str, ServiceHost] = {}
        self._bare: dict[str, ServiceHost] = {}
        self._ports: Mapping[Endpoint, int] = {}
        for service in services:
            qualified = f"{service.name}.{service.namespace}"
            qualified_names[qualified] = service
            for suffix in _QUALIFIERS:
                qualified_names[f"{qualified}.{suffix}"] = service
            if service.namespace == namespace:
                self._bare[service.name] = service
        self._rules = [
            *_rules(qualified_names, "(?:{before})({names}){after}"),
            *_rules(
                self._bare, "(?:(?<=://)({names})(?=[:/?#]|$)|(?:{before})({names})(?=:[0-9]))"
            ),
        ]

    def move_ports(self, ports: Mapping[Endpoint, int]) -> None:
        """From now on replace these ports, too, where they follow the name of their host."""
        self._ports = ports

    def endpoints(self, text: str) -> set[Endpoint]:
        """The ports of headless Services in a text, each after the name of its host and a colon."""
        endpoints = set()
        for pattern, hosts in self._rules:
            for match in pattern.finditer(text):
                host = hosts[_name(match)]
                if match["port"] and host.is_headless:
                    endpoints.add(Endpoint(host, int(match["port"])))
        return endpoints

    def __call__(self, text: str, *, variable: str = "") -> str:
        """Args: variable: name of the environment variable with the value `text`; "" for others"""
        if text in self._bare and _HOST_VARIABLE.search(variable):
            return self._bare[text].address
        for pattern, hosts in self._rules:
            text = pattern.sub(partial(self._replaced, hosts), text)
        return text

    def _replaced(self, hosts: Mapping[str, ServiceHost], match: re.Match[str]) -> str:
        host, port = hosts[_name(match)], match["port"]
        if port is None:
            return host.address
        return f"{host.address}:{self._ports.get(Endpoint(host, int(port)), port)}"


def _name(match: re.Match[str]) -> str:
    return str(next(filter(None, match.groups())))


def _rules(
    hosts: Mapping[str, ServiceHost], pattern: str
) -> Iterator[tuple[re.Pattern[str], Mapping[str, ServiceHost]]]:
    """A pattern for any of the names, and for a port (`port`) that follows; with the hosts."""
    if hosts:
        longest_first = sorted(hosts, key=len, reverse=True)
        names = "|".join(re.escape(name) for name in longest_first)
        host = pattern.format(names=names, before=_HOST_BEFORE, after=_HOST_AFTER)
        yield re.compile(f"{host}(?::(?P<port>[0-9]{{1,5}})(?![0-9]))?"), hosts


# Ports where the processes of a training job meet
#
# All pods share the network of the machine, and TensorFlow and PyTorch listen on every address
# (0.0.0.0). So two replicas with port 2222, or two jobs with port 23456, could not run at the same
# time. All processes of a job read the port in the variables below, the process that listens and
# the processes that connect. So the local cluster can replace the port there by a free port of the
# machine. Other programs may listen on a port that no variable names, so their ports stay.
#
# Sources: tensorflow/core/distributed_runtime/rpc/grpc_server_lib.cc (GrpcServer::Init binds
# 0.0.0.0 and the port of the task's own entry); pytorch issue 173909 (TCPStore binds every address)

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
    endpoints: set[Endpoint] = set()
    spec = pod["spec"]
    for container in (*(spec.get("initContainers") or []), *spec["containers"]):
        env = {item["name"]: str(item.get("value") or "") for item in container.get("env") or []}
        texts = [env.get(name, "") for name in ENDPOINT_VARIABLES]
        texts += [_joined(env, *names) for names in HOST_AND_PORT_VARIABLES]
        for text in texts:
            endpoints |= hosts.endpoints(text)
    return endpoints


def port_variables(
    env: Mapping[str, str], hosts: HostRewriter, ports: Mapping[Endpoint, int]
) -> dict[str, str]:
    """New values for the variables with the port of a host that another variable names."""
    return {
        names[1]: str(ports[endpoint])
        for names in HOST_AND_PORT_VARIABLES
        for endpoint in hosts.endpoints(_joined(env, *names))
        if endpoint in ports
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
