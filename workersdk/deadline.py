"""A moment after which waiting ends, and a socket that obeys it.

A socket's own timeout restarts with every byte, so a peer that trickles holds its reader for
ever. Here every wait of a socket is armed with what is left until one fixed moment.
"""

import socket
import time
from typing import Any


class Deadline:
    """`timeout_s` seconds from now on the monotonic clock."""

    def __init__(self, timeout_s: float) -> None:
        self._end_s = time.monotonic() + timeout_s

    def left_s(self) -> float:
        """Seconds left, at least 0."""
        return max(0.0, self._end_s - time.monotonic())

    def remaining_s(self) -> float:
        """Seconds left, more than 0. Raises: TimeoutError when there are none"""
        left_s = self.left_s()
        if not left_s:
            raise TimeoutError("deadline exceeded")
        return left_s


class DeadlineSocket(socket.socket):
    """A stream socket on which connecting, sending and receiving end at `deadline`.

    What makefile() returns reads through recv_into, so http.client and http.server obey it too.
    """

    deadline: Deadline
    received_bytes = 0  # since the connection was made

    def connect(self, address: Any) -> None:
        self.settimeout(self.deadline.remaining_s())
        super().connect(address)

    def send(self, data: Any, flags: int = 0) -> int:
        self.settimeout(self.deadline.remaining_s())
        return super().send(data, flags)

    def sendall(self, data: Any, flags: int = 0) -> None:
        # CPython bounds the whole of sendall by the timeout, not each send.
        self.settimeout(self.deadline.remaining_s())
        super().sendall(data, flags)

    def recv_into(self, *args: Any, **kwargs: Any) -> int:
        self.settimeout(self.deadline.remaining_s())
        received = super().recv_into(*args, **kwargs)
        self.received_bytes += received
        return received
