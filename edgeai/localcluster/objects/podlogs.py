"""The interface between pods/log of the API and the kubelet, which has the logs.

The kubelet implements `LogSource`. `cluster` gives the log source to the API server. The server
checks the pod and the container first. So the server asks a log source only for containers of the
pod's spec.
"""

from collections.abc import AsyncIterator
from typing import Protocol

import msgspec


class LogQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Names a container, and the lines that a client wants of the container's log."""

    namespace: str
    pod: str
    uid: str
    """uid of the pod. A new pod of the same name has other logs."""
    container: str
    follow: bool = False
    """Stream new lines until the run ends."""
    previous: bool = False
    """Read the log of the run before the last restart."""
    tail_lines: int | None = None
    since_s: float | None = None
    """Yield only lines of the last `since_s` seconds."""
    timestamps: bool = False
    """Begin each line with its time (RFC 3339)."""


class LogSource(Protocol):
    """Yields the text of a log. A piece of text may end in the middle of a line.

    Before the first piece, the source may raise errors.NotFound, or errors.BadRequest for a
    container that has not started. The server closes the iterator when the client disconnects.
    """

    def __call__(self, query: LogQuery) -> AsyncIterator[bytes]: ...
