"""A command that a client runs in a container, beside the container's own process.

`container` calls this module. The command has the container's environment and working directory. It
has a process group of its own, which ends with the command, with the container and with the
cluster.
"""

import asyncio
import contextlib
import os
import signal
import subprocess

from edgeai.localcluster.kubelet.launch import Launch
from edgeai.localcluster.kubelet.process import Reaper, shim

_BUFFER_BYTES = 1 << 16


class ContainerExecution:
    """A command that runs. `start` makes it."""

    def __init__(self, process: asyncio.subprocess.Process, reaper: Reaper) -> None:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        self._process = process
        self._stdin = process.stdin
        self._reaper = reaper
        self.stdout = process.stdout
        self.stderr = process.stderr
        name = f"end of command {process.pid}"
        self._end = asyncio.create_task(self._ended(), name=name)

    @classmethod
    async def start(cls, launch: Launch, reaper: Reaper) -> "ContainerExecution":
        """Raises: OSError when the system cannot start another process"""
        process = await asyncio.create_subprocess_exec(
            *shim(reaper, launch),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=launch.env,
            cwd=launch.cwd,
            start_new_session=True,
            pass_fds=(reaper.descriptor,),
            limit=_BUFFER_BYTES,
        )
        return cls(process, reaper)

    async def feed(self, data: bytes) -> None:
        """Write to the command's stdin. Does nothing when the command does not read any more."""
        with contextlib.suppress(ConnectionError, RuntimeError):
            self._stdin.write(data)
            await self._stdin.drain()

    def end_stdin(self) -> None:
        with contextlib.suppress(ConnectionError, RuntimeError):
            self._stdin.close()

    async def wait(self) -> int:
        """The exit code; 128 + the signal's number if a signal ended the command."""
        code = await asyncio.shield(self._end)
        return code if code >= 0 else 128 - code

    @property
    def has_ended(self) -> bool:
        return self._end.done()

    def kill(self) -> None:
        """Kill the command and its process group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def _ended(self) -> int:
        code = await self._process.wait()
        # Other processes of the group end as with the end of a container.
        self.kill()
        self._reaper.withdraw(self._process.pid)
        self.end_stdin()
        return code
