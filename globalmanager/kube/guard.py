"""What a guarded client asks before it writes; `ha.fence` answers for the leader's writes."""

from contextlib import AbstractAsyncContextManager
from typing import Protocol


class Shut(Exception):
    """The guard lets nothing pass now."""


class Guard(Protocol):
    """Decides for each write whether it may be sent, and for how long it may take."""

    def passage(self) -> AbstractAsyncContextManager[None]:
        """Entered immediately before a write is sent, left after its answer.

        Raises: Shut, on entry or, for a write under way, when the guard shuts
        """
