"""The client of a person's commands: what only a person needs of the API.

A port of a pod is reached over a WebSocket: the subprotocol v4.channel.k8s.io of pods/portforward.
The first byte of each message names a channel: 0 the bytes of the connection, 1 an error in words.
Each channel begins with two bytes, the number of the port. This subprotocol cannot close one
direction alone.
"""

import asyncio
import contextlib
import email.utils
import re
from datetime import datetime
from typing import Any, Final

import aiohttp
import msgspec

from edgeai.api.resources import ObjectRef
from edgeai.kube import errors
from edgeai.kube.client import KubeClient
from edgeai.kube.objects import NotReadable, decode
from edgeai.kube.sender import ApiRequest, request_for

PROTOCOL: Final = "v4.channel.k8s.io"
_LOCAL: Final = "+localcluster"
_VERSION: Final = re.compile(r"v([0-9]{1,4})\.([0-9]{1,4})")
_DATA, _ERROR = range(2)
_PORT_BYTES: Final = 2
_CHUNK_BYTES: Final = 32 * 1024
_MAX_ERROR_CHARS: Final = 300


class Version(msgspec.Struct, frozen=True, order=True):
    """Of the API server."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


class About(msgspec.Struct, frozen=True):
    """What an API server tells of itself. None: it does not tell."""

    version: Version | None
    clock: datetime | None
    """Its time at the answer, to the second."""
    is_local: bool = False
    """Whether it is the local cluster of `edgeai up`, whose pods are processes of this machine."""


class UserClient(KubeClient):
    async def token(self) -> str:
        """The bearer token of the kubeconfig, also of its exec plugin; "" where it has none."""
        return await self._sender.policy.transport.token()

    async def new_token(self, account: ObjectRef, *, seconds: int) -> str:
        """A new token of a ServiceAccount, for the Kubernetes API. Raises: ApiError"""
        body: dict[str, Any] = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "metadata": {},
            "spec": {"expirationSeconds": seconds},
        }
        request = request_for("create", "POST", account, body=body, subresource="token")
        answer = await self._object(request)
        return str((answer.get("status") or {}).get("token") or "")

    async def about(self) -> About:
        """What the API server tells of itself. Raises: ApiError"""
        request = ApiRequest(verb="get", target="version", method="GET", path="/version")
        async with self._sender.answered(request, self._settings.deadline_s) as response:
            body, date = await response.read(), response.headers.get("Date", "")
        try:
            # Not major and minor: a build may leave them empty, and clouds write the minor "29+".
            text = decode(body).get("gitVersion")
        except NotReadable as error:
            problem = f"the answer cannot be read: {error}"
            raise self._sender.malformed(request, problem) from error
        match = _VERSION.match(str(text))
        version = Version(int(match[1]), int(match[2])) if match else None
        return About(version, _time_of(date), is_local=str(text).endswith(_LOCAL))

    async def forward(
        self,
        pod: ObjectRef,
        port: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Carry the bytes of one connection to and from the port of a pod, until one side ends.

        Raises: ApiError; Unreachable also when nothing listens on the port
        """
        request = request_for("portforward", "GET", pod, subresource="portforward")
        query = [("ports", str(port))]
        async with self._sender.socket(request, query, protocol=PROTOCOL) as socket:
            sender = asyncio.create_task(_send(reader, socket))
            try:
                problem = await _receive(socket, writer)
            finally:
                sender.cancel()
                with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                    await sender
        if problem:
            raise request.failed(errors.Unreachable, problem)


def _time_of(date: str) -> datetime | None:
    try:
        time = email.utils.parsedate_to_datetime(date)
    except ValueError:
        return None
    return time if time.tzinfo is not None else None


async def _send(reader: asyncio.StreamReader, socket: aiohttp.ClientWebSocketResponse) -> None:
    """Until the reader's side ends, which ends the connection as a whole."""
    try:
        while data := await reader.read(_CHUNK_BYTES):
            await socket.send_bytes(bytes([_DATA]) + data)
    finally:
        await socket.close()


async def _receive(socket: aiohttp.ClientWebSocketResponse, writer: asyncio.StreamWriter) -> str:
    """What was wrong, in the kubelet's words; "" when the connection has just ended."""
    prefix_bytes = {_DATA: 0, _ERROR: 0}
    problem = ""
    async for message in socket:
        if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
            continue
        channel = message.data[0]
        if channel not in prefix_bytes:
            continue
        skipped = min(_PORT_BYTES - prefix_bytes[channel], len(message.data) - 1)
        prefix_bytes[channel] += skipped
        data = message.data[1 + skipped :]
        if channel == _ERROR:
            problem = (problem + data.decode(errors="replace"))[:_MAX_ERROR_CHARS]
        elif data:
            writer.write(data)
            await writer.drain()
    return problem
