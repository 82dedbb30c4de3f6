"""The console of a server with a large fleet in its caches, which no machine could run."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, TypeVar

from edgeai.api.rollouts import Phase
from tests.globalmanager.rest.cluster import RestSide
from tests.globalmanager.rest.fleets import FleetSide
from tests.support.waiting import PATIENCE_S

T = TypeVar("T")
_SAMPLE_S: Final = 30.0


class FleetConsole:
    """Its event loop runs in a thread of its own."""

    def __init__(self, count: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._count = count

    def rest_url(self) -> str:
        return self._side.url

    def show(self, phase: Phase, **more: Any) -> None:
        """See FleetSide.show. The curve of the guard gets one more point."""

        async def change() -> None:
            self._fleet.show(phase, **more)
            await self._side.recent.sample()
            self._side.clock.now_s += _SAMPLE_S

        self._do(change)

    def _do(self, step: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return asyncio.run_coroutine_threadsafe(step(), self._loop).result(PATIENCE_S)

    @contextlib.contextmanager
    def running(self) -> Iterator["FleetConsole"]:
        stack = contextlib.AsyncExitStack()

        async def begin() -> None:
            self._side = await stack.enter_async_context(RestSide().running())
            self._fleet = FleetSide(self._side, count=self._count)
            live = asyncio.create_task(self._side.live.run())
            stack.callback(live.cancel)

        self._thread.start()
        self._do(begin)
        try:
            yield self
        finally:
            self._do(stack.aclose)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
