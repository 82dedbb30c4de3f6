"""Virtual time, and processes that take turns in one thread. A seed decides every free choice.

The world has one queue of events: timers of processes, messages of the network, answers of the
API, commits of disks. Each process has an asyncio event loop of its own, whose callbacks run in the
order in which asyncio runs them. What is free in reality is drawn from the seed: which process runs
next, how long a message takes, when a fault comes.
"""

import asyncio
import contextlib
import heapq
import itertools
import random
import zlib
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from common.clock import Clock

T = TypeVar("T")

TIMER_S: Final = 1e-9
MAX_CALLBACKS: Final = 50_000  # of one turn of a process; more of them are an endless loop
BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
LOG_LINES: Final = 300
_EventLoop: Any = asyncio.AbstractEventLoop  # the code below has the methods that are used
_HASTE: Final = 0.1  # how often a process stops in the middle of its work, so that others run
_THREAD_S: Final = 0.002  # how long a piece of work of another thread takes, typically


_killing: list[str] = []  # the process that is killed now


def is_killing() -> bool:
    """Whether the code that runs now is that of a killed process, which Python cleans up."""
    return bool(_killing)


class BrokenInvariant(AssertionError):
    """The run shows a state that edgeai promises never to have."""


class VirtualTime(Clock):
    """The clock, the queue of events and the log of one run."""

    def __init__(self, seed: int, *, first_id: int = 1) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        random.seed(seed)  # the shipped code draws its jitter from the module's generator
        self.now = 0.0
        self.steps = 0
        self.log: deque[str] = deque(maxlen=LOG_LINES)
        self.digest = 0  # of all lines of the log
        self._events: list[tuple[float, int, Process | None, Any]] = []
        self._numbers = itertools.count()
        self._ready: list[Process] = []
        self._ids = itertools.count(first_id)
        self._ages = itertools.count()

    def utcnow(self) -> datetime:
        return BEGIN + timedelta(seconds=self.now)

    def elapsed(self) -> float:
        return self.now

    def processor(self) -> float:
        return 0.0  # computing takes no virtual time

    def new_id(self, prefix: str) -> str:
        return f"{prefix}-{next(self._ids):05d}"

    def unused_id(self) -> int:
        """The number from which on no id was used."""
        return next(self._ids)

    def age(self) -> int:
        return next(self._ages)

    def note(self, text: str) -> None:
        """Add a line to the log of the run."""
        line = f"{self.steps:7d} {self.now:10.3f}  {text}"
        self.digest = zlib.crc32(line.encode(), self.digest)
        self.log.append(line)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def delay_s(self, typical_s: float) -> float:
        """A random delay: mostly about `typical_s`, now and then a hundred times as long."""
        draw = self.random.random()
        return typical_s * (100 * draw if self.random.random() < 0.01 else 2 * draw)

    # ---- events ---------------------------------------------------------------------------------

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        when = self.now + max(0.0, seconds)
        heapq.heappush(self._events, (when, next(self._numbers), None, event))

    def at_timer(self, process: "Process", handle: asyncio.TimerHandle) -> None:
        # Later than asked for, as in reality: a sum of seconds may be rounded to less than it is.
        when = max(handle.when(), self.now) + TIMER_S
        heapq.heappush(self._events, (when, next(self._numbers), process, handle))

    def next_event_s(self) -> float:
        """Seconds until the next event; 0 while a process has work to do."""
        if self._ready:
            return 0.0
        self._drop_cancelled()
        return self._events[0][0] - self.now if self._events else float("inf")

    def has_work(self, process: "Process") -> None:
        self._ready.append(process)

    def step(self) -> None:
        """Deliver one event, or let one process do a part of the work that it has."""
        self.steps += 1
        if not self._ready:
            self._drop_cancelled()
            self.now, _, process, event = heapq.heappop(self._events)
            if process is None:
                event()
            else:
                process.enqueue(event)
            if not self._ready:
                return
        index = int(self.random.random() * len(self._ready)) if len(self._ready) > 1 else 0
        chosen = self._ready.pop(index)
        limit = 1 + int(self.random.random() * 5) if self.random.random() < _HASTE else 0
        chosen.run(limit)

    def _drop_cancelled(self) -> None:
        events = self._events
        while events:
            _, _, process, event = events[0]
            if process is None or (process.is_alive and not event._cancelled):
                return
            heapq.heappop(events)


