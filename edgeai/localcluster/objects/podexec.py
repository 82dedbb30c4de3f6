"""The interface between pods/exec of the API and the kubelet, which runs the commands.

The kubelet implements `ExecTarget`. `cluster` gives the target to the API server. The server checks
the pod and the container first.
"""

import asyncio
from typing import Protocol

import msgspec

from edgeai.localcluster.errors import ClusterError


class ExecQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Names a container, and the command that a client wants to run there."""

    namespace: str
    pod: str
    uid: str
    """uid of the pod."""
    container: str
    command: tuple[str, ...]


class CannotExecute(ClusterError):
    """The container runs, but not this command. The text says why."""


class Execution(Protocol):
    """A command that runs."""

    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader

    async def feed(self, data: bytes) -> None:
        """Write to the command's stdin. Does nothing when the command does not read any more."""

    def end_stdin(self) -> None: ...

    async def wait(self) -> int:
        """The exit code; 128 + the signal's number if a signal ended the command."""


class ExecTarget(Protocol):
    """Starts a command.

    Raises: errors.NotFound when the container does not run; CannotExecute
    """

    async def __call__(self, query: ExecQuery) -> Execution: ...
