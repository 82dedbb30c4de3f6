"""The loopback network of one cluster: the claim of the network, and pools of free addresses.

Every cluster owns one network 127.X.0.0/16 with X in 64..254, so two clusters on one machine never
share an address. A cluster claims a network by a listening socket on 127.X.255.254:6443. The kernel
closes this socket at any end of the process. Linux answers on all of 127.0.0.0/8 without set-up.

    127.X.0.N      nodes
    127.X.1.N      Services
    127.X.(2+).N   pods and headless Services
"""

import random
import socket
from collections.abc import Iterable, Iterator, Sequence

from edgeai.localcluster.errors import ClusterError

FIRST_NETWORK, LAST_NETWORK = 64, 254
# The ports of outgoing connections begin at 32768 on Linux.
PORTS = range(20_000, 30_000)
CLAIM_HOST, CLAIM_PORT = "255.254", 6443
API_HOST = "255.253"


class AddressesExhausted(ClusterError):
    """No free network or port is left on this machine, or no free address is left in a range."""


class Network:
    """A claimed network 127.X.0.0/16. `close` releases the network."""

    def __init__(self, number: int, claim: socket.socket) -> None:
        self.number = number
        self._claim = claim

    @property
    def prefix(self) -> str:
        """The part with which all addresses of the network begin, like "127.64"."""
        return f"127.{self.number}"

    @property
    def api_host(self) -> str:
        return f"{self.prefix}.{API_HOST}"

    def nodes(self) -> Iterator[str]:
        return (f"{self.prefix}.0.{host}" for host in range(1, 255))

    def services(self) -> Iterator[str]:
        return (f"{self.prefix}.1.{host}" for host in range(1, 255))

    def pods(self) -> Iterator[str]:
        return (f"{self.prefix}.{net}.{host}" for net in range(2, 250) for host in range(1, 255))

    def close(self) -> None:
        self._claim.close()


def claim_network(recorded: int | None = None) -> Network:
    """Claim the recorded network if it is free, else a random free network.

    Raises: AddressesExhausted when clusters use all networks of this machine
    """
    numbers = list(range(FIRST_NETWORK, LAST_NETWORK + 1))
    random.SystemRandom().shuffle(numbers)
    if recorded is not None:
        numbers.insert(0, recorded)
    why = ""
    for number in numbers:
        try:
            claim = socket.create_server((f"127.{number}.{CLAIM_HOST}", CLAIM_PORT), backlog=1)
            return Network(number, claim)
        except OSError as error:
            why = str(error)
    raise AddressesExhausted(f"no network of 127.64.0.0/16 to 127.254.0.0/16 is free: {why}")


class AddressPool:
    """The free addresses of one range. `take` gives the address that is free for the longest time.

    A released address goes to the end of the queue. So a client that still uses the address of a
    deleted pod gets a refused connection, and does not reach a new pod. Not thread-safe.
    """

    def __init__(self, noun: str, addresses: Iterable[str]) -> None:
        self._noun = noun
        self._free = dict.fromkeys(addresses)  # an ordered set
        self._used: set[str] = set()

    def reserve(self, address: str) -> bool:
        """Take this address. Returns: False if the address is in use or outside the range."""
        if address not in self._free:
            return False
        del self._free[address]
        self._used.add(address)
        return True

    def take(self) -> str:
        """Take a free address. Raises: AddressesExhausted"""
        if not self._free:
            raise AddressesExhausted(f"no address is left for one more {self._noun}")
        address = next(iter(self._free))
        self.reserve(address)
        return address

    def release(self, address: str) -> None:
        if address in self._used:
            self._used.remove(address)
            self._free[address] = None


class PortPool:
    """Ports on which no process of this machine listens, at any address.

    `take` chooses at random, so that two clusters hardly ever choose the same port.
    """

    def __init__(self, ports: Sequence[int] = PORTS) -> None:
        self._ports = ports
        self._used: set[int] = set()

    def take(self) -> int:
        """Take a free port. Raises: AddressesExhausted"""
        for port in random.SystemRandom().sample(self._ports, len(self._ports)):
            if port not in self._used and _is_free(port):
                self._used.add(port)
                return port
        first, last = self._ports[0], self._ports[-1]
        raise AddressesExhausted(f"no port from {first} to {last} is free on this machine")

    def release(self, port: int) -> None:
        self._used.discard(port)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