class _Task(asyncio.Task[Any]):
    """A task whose hash is its age, so that the order of a set of tasks depends on no address."""

    def __init__(self, *args: Any, age: int, **kwargs: Any) -> None:
        self._age = age
        super().__init__(*args, **kwargs)

    def __hash__(self) -> int:
        return self._age


class Process(_EventLoop):  # type: ignore[misc]
    """One operating system process: an event loop that ends all at once when it is killed."""

    def __init__(self, world: VirtualTime, name: str) -> None:
        self.world = world
        self.name = name
        self.is_alive = True
        self.problems: list[str] = []
        self.turns = 0
        """How often its code has run, of whichever thread."""
        self._is_listed = False  # the world knows that there is work, or runs it now
        self._callbacks: deque[asyncio.Handle] = deque()
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def run(self, limit: int) -> None:
        """Run callbacks until none is left; with a limit, run that many at most."""
        callbacks = self._callbacks
        self.turns += 1
        asyncio._set_running_loop(self)
        count = 0
        try:
            while callbacks:
                handle = callbacks.popleft()
                if not handle._cancelled:
                    handle._run()
                count += 1
                if count == limit:
                    break
                if count > MAX_CALLBACKS:
                    raise BrokenInvariant(f"{self.name} works without an end")
        finally:
            asyncio._set_running_loop(None)
        self._is_listed = bool(callbacks)
        if callbacks:
            self.world.has_work(self)

    def enqueue(self, handle: asyncio.Handle) -> None:
        if not self.is_alive:
            return
        self._callbacks.append(handle)
        if not self._is_listed:
            self._is_listed = True
            self.world.has_work(self)

    def start(self, main: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run `main` as a task of this process. Called from outside of the process."""
        with self.entered():
            return self.create_task(main)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Code that uses this process' event loop, although no callback of the loop runs."""
        self.turns += 1
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(outer)

    def kill(self) -> None:
        """End the process as SIGKILL does: nothing of it runs any more."""
        self.is_alive = False
        self._callbacks.clear()
        tasks, self._tasks = list(self._tasks), {}
        _killing.append(self.name)
        for task in tasks:
            # Python runs `finally` when it frees a coroutine. Here this happens at a known time,
            # and nothing leaves the process any more.
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            with self.entered(), contextlib.suppress(BaseException):
                task.get_coro().close()
        _killing.pop()

    # ---- what asyncio asks of an event loop -----------------------------------------------------

    def time(self) -> float:
        return self.world.now

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self.enqueue(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.world.now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if self.is_alive:
            self.world.at_timer(self, handle)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """The world drops a cancelled timer when its time has come."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> asyncio.Task[Any]:
        task = _Task(coro, loop=self, name=name, context=context, age=self.world.age())
        if self.is_alive:
            self._tasks[task] = None
            task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)

    def run_in_executor(
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Call `func` after a while. `executor` is not used: a process has one further thread."""
        future = self.create_future()

        def call() -> None:
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001 - the future's reader gets it
                self.call_soon(fail, future, error)
            else:
                self.call_soon(succeed, future, result)

        self.in_thread(call)
        return future

    def in_thread(self, work: Callable[[], None]) -> None:
        """Do `work` later, outside of the event loop, unless the process ends before."""

        def begin() -> None:
            if self.is_alive:
                self.turns += 1
                work()

        if self.is_alive:
            self.world.after(self.world.delay_s(_THREAD_S), begin)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.is_alive:
            error = context.get("exception")
            if isinstance(error, BrokenInvariant):
                raise error
            self.problems.append(f"{context.get('message')}: {error!r}")

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False


def succeed(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
