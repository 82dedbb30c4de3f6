"""URLs whose host is a Service of the cluster: http://NAME.NAMESPACE.svc[.DOMAIN][:PORT]/…"""

from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}


class ServiceAddress(NamedTuple):
    service: str
    port: int


def service_address(url: str, namespace: str) -> ServiceAddress | None:
    """None: the host is no Service of this namespace."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return None
    service, *rest = (parts.hostname or "").split(".")
    if port is None or rest[:2] != [namespace, "svc"]:
        return None
    return ServiceAddress(service, port)
