"""A deadline for waits, and a socket whose waits end at a deadline.

The timeout of a plain socket restarts with each byte, so a peer that sends slowly can keep a reader
waiting for ever. DeadlineSocket sets the timeout of each wait to the time left until the deadline.
"""

import socket
import time
from typing import Any


class Deadline:
    """The moment `timeout_s` seconds from now, on the monotonic clock."""

    def __init__(self, timeout_s: float) -> None:
        self._end_s = time.monotonic() + timeout_s

    def left_s(self) -> float:
        """Seconds left, at least 0."""
        return max(0.0, self._end_s - time.monotonic())

    def remaining_s(self) -> float:
        """Seconds left, more than 0. Raises: TimeoutError if no time is left"""
        left_s = self.left_s()
        if not left_s:
            raise TimeoutError("deadline exceeded")
        return left_s


class DeadlineSocket(socket.socket):
    """A stream socket on which connecting, sending and receiving end at `deadline`.

    http.client and http.server read by makefile(), which calls recv_into, so it holds for them.
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
        # In CPython the timeout limits the whole sendall(), not each send().
        self.settimeout(self.deadline.remaining_s())
        super().sendall(data, flags)

    def recv_into(self, *args: Any, **kwargs: Any) -> int:
        self.settimeout(self.deadline.remaining_s())
        count = super().recv_into(*args, **kwargs)
        self.received_bytes += count
        return count
