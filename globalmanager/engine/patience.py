"""Waits at start for an API server that is not there yet; only rootkey does."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from common import logs
from common.backoff import Backoff
from common.errors import Unavailable
from globalmanager.kube.errors import AlreadyExists, Conflict, NotFound

log = logs.get_logger(__name__)

T = TypeVar("T")


OnProblem = Callable[[str], None]


def ignore(_problem: str) -> None:
    """An OnProblem of somebody whom nobody asks."""


async def insist(
    what: str, attempt: Callable[[], Awaitable[T]], *, on_problem: OnProblem = ignore
) -> T:
    """The result of `attempt`, tried again while the API is away or somebody else was faster.

    Args: on_problem: told why it is not done yet, for /readyz
    Raises: any other error, at once
    """
    backoff = Backoff(base_s=0.2, max_s=5.0, floor_s=0.05)
    while True:
        try:
            return await attempt()
        except (Unavailable, Conflict, AlreadyExists, NotFound) as error:
            delay_s = backoff.next_s(at_least_s=getattr(error, "retry_after_s", 0.0))
            on_problem(str(error))
            log.warning("start waits for the Kubernetes API", step=what, problem=str(error))
            await asyncio.sleep(delay_s)
