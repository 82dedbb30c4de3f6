"""Decides how this worker reaches its peer in the cloud: directly, or through the relay.

The relay is the HTTP proxy of the LocalController, on the address of LC_SERVER, with the name and
the secret of this worker. With TRANSPORT=auto, the default, a worker is direct where the peer's
address answers, and relayed elsewhere: decided once, at the worker's start, and reported.
"""

import base64
import http.client
import logging
import socket
from typing import Final

import msgspec

from edgeai.worker.deadline import Deadline, DeadlineSocket
from edgeai.worker.environment import Address, ReportEnvironment, Transport
from edgeai.worker.resolver import Resolver

log = logging.getLogger(__name__)

PROBE_S: Final = 2.0
MAX_REFUSAL_BYTES: Final = 4096


class Proxy(msgspec.Struct, frozen=True):
    """The proxy of the LocalController, and this worker's right to use it."""

    address: Address
    worker: str
    secret: str

    def __repr__(self) -> str:
        return f"Proxy({self.address.host}:{self.address.port}, {self.worker}, ***)"

    def tunnel(self, connection: socket.socket, target: Address) -> None:
        """Ask the proxy, to which `connection` is open, for a connection to `target`.

        Raises: OSError, TimeoutError
        """
        pair = base64.b64encode(f"{self.worker}:{self.secret}".encode()).decode()
        at = f"{target.host}:{target.port}"
        head = f"CONNECT {at} HTTP/1.1\r\nHost: {at}\r\nProxy-Authorization: Basic {pair}\r\n\r\n"
        connection.sendall(head.encode())
        answer = http.client.HTTPResponse(connection, method="CONNECT")
        try:
            answer.begin()
            if answer.status == 200:
                return
            problem = f"relay: {answer.status} {_message(answer.read(MAX_REFUSAL_BYTES))}"
        except http.client.HTTPException as error:
            raise OSError(f"relay: {type(error).__name__}") from error
        finally:
            answer.close()
        raise TimeoutError(problem) if answer.status == 504 else OSError(problem)


class Route(msgspec.Struct, frozen=True):
    """How to reach the peer. `proxy` None: directly."""

    proxy: Proxy | None = None

    @property
    def transport(self) -> Transport:
        return Transport.DIRECT if self.proxy is None else Transport.RELAY


DIRECT: Final = Route()


def choose(peer: Address, environment: ReportEnvironment) -> Route:
    """The route to `peer`. Takes at most PROBE_S."""
    proxy = proxy_of(environment)
    if proxy is None or environment.transport is Transport.DIRECT:
        return DIRECT
    if environment.transport is Transport.AUTO and answers(peer, Deadline(PROBE_S)):
        return DIRECT
    log.info("%s:%s is reached through the relay", peer.host, peer.port)
    return Route(proxy)


def proxy_of(environment: ReportEnvironment) -> Proxy | None:
    """The proxy of this node's LocalController; None: there is no LC_SERVER."""
    server = environment.lc_server
    if server is None:
        return None
    return Proxy(server.address, environment.worker_name, server.path.rpartition("/")[2])


def answers(peer: Address, deadline: Deadline) -> bool:
    """Whether the way to the peer is open: it answers, be it by a refusal before its start."""
    try:
        connect(Resolver(peer.host, peer.port), deadline).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return True


def connect(resolver: Resolver, deadline: Deadline) -> DeadlineSocket:
    """Connect to the first address that answers. Raises: OSError"""
    addresses = resolver.resolve(deadline)
    failure: OSError = OSError("the name has no address")
    for index, (family, address) in enumerate(addresses):
        # An address that does not answer must leave time for the other addresses.
        share = Deadline(deadline.remaining_s() / (len(addresses) - index))
        connection = DeadlineSocket(family, socket.SOCK_STREAM)
        try:
            connection.deadline = share
            connection.connect(address)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            connection.close()
            failure = error
            continue
        connection.deadline = deadline
        return connection
    raise failure


def _message(body: bytes) -> str:
    """The text in a refusal of the proxy."""
    try:
        return str(msgspec.json.decode(body)["message"])[:500]
    except (msgspec.DecodeError, KeyError, TypeError):
        return ""
