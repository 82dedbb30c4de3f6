"""The interface between the API and the kubelet for logs and commands of containers.

The kubelet implements `LogSource` and `ExecTarget`. The API server checks the pod and the container
first, so a query names only a container of the pod's spec.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

import msgspec

from edgeai.localcluster.errors import ClusterError


class ContainerQuery(msgspec.Struct, frozen=True, kw_only=True):
    namespace: str
    pod: str
    uid: str
    """uid of the pod. A new pod of the same name has other logs."""
    container: str


class LogQuery(ContainerQuery, frozen=True, kw_only=True):
    follow: bool = False
    """Stream new lines until the run ends."""
    previous: bool = False
    """Read the log of the run before the last restart."""
    tail_lines: int | None = None
    timestamps: bool = False
    """Begin each line with its time (RFC 3339)."""


LogSource = Callable[[LogQuery], AsyncIterator[bytes]]
"""Yields the text of a log. A piece of text may end in the middle of a line.

Before the first piece, the source may raise errors.NotFound, or errors.BadRequest for a container
that has not started. The reader closes the iterator when the client disconnects.
"""


class CannotExecute(ClusterError):
    """The container runs, but not this command. The text says why."""


class Execution(Protocol):
    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader

    async def feed(self, data: bytes) -> None:
        """Write to the command's stdin. Does nothing when the command does not read any more."""

    def end_stdin(self) -> None: ...

    async def wait(self) -> int:
        """The exit code; 128 + the signal's number if a signal ended the command."""


ExecTarget = Callable[[ContainerQuery, tuple[str, ...]], Awaitable[Execution]]
"""Starts a command in a container.

Raises: errors.NotFound when the container does not run; CannotExecute
"""
