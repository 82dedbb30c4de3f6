"""IP addresses: those of this machine, and as limits count them. Pure."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether `host`, a name or an IP address, is a loopback address of this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def network_of(address: str) -> str:
    """The key by which limits count an address. The key is the IPv4 address, or the /64 network of
    an IPv6 address, because one host may use all addresses of a /64 network.
    """
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Address(int(parsed) >> 64 << 64))
