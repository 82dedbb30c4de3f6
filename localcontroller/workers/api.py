"""The HTTP API on the node that workers report to.

A worker's base URL carries a secret in its path. The assigned task holds the secret's hash and the
workers that the secret may report for. The API replies 200 after the commit. The API is write-only:
a reply tells a worker whether its message was accepted and nothing else.
"""

import asyncio
import contextlib
import hashlib
import math
from collections.abc import AsyncIterator, Mapping
from typing import Final
from urllib.parse import unquote

import msgspec

from edgeai.errors import EdgeAIError, Overloaded
from edgeai.ids import Uid, WorkerName
from localcontroller.http_server import JSON, Answer, BodyTooLarge, BrokenBody, Request
from localcontroller.ledger.attempts import ProcessMessage, TooManyCounts, TooManyProcesses
from localcontroller.ledger.ledger import Ledger
from localcontroller.ledger.tables import Grant, NotGranted
from localcontroller.metrics import Metrics
from localcontroller.workers.heartbeats import Heartbeats
from localcontroller.workers.intake import EARLY_COMMITS_PER_S, Intake
from localcontroller.workers.messages import (
    InvalidMessage,
    parse_edgeai_message,
    parse_sedna_message,
)
from localcontroller.workers.models import ModelApi
from localcontroller.workers.rates import BUSY_RETRY_S, RequestRates, Shares, WorkerApiRates

READ_S: Final = 10.0
MAX_REQUESTS: Final = 256
PROCESS_RETRY_S: Final = 60.0
NO_SPACE_RETRY_S: Final = 5.0


