"""The HTTP API on the node that workers report to.

A worker's base URL carries a secret in its path; the ledger knows the secret's hash from the
assigned task, and so what it gives the right to. A reply of 200 comes after the commit. Nothing
is read here: this API tells a worker nothing but whether it was heard.
"""

import asyncio
import hashlib
import math
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from common.errors import EdgeAIError, Overloaded
from common.ids import Uid, WorkerName
from localcontroller.ledger.attempts import Message, TooManyCounts
from localcontroller.ledger.ledger import Ledger
from localcontroller.ledger.tables import Grant, NotGranted
from localcontroller.metrics import Metrics
from localcontroller.workers.heartbeats import Heartbeats
from localcontroller.workers.intake import Intake
from localcontroller.workers.messages import (
    InvalidMessage,
    parse_sedna_message,
    parse_worker_message,
)

MAX_BODY_BYTES: Final = 64 * 1024
READ_S: Final = 10.0  # for a whole body
MAX_REQUESTS: Final = 256  # at a time; more are told to come back
NO_SPACE_RETRY_S: Final = 5.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class WorkerApi:
    """Routes of the worker API; `app` is served by whoever builds it."""

    def __init__(self, ledger: Ledger, heartbeats: Heartbeats, metrics: Metrics) -> None:
        self._ledger = ledger
        self._heartbeats = heartbeats
        self._metrics = metrics
        self._intake = Intake(ledger)
        self._active = 0  # requests

    def app(self) -> web.Application:
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[self._answer])
        app.router.add_post("/w/{secret}/v1/workers/{worker}/status", self._on_status)
        app.router.add_post("/w/{secret}/sedna/workers/{worker}/info", self._on_sedna_info)
        return app

    @web.middleware
    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Every outcome as an HTTP status with a reason in JSON."""
        if self._active >= MAX_REQUESTS:
            return _error(503, "too many requests at a time", retry_after_s=1.0)
        self._active += 1
        try:
            response = await handler(request)
        except (EdgeAIError, TimeoutError, web.HTTPException) as error:
            response = _refusal(error)
        finally:
            self._active -= 1
        self._metrics.worker_messages.labels(code=str(response.status)).inc()
        return response

    async def _on_status(self, request: web.Request) -> web.Response:
        grant, worker = self._authorise(request)
        message = parse_worker_message(await _body(request))
        await self._record(grant.uid, worker, message)
        return web.json_response({"status": 200, "message": "OK"})

    async def _on_sedna_info(self, request: web.Request) -> web.Response:
        grant, worker = self._authorise(request)
        message = parse_sedna_message(await _body(request), worker=worker)
        await self._record(grant.uid, worker, message)
        return web.json_response({"Status": 200, "Message": "OK"})

    def _authorise(self, request: web.Request) -> tuple[Grant, WorkerName]:
        """Raises: NotGranted. An unknown secret and a foreign worker look alike."""
        worker = WorkerName(request.match_info["worker"])
        # A lookup by hash tells no secret by its duration: nobody can aim at a hash.
        digest = hashlib.sha256(request.match_info["secret"].encode()).hexdigest()
        grant = self._ledger.grant(digest)
        if grant is None or worker not in grant.workers:
            raise NotGranted("this URL gives no right to report as that worker on this node")
        return grant, worker

    async def _record(self, uid: Uid, worker: WorkerName, message: Message) -> None:
        # Heard is heard, even where nothing can be committed: a full disk kills no worker.
        self._heartbeats.touch(uid, worker)
        recorded = await self._intake.record(uid, worker, message)
        if recorded.worker.is_finished:
            self._heartbeats.forget(uid, worker)
        elif recorded.is_current:
            self._heartbeats.promise(uid, worker, recorded.worker.heartbeat_s)


async def _body(request: web.Request) -> bytes:
    """Raises: TimeoutError, HTTPRequestEntityTooLarge, InvalidMessage"""
    try:
        async with asyncio.timeout(READ_S):
            return await request.read()
    except ConnectionError as error:
        raise InvalidMessage("body: the connection ended before it") from error


def _refusal(error: Exception) -> web.Response:
    match error:
        case InvalidMessage() | TooManyCounts():
            return _error(400, str(error))
        case NotGranted():
            return _error(403, str(error))
        case TimeoutError():
            return _error(408, f"no whole body within {READ_S:g} s")
        case web.HTTPException():
            return _error(error.status, error.reason)
        case Overloaded():
            return _error(503, str(error), retry_after_s=error.retry_after_s)
        case _:
            return _error(503, str(error), retry_after_s=NO_SPACE_RETRY_S)


def _error(status: int, reason: str, *, retry_after_s: float | None = None) -> web.Response:
    response = web.json_response({"status": status, "message": reason}, status=status)
    if retry_after_s is not None:
        response.headers["Retry-After"] = str(math.ceil(retry_after_s))
    if status in (408, 413):
        response.force_close()  # the rest of the body is not wanted
    return response
