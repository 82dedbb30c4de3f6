"""pods/exec over WebSocket, with the subprotocols v4.channel.k8s.io and v5.channel.k8s.io.

The first byte of a message names a channel. On channel 3 the client gets a Status when the command
has ended. Version 5 can close stdin, version 4 cannot. SPDY (kubectl before 1.31) is not served.

When the client disconnects, the command's stdin ends and the command goes on, as in Kubernetes.
"""

import asyncio
from typing import Final

import msgspec
from aiohttp import WSMsgType, web

from edgeai.localcluster.objects import errors
from edgeai.localcluster.objects.containers import (
    CannotExecute,
    ContainerQuery,
    ExecTarget,
    Execution,
)
from edgeai.localcluster.objects.resources import Object

PROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_STDIN, _STDOUT, _STDERR, _STATUS, _CLOSE = 0, 1, 2, 3, 255
_PIECE_BYTES: Final = 1 << 15
_MAX_MESSAGE_BYTES: Final = 1 << 20
_DRAIN_S: Final = 2.0
"""Seconds. After the end of the command its output is sent for this long."""


async def run(
    request: web.Request, target: ExecTarget, query: ContainerQuery, *, has_stdin: bool
) -> web.StreamResponse:
    """Run a command for a client until the command ends or the client disconnects.

    Raises: errors.BadRequest, errors.NotFound, before the answer begins
    """
    socket = web.WebSocketResponse(protocols=PROTOCOLS, max_msg_size=_MAX_MESSAGE_BYTES)
    if not socket.can_prepare(request):
        raise errors.BadRequest(
            "the local cluster runs commands over WebSocket only: use kubectl 1.31 or newer"
        )
    command = tuple(request.query.getall("command", ()))
    if not command:
        raise errors.BadRequest("you must specify at least 1 command for the container")
    try:
        execution = await target(query, command)
    except CannotExecute as error:
        await socket.prepare(request)
        text = f"error executing command in container: {error}"
        failure = _failure(text, "InternalError", {"message": str(error)})
        await _end(socket, failure | {"code": 500})
        return socket
    if not has_stdin:
        execution.end_stdin()
    try:
        await socket.prepare(request)
        await _stream(socket, execution)
    except ConnectionError:
        return socket  # the client has disconnected
    finally:
        execution.end_stdin()
    return socket


async def _stream(socket: web.WebSocketResponse, execution: Execution) -> None:
    feeding = asyncio.create_task(_feed(socket, execution), name="stdin of a command")
    outputs = [
        asyncio.create_task(_send(socket, channel, stream), name=f"output {channel} of a command")
        for channel, stream in ((_STDOUT, execution.stdout), (_STDERR, execution.stderr))
    ]
    ending = asyncio.create_task(execution.wait(), name="end of a command")
    try:
        await asyncio.wait([feeding, ending], return_when=asyncio.FIRST_COMPLETED)
        if ending.done():
            await asyncio.wait(outputs, timeout=_DRAIN_S)
            await _end(socket, _status(ending.result()))
    finally:
        tasks = (feeding, ending, *outputs)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _feed(socket: web.WebSocketResponse, execution: Execution) -> None:
    async for message in socket:
        if message.type is not WSMsgType.BINARY or not message.data:
            continue
        channel, data = message.data[0], message.data[1:]
        if channel == _STDIN and data:
            await execution.feed(data)
        elif channel == _CLOSE and data == bytes([_STDIN]):
            execution.end_stdin()


async def _send(socket: web.WebSocketResponse, channel: int, stream: asyncio.StreamReader) -> None:
    while data := await stream.read(_PIECE_BYTES):
        await socket.send_bytes(bytes([channel]) + data)


async def _end(socket: web.WebSocketResponse, status: Object) -> None:
    await socket.send_bytes(bytes([_STATUS]) + msgspec.json.encode(status))
    await socket.close()


def _status(code: int) -> Object:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    text = f"command terminated with non-zero exit code: exit status {code}"
    return _failure(text, "NonZeroExitCode", {"reason": "ExitCode", "message": str(code)})


def _failure(message: str, reason: str, cause: Object) -> Object:
    head = {"metadata": {}, "status": "Failure", "message": message, "reason": reason}
    return head | {"details": {"causes": [cause]}}
