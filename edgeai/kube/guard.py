"""The permission that a guarded client needs for each write. `ha.fence` permits writes to the
leader.
"""

from contextlib import AbstractAsyncContextManager
from typing import Protocol


class Shut(Exception):
    """The guard permits no write now."""


class Guard(Protocol):
    """Decides for each write whether the client may send the write, and how long it may take."""

    def passage(self) -> AbstractAsyncContextManager[None]:
        """A context that the client enters immediately before it sends a write, and leaves after
        the answer.

        Raises: Shut, at the start, or during a write when the guard withdraws the permission
        """
