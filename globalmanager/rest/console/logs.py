"""The log of a container, live, as a person reads it on a page.

One stream is one request to the Kubernetes API that shows the caller's token, so the API server
decides who reads what. A container may write faster than a browser reads: then it is read more
slowly, so a stream takes a bounded part of the memory and of the event loop.
"""

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from http import HTTPStatus
from typing import Final

import msgspec
from aiohttp import web

from common.clock import loop_time
from edgeai.api.pod_state import container_states
from edgeai.api.resources import PODS, Object, ObjectRef
from edgeai.api.status import mapping, mappings
from edgeai.errors import Overloaded
from edgeai.text import printable
from globalmanager.rest.console.actions import CallersApi
from globalmanager.rest.console.live import beat, event, event_stream, has_left
from globalmanager.rest.console.visits import Visit
from globalmanager.rest.errors import RequestError
from globalmanager.rest.fair_rate import FairRate, Rate

_STYLES: Final = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]")
END: Final = event("end", "-")
MAX_CONTAINERS: Final = 50  # of one pod


class LogLimits(msgspec.Struct, frozen=True, kw_only=True):
    streams: int = 40
    """Logs that are read at a time."""
    streams_of_one: int = 8
    """The same number for one user, or for all ServiceAccounts of a namespace."""
    tail: int = 500
    """Lines from before the page was opened."""
    waiting: int = 100
    """Lines of one log that are read and not yet sent."""
    line_chars: int = 2000
    """Longest line that is shown; the end of a longer one is cut off."""
    pause_s: float = 0.2
    """Shortest time between two pieces of a log."""
    beat_s: float = 15.0
    """Longest pause on a stream, so that proxies keep it."""
    look_s: float = 2.0
    """Time after which a browser that has left is noticed."""
    write_s: float = 10.0
    """Longest time until a browser has taken a piece."""
    each: Rate = Rate(0.5, 10)
    """Logs that one user opens per second."""
    total: Rate = Rate(5.0, 40)
    """Logs that all open per second."""


class LogChoice(msgspec.Struct, frozen=True):
    """Which log a page shows. Args: is_previous: of the run before the last restart"""

    pod: str
    container: str
    is_previous: bool


def containers_of(pod: Object) -> list[str]:
    """The names of a pod's containers, those that do the work first."""
    spec = mapping(pod.get("spec"))
    entries = (*mappings(spec.get("containers")), *mappings(spec.get("initContainers")))
    names = [str(entry.get("name", "")) for entry in (*entries, *container_states(pod)[::-1])]
    return [name for name in dict.fromkeys(names) if name][:MAX_CONTAINERS]


class Logs:
    """Args: callers_api: asks with the caller's token"""

    def __init__(
        self,
        callers_api: CallersApi,
        limits: LogLimits = LogLimits(),  # noqa: B008 - frozen
    ) -> None:
        self._callers_api = callers_api
        self._limits = limits
        self._rate = FairRate(of_source=limits.each, total=limits.total, part="logs")
        self._of_tenant: Counter[str] = Counter()

    async def send(
        self,
        request: web.Request,
        visit: Visit,
        namespace: str,
        choice: LogChoice,
        *,
        for_s: float,
    ) -> web.StreamResponse:
        """Send the log until it ends, or the browser leaves. Args: for_s: then the stream ends, and
        the browser asks again

        Raises: RequestError when too many logs are read
        """
        if visit.session is None:
            problem = "log in to read logs: they are read with your own rights"
            raise RequestError(HTTPStatus.FORBIDDEN, problem)
        lines = self._callers_api.log_lines(
            visit.session.token,
            ObjectRef(PODS, namespace, choice.pod),
            container=choice.container,
            tail=self._limits.tail,
            is_previous=choice.is_previous,
        )
        with self._counted(visit.caller.tenant):
            async with (
                event_stream(request, write_s=self._limits.write_s, for_s=for_s) as response,
                self._read(lines) as queue,
            ):
                await self._follow(queue, request, response)
        return response

    @contextlib.contextmanager
    def _counted(self, tenant: str) -> Iterator[None]:
        """Raises: RequestError"""
        try:
            self._rate.take(tenant, loop_time())
        except Overloaded as error:
            raise RequestError(HTTPStatus.TOO_MANY_REQUESTS, str(error)) from error
        is_full = self._of_tenant.total() >= self._limits.streams
        if is_full or self._of_tenant[tenant] >= self._limits.streams_of_one:
            problem = "too many logs are read at the moment: close a page, or try again later"
            raise RequestError(HTTPStatus.TOO_MANY_REQUESTS, problem)
        self._of_tenant[tenant] += 1
        try:
            yield
        finally:
            self._of_tenant -= Counter([tenant])  # leaves no zero behind

    @contextlib.asynccontextmanager
    async def _read(self, lines: AsyncGenerator[bytes, None]) -> AsyncIterator[asyncio.Queue[str]]:
        """A queue with the events of the log. A full queue stops the reading."""
        queue: asyncio.Queue[str] = asyncio.Queue(self._limits.waiting)

        async def fill() -> None:
            note = "The log ends here."
            try:
                async with aclosing(lines):
                    async for line in lines:
                        await queue.put(event("line", _shown(line, self._limits.line_chars)))
            except RequestError as error:
                note = _note(error)
            await queue.put(event("note", note) + END)

        task = asyncio.create_task(fill(), name="log of a page")
        try:
            yield queue
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _follow(
        self, queue: asyncio.Queue[str], request: web.Request, response: web.StreamResponse
    ) -> None:
        beat_at = loop_time()
        while not has_left(request):
            pieces: list[str] = []
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._limits.look_s):
                    pieces.append(await queue.get())
            pieces += [queue.get_nowait() for _ in range(queue.qsize())]
            if not pieces and loop_time() < beat_at:
                continue
            beat_at = loop_time() + self._limits.beat_s
            async with asyncio.timeout(self._limits.write_s):
                await response.write(("".join(pieces) + beat()).encode())
            if pieces and pieces[-1].endswith(END):
                return
            await asyncio.sleep(self._limits.pause_s)


def _shown(line: bytes, chars: int) -> str:
    """What a terminal shows of a line at last, without its colours."""
    at, _, text = line.partition(b" ")
    visible = at + b" " + _STYLES.sub(b"", text).rpartition(b"\r")[2]
    return printable(visible[: 4 * chars].decode(errors="replace"))[:chars]


def _note(error: RequestError) -> str:
    if error.status == HTTPStatus.UNAUTHORIZED:  # the message is about a kubeconfig
        return "Your token is no longer valid: log in again."
    if error.status == HTTPStatus.FORBIDDEN:
        return "You may not read this log: ask for the right get pods/log in this namespace."
    return f"The log cannot be read: {error.message}"