class WorkerApi:
    """The handler of the worker API's requests.

    Args:
        read_s: limit for the arrival of a whole body
        max_requests: most requests at a time; further requests get 503 and Retry-After
        refusal_s: time after which further requests get their 503
        early_commits_per_s: see Intake
        rates: requests per second of one sender; further requests wait
    """

    def __init__(
        self,
        ledger: Ledger,
        heartbeats: Heartbeats,
        metrics: Metrics,
        *,
        models: ModelApi,
        read_s: float = READ_S,
        max_requests: int = MAX_REQUESTS,
        refusal_s: float = BUSY_RETRY_S,
        early_commits_per_s: float = EARLY_COMMITS_PER_S,
        rates: RequestRates = RequestRates(),  # noqa: B008 - frozen
    ) -> None:
        self._ledger = ledger
        self._heartbeats = heartbeats
        self._metrics = metrics
        self._models = models
        self._read_s = read_s
        self._max_requests = max_requests
        self._refusal_s = refusal_s
        self._intake = Intake(ledger, early_per_s=early_commits_per_s)
        self._shares = Shares(max_requests)
        self._refusals = 0  # requests that wait for their 503
        self._rates = WorkerApiRates(
            rates, limit=max_requests, delays=metrics.worker_requests_delayed
        )

    async def handle(self, request: Request) -> Answer:
        """Turn every outcome into an HTTP status with a reason in JSON."""
        try:
            answer = await self._report(request)
        except TimeoutError:
            answer = _error(408, f"no whole body within {self._read_s:g} s")
        except Overloaded as error:
            await self._delay_refusal()
            answer = _message_refusal(error)
        except NotGranted as error:
            answer = await self._refuse_stranger(request, _message_refusal(error))
        except BodyTooLarge as error:
            answer = _error(413, str(error))
        except EdgeAIError as error:
            answer = _message_refusal(error)
        self._metrics.worker_messages.labels(code=str(answer.status)).inc()
        return answer

    async def _report(self, request: Request) -> Answer:
        """Raises: EdgeAIError, TimeoutError, BodyTooLarge"""
        match request.path.split("/"):
            case ["", "w", secret, "v1", "workers", worker, "status"]:
                is_sedna = False
            case ["", "w", secret, "sedna", "workers", worker, "info"]:
                is_sedna = True
            case ["", "w", secret, "v1", "workers", worker, "models", name, *content]:
                return await self._give_model(request, unquote(secret), worker, name, content)
            case _:
                return await self._refuse_stranger(request, _error(404, "Not Found"))
        if request.method != "POST":
            refusal = _error(405, "Method Not Allowed", {"Allow": "POST"})
            return await self._refuse_stranger(request, refusal)
        async with self._admitted(unquote(secret), unquote(worker)) as (grant, name):
            body = await self._body(request)
            if is_sedna:
                message = parse_sedna_message(body, worker=name)
            else:
                message = parse_edgeai_message(body)
            await self._record(grant.uid, name, message)
        return _SEDNA_OK if is_sedna else _OK

    async def _give_model(
        self, request: Request, secret: str, worker: str, name: str, content: list[str]
    ) -> Answer:
        """Raises: EdgeAIError"""
        if request.method != "GET":
            refusal = _error(405, "Method Not Allowed", {"Allow": "GET"})
            return await self._refuse_stranger(request, refusal)
        async with self._admitted(secret, unquote(worker)) as (grant, _):
            match content:
                case []:
                    return await self._models.versions(grant, name)
                case [loaded]:
                    return await self._models.versions(grant, name, loaded)
                case [digest, offset]:
                    answer = await self._models.piece(grant, request, name, digest, offset)
                    return answer or _error(404, "there is no such content")
        return _error(404, "Not Found")

    async def _delay_refusal(self) -> None:
        """Some workers come again at once, whatever Retry-After says. An early answer would let
        them take the event loop from the other workers and from the session with the cloud.
        """
        if self._refusals >= self._max_requests:
            return  # a waiting request takes memory
        self._refusals += 1
        try:
            await asyncio.sleep(self._refusal_s)
        finally:
            self._refusals -= 1

    async def _refuse_stranger(self, request: Request, refusal: Answer) -> Answer:
        try:
            await self._rates.wait_as_stranger(request.address)
        except Overloaded:
            request.abort()
        return refusal

    @contextlib.asynccontextmanager
    async def _admitted(self, secret: str, name: str) -> AsyncIterator[tuple[Grant, WorkerName]]:
        """The grant and the worker that the URL names, while one of the grant's requests may run.

        The head of a request shows already that the worker lives. So the head renews the worker's
        deadline, also if there is no room for the request.

        Raises: NotGranted, Overloaded
        """
        # The time of a lookup by hash reveals no secret: a caller cannot choose the hash.
        grant = self._ledger.grant(hashlib.sha256(secret.encode()).hexdigest())
        worker = WorkerName(name)
        # One text for an unknown secret and another task's worker.
        if grant is None or worker not in grant.workers:
            raise NotGranted("this URL does not allow reports as that worker on this node")
        self._heartbeats.renew(grant.uid, worker)
        await self._rates.wait(grant)
        self._shares.take(grant)
        try:
            yield grant, worker
        finally:
            self._shares.give_back(grant)

    async def _body(self, request: Request) -> bytes:
        """Raises: TimeoutError, BodyTooLarge, InvalidMessage"""
        try:
            async with asyncio.timeout(self._read_s):
                return await request.body()
        except BrokenBody as error:
            raise InvalidMessage(f"body: {error}") from error

    async def _record(self, uid: Uid, worker: WorkerName, message: ProcessMessage) -> None:
        recorded = await self._intake.record(uid, worker, message)
        if recorded.worker.is_finished:
            self._heartbeats.forget(uid, worker)
        elif recorded.is_current:
            self._heartbeats.expect(uid, worker, recorded.worker.heartbeat_s)


def _message_refusal(error: EdgeAIError) -> Answer:
    """The reply to a worker whose message was not accepted."""
    match error:
        case InvalidMessage() | TooManyCounts():
            return _error(400, str(error))
        case NotGranted():
            return _error(403, str(error))
        case TooManyProcesses():
            retry_after_s = PROCESS_RETRY_S
        case Overloaded():
            retry_after_s = error.retry_after_s
        case _:
            retry_after_s = NO_SPACE_RETRY_S
    return _error(503, str(error), {"Retry-After": str(math.ceil(retry_after_s))})


def _error(status: int, reason: str, headers: Mapping[str, str] | None = None) -> Answer:
    return Answer(
        status=status,
        body=msgspec.json.encode({"status": status, "message": reason}),
        content_type=JSON,
        headers=headers or {},
        is_last=status in (408, 413),  # the rest of the body is not read
    )


_OK: Final = Answer(body=b'{"status":200,"message":"OK"}', content_type=JSON)
_SEDNA_OK: Final = Answer(body=b'{"Status":200,"Message":"OK"}', content_type=JSON)
