"""Runs the process group of one container. No process group outlives the cluster.

Each container has a process session of its own, so signals go to the whole group. When the first
process of a group ends, this module kills the others, as a kernel does after the end of a
container's PID 1. This includes a process that has left the group, if it writes to the container's
output. A pidfd reports the exit, without threads or polling. stdout and stderr share one pipe,
which keeps the order of the output. The function `sink` gets the output.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from edgeai.localcluster.errors import ClusterError
from edgeai.localcluster.kubelet.launch import Launch
from edgeai.localcluster.kubelet.reaper import kill_writers

_SHIM: Final = str(Path(__file__).with_name("shim.py"))
_REAPER: Final = str(Path(__file__).with_name("reaper.py"))
_ISOLATED: Final = (sys.executable, "-I", "-S")

DRAIN_S: Final = 2.0
"""Seconds. After the exit, the output is read for this long."""
_BUFFER_BYTES: Final = 1 << 16
_LAST_WORDS_S: Final = 0.1
"""After the exit, the output ends within this time, unless a process that left the group lives."""


class Reaper:
    """A process that kills all containers when the cluster's process dies. `close` ends the reaper.
    Args: directory: the state directory, which `ps` shows
    """

    def __init__(self, directory: Path) -> None:
        reader, self.descriptor = os.pipe()
        try:
            self._process = subprocess.Popen(
                (*_ISOLATED, _REAPER, str(directory)),
                stdin=reader,
                stdout=subprocess.DEVNULL,
                env={},
                # A signal to the cluster's process group must not end the reaper.
                start_new_session=True,
            )
        finally:
            os.close(reader)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def guard(self) -> None:
        """Wait until the reaper ends. The cluster cancels this wait before it ends the reaper.

        Raises: ClusterError when the reaper was killed: containers might outlive the cluster
        """
        await _process_end(self.pid)
        raise ClusterError(f"the process that guards the containers, {self.pid}, was killed")

    def withdraw(self, group: int) -> None:
        # The pipe is broken if another process killed the reaper. An orderly stop of the cluster
        # ends the containers in this case, too.
        with contextlib.suppress(BrokenPipeError):
            os.write(self.descriptor, b"-%d\n" % group)

    def close(self) -> None:
        os.close(self.descriptor)
        self._process.wait()


def shim(reaper: Reaper, launch: Launch) -> tuple[str, ...]:
    """The command that becomes the program, after the reaper knows its process group."""
    return (
        *launch.enter,
        *_ISOLATED,
        _SHIM,
        str(reaper.descriptor),
        launch.executable,
        *launch.argv,
    )


class ContainerProcess:
    """A running process group. Its owner awaits `wait` and must call `close` at the end.

    Raises: OSError when the system cannot start another process
    """

    def __init__(self, launch: Launch, reaper: Reaper, sink: Callable[[bytes], None]) -> None:
        self._reaper = reaper
        self._exit_code: int | None = None
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self._drained: asyncio.Future[None] = self._loop.create_future()
        self._popen = subprocess.Popen(
            shim(reaper, launch),
            bufsize=0,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=launch.env,
            cwd=launch.cwd,
            start_new_session=True,
            pass_fds=(reaper.descriptor,),
        )
        assert self._popen.stdout
        self._output = self._popen.stdout
        self._pipe = os.readlink(f"/proc/self/fd/{self._output.fileno()}")  # "pipe:[4711]"
        os.set_blocking(self._output.fileno(), False)
        self._loop.add_reader(self._output, self._read)

    @property
    def pid(self) -> int:
        return self._popen.pid

    async def wait(self) -> int:
        """Wait for the exit of the first process and for the end of the output.

        Returns: the exit code; 128 + the signal's number if a signal ended the process
        Raises: OSError when the system has no resources to wait
        """
        await _process_end(self.pid)
        code = self._reap()
        if not await self._is_drained_within(_LAST_WORDS_S):
            kill_writers({self._pipe})
            await self._is_drained_within(DRAIN_S)
        return code

    async def _is_drained_within(self, limit_s: float) -> bool:
        await asyncio.wait([self._drained], timeout=limit_s)
        return self._drained.done()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole process group. Does nothing after the end of the group."""
        if self._exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._popen.pid, number)

    def close(self) -> None:
        """Kill the remaining processes and close the pipe. A second call does nothing."""
        self._reap()
        if not self._drained.done():
            kill_writers({self._pipe})
        self._end_output()

    def _read(self) -> None:
        data = self._output.read(_BUFFER_BYTES)
        if data:
            self._sink(data)
        elif data is not None:  # the end of file; None: nothing to read now
            self._end_output()

    def _end_output(self) -> None:
        if not self._drained.done():
            self._loop.remove_reader(self._output)
            self._output.close()
            self._drained.set_result(None)

    def _reap(self) -> int:
        if self._exit_code is None:
            # The first process is not reaped yet, so no other process group can have its number.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._popen.pid, signal.SIGKILL)
            self._reaper.withdraw(self._popen.pid)
            code = self._popen.wait()
            self._exit_code = code if code >= 0 else 128 - code
        return self._exit_code


class ContainerExecution:
    """A command that a client runs in a container, beside the container's own process.

    Its own process group ends with it, the container and the cluster. `start` makes it.
    """

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
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def _ended(self) -> int:
        code = await self._process.wait()
        # Other processes of the group end as with the end of a container.
        self.kill()
        self._reaper.withdraw(self._process.pid)
        self.end_stdin()
        return code


async def _process_end(pid: int) -> None:
    """Wait until a child has ended, which is not reaped yet. Raises: OSError"""
    loop, end = asyncio.get_running_loop(), asyncio.Event()
    pidfd = os.pidfd_open(pid)  # readable from the end of the process on
    loop.add_reader(pidfd, end.set)
    try:
        await end.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)
