"""Isolated nodes: their pods have a network of their own, which leads only to a few openings.

Such a node stands for an edge behind a firewall. Its pods reach each other, at the addresses that
they have anyway, because Linux answers on every address of 127.0.0.0/8 in every network. Nothing
else answers there, but at the openings the cluster listens in that network, too, and connects from
this machine's own. The network is gone when the cluster and all processes in it have ended.
"""

import contextlib
import ctypes
import fcntl
import os
import shutil
import socket
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, TypeVar

import msgspec

from edgeai.localcluster.errors import ClusterError

T = TypeVar("T")

_CLONE_NEWNET: Final = 0x40000000
_SIOCSIFFLAGS: Final = 0x8914
_IFF_UP: Final = 1


class Opening(NamedTuple):
    """What isolated nodes reach: a port of SERVICE.NAMESPACE, or of an IPv4 address."""

    host: str
    port: int

    @property
    def is_address(self) -> bool:
        """Whether the host is an address, and no Service."""
        return self.host.replace(".", "").isdecimal()


class NodeNetwork:
    """The network of one isolated node. Raises: ClusterError if this process may make none"""

    def __init__(self) -> None:
        nsenter = shutil.which("nsenter")
        if nsenter is None:
            raise ClusterError("isolated nodes need the command nsenter, of util-linux")
        try:
            self._descriptor = _in_thread(_new_network)
        except PermissionError as error:
            problem = f"this process may not make a network: {error.strerror}; run it as root"
            raise ClusterError(f"isolated nodes: {problem}") from error
        path = f"/proc/{os.getpid()}/fd/{self._descriptor}"
        self.command = (nsenter, f"--net={path}", "--")
        """Runs the command that follows in this network."""

    def listen(self, address: str, port: int) -> socket.socket:
        """A listening socket in this network. Raises: OSError"""

        def listen() -> socket.socket:
            _call("setns", self._descriptor, _CLONE_NEWNET)
            return socket.create_server((address, port))

        return _in_thread(listen)

    def close(self) -> None:
        os.close(self._descriptor)


class Isolation(msgspec.Struct, frozen=True):
    networks: Mapping[str, NodeNetwork]
    """Node -> its network."""
    openings: frozenset[Opening]

    def networks_that_reach(self, opening: Opening) -> Iterable[NodeNetwork]:
        return self.networks.values() if opening in self.openings else ()

    def reaches_host(self, host: str) -> bool:
        return any(opening.host == host for opening in self.openings)


NO_ISOLATION: Final = Isolation({}, frozenset())


@contextlib.contextmanager
def isolation(nodes: Iterable[str], openings: Iterable[Opening]) -> Iterator[Isolation]:
    """Make the networks of these nodes. Raises: ClusterError"""
    with contextlib.ExitStack() as stack:
        networks = {node: stack.enter_context(contextlib.closing(NodeNetwork())) for node in nodes}
        yield Isolation(networks, frozenset(openings))


def _in_thread(function: Callable[[], T]) -> T:
    """Call a function in a thread of its own, because its network may not be the process's."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def _new_network() -> int:
    """Move this thread into a new network whose loopback is up. Returns: a descriptor of it"""
    _call("unshare", _CLONE_NEWNET)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _call(name: str, *arguments: int) -> None:
    """Call a function of the C library. Raises: OSError"""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
