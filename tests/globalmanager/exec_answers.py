"""What a kubelet says over pods/exec, for the scripted API."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from aiohttp import web

from tests.globalmanager.scripted_api import Answer

PROTOCOL = "v4.channel.k8s.io"
SUCCESS = {"metadata": {}, "status": "Success"}


def exited(code: int) -> dict[str, Any]:
    """The Status of a command that ended with this code, as kubelets write it."""
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": causes},
    }


def says(
    *messages: bytes,
    status: Any = None,
    protocols: Sequence[str] = (PROTOCOL,),
    before: Callable[[web.WebSocketResponse], Awaitable[None]] | None = None,
) -> Answer:
    """Accepts the handshake and sends these messages, then the status, if there is one.

    Args: before: is awaited with the open WebSocket before anything is sent
    """

    async def answer(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=protocols)
        await socket.prepare(request)
        for channel in (1, 2, 3):  # a kubelet opens each channel with an empty message
            await socket.send_bytes(bytes([channel]))
        if before is not None:
            await before(socket)
        for message in messages:
            await socket.send_bytes(message)
        if status is not None:
            await socket.send_bytes(b"\x03" + msgspec.json.encode(status))
        await socket.close()
        return socket

    return answer


def hangs() -> Answer:
    """A command that does not end; the answer ends with the client's connection."""

    async def until_closed(socket: web.WebSocketResponse) -> None:
        async for _ in socket:
            pass
        raise asyncio.CancelledError

    return says(before=until_closed)
