"""Waits at start for an API server that is away, or that refuses; only rootkey does."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from common import logs
from common.backoff import Backoff
from common.errors import Unavailable
from globalmanager.kube.errors import ApiError

log = logs.get_logger(__name__)

T = TypeVar("T")


OnProblem = Callable[[str], None]


def ignore(_problem: str) -> None:
    """An OnProblem of somebody whom nobody asks."""


async def insist(
    what: str, attempt: Callable[[], Awaitable[T]], *, on_problem: OnProblem = ignore
) -> T:
    """The result of `attempt`, tried again until the API gives one.

    Also when it refuses: a right, a credential or a namespace that is missing, somebody will add,
    and whoever restarted meanwhile would be slower to notice.

    Args: on_problem: told why it is not done yet, for /readyz
    Raises: any other error, at once
    """
    told = ""
    backoff = Backoff(base_s=0.2, max_s=5.0, floor_s=0.05)
    while True:
        try:
            return await attempt()
        except (Unavailable, ApiError) as error:
            delay_s = backoff.next_s(at_least_s=getattr(error, "retry_after_s", 0.0))
            on_problem(str(error))
            if str(error) != told:
                log.warning("start waits for the Kubernetes API", step=what, problem=str(error))
            told = str(error)
            await asyncio.sleep(delay_s)
