"""The client for programs without an event loop, also for notebooks, which have one of their own.

A thread runs the loop of an AsyncClient. Each method is the method of AsyncClient of the same name,
run to its end there: the table below is all that there is.
"""

import asyncio
import functools
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from edgeai.client.asynchronous import AsyncClient

P = ParamSpec("P")
A = TypeVar("A")


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

        async def following() -> tuple[A, ...]:
            try:
                return (await anext(stream),)
            except StopAsyncIteration:
                return ()

        try:
            while found := client.run(following()):
                yield found[0]
        finally:
            client.run(stream.aclose())

    return run


class Client:
    """Args: see AsyncClient.open. Close it, or use it with `with`."""

    def __init__(self, kubeconfig: str | Path | None = None, namespace: str = "") -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="edgeai", daemon=True)
        self._thread.start()
        try:
            self.asynchronous = self.run(AsyncClient.open(kubeconfig, namespace))
        except BaseException:
            self._end()
            raise

    get = _blocking(AsyncClient.get)
    list = _blocking(AsyncClient.list)
    apply = _blocking(AsyncClient.apply)
    apply_document = _blocking(AsyncClient.apply_document)
    delete = _blocking(AsyncClient.delete)
    wait = _blocking(AsyncClient.wait)
    watch = _streaming(AsyncClient.watch)
    logs = _streaming(AsyncClient.logs)

    @property
    def namespace(self) -> str:
        return self.asynchronous.namespace

    def run(self, coroutine: Coroutine[Any, Any, A]) -> A:
        """The result of a coroutine in the loop of the client. Ctrl-C cancels it."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        if not self._loop.is_closed():
            self.run(self.asynchronous.close())
            self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
