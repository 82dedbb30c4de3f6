"""Which addresses a Dataset's URL may lead to.

Whoever writes a Dataset chooses its URL, and the LocalController fetches the URL with the network
of the node. So the URL must not reach servers that only the node itself may reach: on loopback, on
link-local addresses, or the metadata service of a cloud. `web` has each connection opened here. So
the address that is checked is the one that is used, also after redirections and changes of names.
"""

import errno
import ipaddress
import socket
from collections.abc import Collection
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_FORBIDDEN_NETWORKS: Final = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8",  # "this host": Linux connects to loopback
            "100.100.100.200/32",  # metadata of Alibaba Cloud
            "168.63.129.16/32",  # of Azure
            "192.0.0.192/32",  # of Oracle Cloud
            "fd00:ec2::254/128",  # of AWS
            "fd20:ce::254/128",  # of Google Cloud
        ),
    )
)
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")


def parse_networks(texts: Collection[str]) -> tuple[Network, ...]:
    """Raises: ValueError when a text is no network like 10.0.0.0/8 or fd00::/8"""
    return tuple(map(ipaddress.ip_network, texts))


def is_refused(text: str, allowed: Collection[Network] = ()) -> bool:
    """Whether the URL of a Dataset must not lead to this address.

    Args: allowed: networks in which every address is allowed
    """
    address = _embedded(ipaddress.ip_address(text))
    if any(address in network for network in allowed):
        return False
    is_special = (
        address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or address.is_reserved
    )
    return is_special or any(address in network for network in _FORBIDDEN_NETWORKS)


def _embedded(address: Address) -> Address:
    """The IPv4 address to which an IPv6 address leads; else the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


class AddressRefused(OSError):
    def __init__(self, address: str) -> None:
        super().__init__(errno.EACCES, f"the address {address} is not allowed")


class AddressFilter:
    """Opens the sockets for an HTTP client, for allowed addresses only.

    A proxy of the environment is always allowed, and decides itself what it reaches.
    """

    def __init__(self, allowed: Collection[Network]) -> None:
        self._allowed = allowed
        proxies = [urlsplit(url) for scheme, url in getproxies().items() if scheme != "no"]
        self._proxies = {
            address for proxy in proxies for address in _addresses(proxy.hostname or "")
        }

    def open_socket(self, info: tuple[Any, ...]) -> socket.socket:
        """A socket for one result of getaddrinfo. Raises: AddressRefused"""
        family, type_, proto, _, peer = info
        address = str(peer[0])
        if address not in self._proxies and is_refused(address, self._allowed):
            raise AddressRefused(address)
        socket_ = socket.socket(family, type_, proto)
        socket_.setblocking(False)
        return socket_


def _addresses(host: str) -> set[str]:
    """The addresses of a proxy; none when its name cannot be resolved."""
    try:
        return {str(info[4][0]) for info in socket.getaddrinfo(host, None)} if host else set()
    except OSError:
        return set()
