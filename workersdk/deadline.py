"""A moment after which waiting ends, and a socket that obeys it.

The timeout of a plain socket restarts with each byte, so a peer that sends slowly can hold a reader
for ever. DeadlineSocket sets the timeout of each wait to the time left until one fixed moment.
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

    The file of makefile() reads by recv_into, so http.client and http.server obey the deadline too.
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
