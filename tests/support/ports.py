"""Ports for servers of tests that start later."""

import contextlib
import secrets
import socket
from typing import Final

PORTS: Final = range(15_000, 30_000)  # below the kernel's own choice, and below NodePorts


def free_port(host: str = "127.0.0.1") -> int:
    """A port of `host` that nobody listens on, for a program that starts later.

    The kernel gives none of PORTS to a program that asks for any port, so nobody takes the port
    meanwhile: edges that start before a GlobalManager have taken its port.
    """
    while True:
        port = secrets.choice(PORTS)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            return port
