"""The exec plugin of a kubeconfig: a process that prints a credential. It ends with its caller.

Source: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

import asyncio
import os
import sys
from typing import Final

import msgspec

_STDOUT: Final = 1
_MAX_BYTES: Final = 1024 * 1024
_MAX_STDERR_CHARS: Final = 1000


class PluginFailed(Exception):
    """A plugin cannot start, fails, or prints something else."""


class Variable(msgspec.Struct):
    name: str
    value: str = ""


class PluginStatus(msgspec.Struct, rename="camel"):
    """Certificate and key are PEM texts."""

    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    status: PluginStatus


class Plugin(msgspec.Struct, rename="camel"):
    """The entry `exec` of a user."""

    command: str
    api_version: str
    args: list[str] = []
    env: list[Variable] = []

    async def run(self) -> PluginStatus:
        """Raises: PluginFailed"""
        spec = {"interactive": sys.stdin is not None and sys.stdin.isatty()}
        info = {"apiVersion": self.api_version, "kind": "ExecCredential", "spec": spec}
        variables = {variable.name: variable.value for variable in self.env}
        variables["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(info).decode()
        output = _Output()
        try:
            code = await self._run_into(output, {**os.environ, **variables})
        except OSError as error:
            raise PluginFailed(f"{self.command} cannot start: {error.strerror}") from error
        if code:
            stderr = " ".join(output.stderr.decode(errors="replace").split())
            raise PluginFailed(f"process returned {code}. {stderr[:_MAX_STDERR_CHARS]}".strip())
        if len(output.stdout) > _MAX_BYTES:
            raise PluginFailed(f"the output of the plugin is larger than {_MAX_BYTES} bytes")
        return self._status_in(bytes(output.stdout))

    async def _run_into(self, output: "_Output", environment: dict[str, str]) -> int | None:
        """Returns: the exit code. Raises: OSError when the command cannot start"""
        running = asyncio.get_running_loop().subprocess_exec(
            lambda: output, self.command, *self.args, env=environment, stdin=None
        )
        # asyncio would wait for the children of a plugin whose start is cancelled.
        start = asyncio.create_task(running, name="start of an exec plugin")
        try:
            await asyncio.shield(start)
            await output.is_over.wait()
        finally:
            transport, _ = await start
            transport.close()  # kills the plugin if it still runs
            await output.is_over.wait()
        return transport.get_returncode()

    def _status_in(self, stdout: bytes) -> PluginStatus:
        try:
            credential = msgspec.json.decode(stdout, type=_ExecCredential)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            problem = f"the output of the plugin is no ExecCredential: {error}"
            raise PluginFailed(problem) from error
        if credential.api_version != self.api_version:
            text = f"{credential.api_version}, and not {self.api_version} as the kubeconfig says"
            raise PluginFailed(f"the apiVersion of the plugin is {text}")
        status = credential.status
        if not status.token and not (status.client_certificate_data and status.client_key_data):
            raise PluginFailed("the plugin gives neither a token nor a certificate with its key")
        return status


class _Output(asyncio.SubprocessProtocol):
    def __init__(self) -> None:
        self.stdout, self.stderr = bytearray(), bytearray()
        self.is_over = asyncio.Event()
        """Set when the process has ended and its pipes are closed."""

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        kept = self.stdout if fd == _STDOUT else self.stderr
        kept.extend(data[: _MAX_BYTES + 1 - len(kept)])

    def connection_lost(self, _exc: Exception | None) -> None:
        self.is_over.set()
