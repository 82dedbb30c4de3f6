"""Tries again until the Kubernetes API answers; used by rootkey, at start."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from common import logs
from common.backoff import Backoff
from common.errors import Unavailable
from globalmanager.kube.errors import ApiError

log = logs.get_logger(__name__)

T = TypeVar("T")

ProblemListener = Callable[[str], None]


def ignore(_problem: str) -> None:
    """The ProblemListener of a caller that does not want to be told."""


async def retry_until_answered(
    what: str, attempt: Callable[[], Awaitable[T]], *, on_problem: ProblemListener = ignore
) -> T:
    """The result of `attempt`, which is called until the API gives one.

    A refusal is tried again, too: somebody will add the right, credential or namespace that is
    missing, and a process that had ended instead would notice it later.

    Args:
        what: name of the step, for the log
        on_problem: told after each attempt why it failed, for /readyz
    Raises: what `attempt` raises, except Unavailable and ApiError
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
