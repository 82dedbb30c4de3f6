"""Runs the exec plugin of a kubeconfig, and ends it when nobody waits for it any more.

`library` gives this class to kubernetes_asyncio. The library's own leaves the process behind when
its caller gives up, for example at a deadline or at Ctrl-C.
"""

import asyncio
import logging
import sys
from typing import Any, Final

import msgspec
from kubernetes_asyncio.config.config_exception import ConfigException
from kubernetes_asyncio.config.exec_provider import ExecProvider

_STDOUT: Final = 1

# The library logs what it raises, too. A process without logging would print it a second time.
logging.getLogger("kubernetes_asyncio").addHandler(logging.NullHandler())
_FIELDS: Final = ("apiVersion", "kind", "status")


class Plugin(ExecProvider):
    """Args, as in the library: exec_config: the entry `exec` of the user"""

    async def run(self, previous_response: str | None = None) -> Any:
        """The status of the ExecCredential that the plugin prints.

        Raises: ConfigException when the plugin fails or prints something else; OSError when it
            cannot start
        """
        spec: dict[str, Any] = {"interactive": sys.stdin is not None and sys.stdin.isatty()}
        if previous_response:
            spec["response"] = previous_response
        exec_info = {"apiVersion": self.api_version, "kind": "ExecCredential", "spec": spec}
        output = _Output()
        running = asyncio.get_running_loop().subprocess_exec(
            lambda: output,
            *self.args,
            env={**self.env, "KUBERNETES_EXEC_INFO": msgspec.json.encode(exec_info).decode()},
            stdin=None,
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
        if code := transport.get_returncode():
            stderr = " ".join(output.stderr.decode(errors="replace").split())
            raise ConfigException(f"exec: process returned {code}. {stderr}".strip())
        return self._status_in(bytes(output.stdout))

    def _status_in(self, stdout: bytes) -> Any:
        try:
            credential = msgspec.json.decode(stdout, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConfigException(
                f"exec: the output of the plugin is no ExecCredential: {error}"
            ) from error
        absent = [field for field in _FIELDS if field not in credential]
        if absent:
            raise ConfigException(f"exec: the output of the plugin has no {absent[0]}")
        if credential["apiVersion"] != self.api_version:
            text = f"{credential['apiVersion']}, and not {self.api_version} as the kubeconfig says"
            raise ConfigException(f"exec: the apiVersion of the plugin is {text}")
        return credential["status"]


class _Output(asyncio.SubprocessProtocol):
    """Keeps what a process writes."""

    def __init__(self) -> None:
        self.stdout, self.stderr = bytearray(), bytearray()
        self.is_over = asyncio.Event()
        """Set when the process has ended and its pipes are closed."""

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        (self.stdout if fd == _STDOUT else self.stderr).extend(data)

    def connection_lost(self, _exc: Exception | None) -> None:
        self.is_over.set()
