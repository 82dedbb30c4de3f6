"""The one way in which tests wait for what has no event of its own: they ask until it is so.

A deadline here says when to give up, not how fast something has to be: it is generous, since the
machine may be busy. A test that is about speed measures time itself.
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar, overload

T = TypeVar("T")

PATIENCE_S: Final = 60.0
"""Ten times what anything takes here while the machine has nothing else to do."""
POLL_S: Final = 0.05
_ASYNC_POLL_S: Final = 0.005


class NeverHappened(AssertionError):
    """Says what was waited for, how long, and what was found last."""


def eventually(
    what: str,
    check: Callable[[], T | None],
    *,
    timeout_s: float = PATIENCE_S,
    poll_s: float = POLL_S,
) -> T:
    """What `check` returns, as soon as that is true.

    Args:
        what: is waited for, as a noun: "a session of version 2"
        check: returns something false as long as it is not so, or raises an AssertionError whose
            text tells what there is instead; any other error ends the wait
    Raises: NeverHappened; TypeError when `check` returns a function or a coroutine
    """
    end_s = time.monotonic() + timeout_s
    while True:
        is_last = time.monotonic() >= end_s
        try:
            found = check()
        except AssertionError as error:
            last = str(error)
        else:
            if found:
                return _value(what, found)
            last = repr(found)
        if is_last:
            raise NeverHappened(_text(what, timeout_s, last))
        time.sleep(poll_s)


@overload
async def async_eventually(
    what: str,
    check: Callable[[], Awaitable[T | None]],
    *,
    timeout_s: float = PATIENCE_S,
    poll_s: float = _ASYNC_POLL_S,
) -> T: ...


@overload
async def async_eventually(
    what: str,
    check: Callable[[], T | None],
    *,
    timeout_s: float = PATIENCE_S,
    poll_s: float = _ASYNC_POLL_S,
) -> T: ...


async def async_eventually(
    what: str,
    check: Callable[[], Any],
    *,
    timeout_s: float = PATIENCE_S,
    poll_s: float = _ASYNC_POLL_S,
) -> Any:
    """As `eventually`, on the event loop and by its clock; `check` may be a coroutine function."""
    clock = asyncio.get_running_loop().time
    end_s = clock() + timeout_s
    while True:
        is_last = clock() >= end_s
        try:
            given = check()
            found = await given if inspect.isawaitable(given) else given
        except AssertionError as error:
            last = str(error)
        else:
            if found:
                return _value(what, found)
            last = repr(found)
        if is_last:
            raise NeverHappened(_text(what, timeout_s, last))
        await asyncio.sleep(poll_s)


def _value(what: str, found: T) -> T:
    """Raises: TypeError for what is true whatever happens, such as a method that was not called"""
    if callable(found) or inspect.isawaitable(found):
        raise TypeError(f"the check for {what} is always true: it returns {found!r}")
    return found


def _text(what: str, timeout_s: float, last: str) -> str:
    return f"waited {timeout_s:g} s for {what}; found last: {last}"
