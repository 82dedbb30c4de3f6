"""Resolves one host name within a deadline.

getaddrinfo() takes no timeout, and on a node without network it blocks for many seconds. So a
Resolver calls getaddrinfo() in another thread, and has at most one such thread.
"""

import ipaddress
import socket
import threading
from typing import Any, Final, NamedTuple

from edgeai.worker.deadline import Deadline


class SocketAddress(NamedTuple):
    family: int
    address: tuple[Any, ...]


class _Lookup(threading.Thread):
    """A thread that calls getaddrinfo() once."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(name="edgeai-resolve", daemon=True)
        self._host, self._port = host, port
        self.finished = threading.Event()
        self.addresses: list[SocketAddress] = []
        self.error: OSError | None = None

    def run(self) -> None:
        try:
            self.addresses = look_up(self._host, self._port)
        except (OSError, UnicodeError) as error:  # UnicodeError: IDNA refuses a label
            self.error = OSError(f"cannot resolve {self._host!r}: {error}")
        self.finished.set()


class Resolver:
    """Caches no address, because the address of a Service may change. Thread-safe."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._is_literal: Final = is_ip_address(host)
        self._lock = threading.Lock()
        self._lookup: _Lookup | None = None

    def resolve(self, deadline: Deadline) -> list[SocketAddress]:
        """Returns: at least one address. Raises: OSError, TimeoutError"""
        if self._is_literal:
            return look_up(self._host, self._port)
        lookup = self._join_lookup()
        if not lookup.finished.wait(deadline.remaining_s()):
            raise TimeoutError(f"no answer from the name service for {self._host!r}")
        if lookup.error is not None:
            raise OSError(str(lookup.error))
        return lookup.addresses

    def _join_lookup(self) -> _Lookup:
        with self._lock:
            if self._lookup is None or self._lookup.finished.is_set():
                lookup = _Lookup(self._host, self._port)
                lookup.start()
                self._lookup = lookup
            return self._lookup


def look_up(host: str, port: int) -> list[SocketAddress]:
    answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [SocketAddress(family, address) for family, _, _, _, address in answers]


def is_ip_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
