"""The client for programs without an event loop, also for notebooks, which have one of their own.

A thread runs the loop of an AsyncClient. Each method is the method of AsyncClient of the same name,
run to its end there: the table below is all that there is.
"""

import asyncio
import atexit
import concurrent.futures
import functools
import threading
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from edgeai.client.asynchronous import AsyncClient
from edgeai.client.errors import CLOSED, ClientUnusable

P = ParamSpec("P")
A = TypeVar("A")
_INSIDE: Final = (
    "it was called by a condition of its own wait, which would wait for itself; look only at the "
    "object that the condition gets"
)
_FORKED: Final = "this process was forked from the one that made it; make a new Client here"


def _blocking(
    method: Callable[Concatenate[AsyncClient, P], Awaitable[A]],
) -> Callable[Concatenate["Client", P], A]:
    """The method, run to its end."""

    @functools.wraps(method)
    def run(client: "Client", /, *args: P.args, **kwargs: P.kwargs) -> A:
        async def call() -> A:
            return await method(client.asynchronous, *args, **kwargs)

        return client.run(call())

    return run


def _streaming(
    method: Callable[Concatenate[AsyncClient, P], AsyncGenerator[A, None]],
) -> Callable[Concatenate["Client", P], Iterator[A]]:
    """The stream, one element at a time. Leaving the loop closes it."""

    @functools.wraps(method)
    def run(client: "Client", /, *args: P.args, **kwargs: P.kwargs) -> Iterator[A]:
        stream = method(client.asynchronous, *args, **kwargs)
        is_used = asyncio.Lock()  # a step that Ctrl-C has cancelled still runs for a moment

        step: asyncio.Task[Any] | None = None

        async def following() -> tuple[A, ...]:
            nonlocal step
            step = asyncio.current_task()
            async with is_used:
                try:
                    return (await anext(stream),)
                except StopAsyncIteration:
                    return ()

        async def closing() -> None:
            # Ctrl-C may come before `run` waits for the step, so that `run` does not cancel it.
            if step is not None:
                step.cancel()
            async with is_used:
                await stream.aclose()

        try:
            while item := client.run(following()):
                yield item[0]
        finally:
            with suppress(ClientUnusable):  # close() has closed the stream, too
                client.run(closing())

    return run


class Client:
    """Args: see AsyncClient.open. Close it, or use it with `with`; at its end the program does.
    Threads may share it.

    Every method raises ClientUnusable when it cannot work: after `close`, in a process that was
    forked, and inside a condition of `wait`.
    """

    def __init__(
        self, kubeconfig: str | Path | None = None, namespace: str = "", *, context: str = ""
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._is_closed = False
        self._calling = threading.Lock()  # no call begins while the client is closed
        self._thread = threading.Thread(target=self._loop.run_forever, name="edgeai", daemon=True)
        self._thread.start()
        try:
            self.asynchronous = self.run(AsyncClient.open(kubeconfig, namespace, context=context))
        except BaseException:
            self._end()
            raise
        atexit.register(_close, weakref.ref(self))

    get = _blocking(AsyncClient.get)
    list = _blocking(AsyncClient.list)
    apply = _blocking(AsyncClient.apply)
    apply_document = _blocking(AsyncClient.apply_document)
    delete = _blocking(AsyncClient.delete)
    suspend = _blocking(AsyncClient.suspend)
    roll = _blocking(AsyncClient.roll)
    resume = _blocking(AsyncClient.resume)
    scale = _blocking(AsyncClient.scale)
    wait = _blocking(AsyncClient.wait)
    state = _blocking(AsyncClient.state)
    watch = _streaming(AsyncClient.watch)
    logs = _streaming(AsyncClient.logs)

    @property
    def namespace(self) -> str:
        return self.asynchronous.namespace

    def run(self, coroutine: Coroutine[Any, Any, A]) -> A:
        """The result of a coroutine in the loop of the client. Ctrl-C cancels it.

        Raises: ClientUnusable
        """
        with self._calling:
            try:
                self._check()
            except ClientUnusable:
                coroutine.close()
                raise
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise ClientUnusable(CLOSED) from None
        except BaseException:
            future.cancel()
            raise

    def _check(self) -> None:
        """Raises: ClientUnusable where a call would wait for ever"""
        if self._is_closed:
            raise ClientUnusable(CLOSED)
        if threading.current_thread() is self._thread:
            raise ClientUnusable(_INSIDE)
        if not self._thread.is_alive():
            raise ClientUnusable(_FORKED)

    def close(self) -> None:
        """Calls of other threads that wait raise ClientUnusable."""
        with self._calling:
            if self._is_closed:
                return
            is_fork = not self._thread.is_alive()
            if not is_fork:
                self._check()
            self._is_closed = True
        if is_fork:
            return  # the connections belong to the process that has made it
        asyncio.run_coroutine_threadsafe(self._finish(), self._loop).result()
        self._end()

    async def _finish(self) -> None:
        calls = asyncio.all_tasks() - {asyncio.current_task()}
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await self._loop.shutdown_asyncgens()
        await self.asynchronous.close()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _close(reference: "weakref.ref[Client]") -> None:
    if client := reference():
        client.close()
