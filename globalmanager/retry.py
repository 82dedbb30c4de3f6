"""Repeats a request until the Kubernetes API answers it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from common import logs
from edgeai.backoff import Backoff
from edgeai.errors import Unavailable
from edgeai.kube.errors import ApiError

log = logs.get_logger(__name__)

T = TypeVar("T")

ProblemListener = Callable[[str], None]


def ignore(_problem: str) -> None:
    """A ProblemListener that does nothing."""


async def retry_until_answered(
    what: str, attempt: Callable[[], Awaitable[T]], *, on_problem: ProblemListener = ignore
) -> T:
    """Call `attempt` until it returns a result.

    The function also retries after a refusal of the API. A refusal means that a right, a credential
    or a namespace is missing. When an administrator adds it, a waiting process goes on sooner than
    a restarted process.

    Args:
        what: name of the step, for the log
        on_problem: called with the problem after each failed attempt, for /readyz
    Raises: every exception of `attempt` except Unavailable and ApiError
    """
    logged = ""
    backoff = Backoff(base_s=0.2, max_s=5.0, floor_s=0.05)
    while True:
        try:
            return await attempt()
        except (Unavailable, ApiError) as error:
            delay_s = backoff.next_s(at_least_s=getattr(error, "retry_after_s", 0.0))
            on_problem(str(error))
            if str(error) != logged:
                log.warning("start waits for the Kubernetes API", step=what, problem=str(error))
            logged = str(error)
            await asyncio.sleep(delay_s)
