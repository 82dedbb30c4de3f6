"""The words of a command line for the completion of the shell: kinds, and the names of jobs and of
their workers. A name that cannot be found is no error.
"""

import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final

import typer

from edgeai.errors import EdgeAIError
from edgeai.kubeconfig import default_state_dir

if TYPE_CHECKING:
    from edgeai.client import AsyncClient

DEADLINE_S: Final = 2.0  # longer, and the user has typed the name


def job_names(context: typer.Context, incomplete: str) -> list[str]:
    """The kinds, where none is typed yet, and the objects in the namespace that the command line
    means, as far as it is typed. Behind a job, the option that chooses a worker.
    """
    from edgeai.client.words import kind_words

    typed = _typed(context)
    words = {*_answer(_names, context), *(() if typed else kind_words())}
    if not words and any("--worker" in option.opts for option in context.command.params):
        words = {"--worker"}
    return sorted(word for word in words if word.startswith(incomplete))


def worker_names(context: typer.Context, incomplete: str) -> list[str]:
    """The words that mean pods of the job on the command line."""
    return sorted({word for word in _answer(_workers, context) if word.startswith(incomplete)})


def _typed(context: typer.Context) -> list[str]:
    """The words of the job. Of a line that ends with an option, only `args` has them."""
    return [*(context.params.get("job") or context.params.get("words") or context.args)]


def _answer(
    question: Callable[["AsyncClient", list[str]], Awaitable[Iterable[str]]], context: typer.Context
) -> Iterable[str]:
    """What the cluster of the command line answers; nothing where it does not."""
    import asyncio

    from edgeai.cli.options import Cluster

    async def ask() -> Iterable[str]:
        values = {key: value for key in Cluster._fields if (value := context.params.get(key))}
        cluster = Cluster(default_state_dir(), None, "", "")._replace(**values)
        async with asyncio.timeout(DEADLINE_S), await cluster.client() as client:
            return await question(client, _typed(context))

    with contextlib.suppress(EdgeAIError, OSError, TimeoutError):
        return asyncio.run(ask())
    return ()


async def _names(client: "AsyncClient", typed: list[str]) -> Iterable[str]:
    from edgeai.cli.jobs.finding import names
    from edgeai.client.objects import JOB_TYPES
    from edgeai.client.words import types_named

    types = types_named(typed[0], "KIND") if typed else JOB_TYPES
    return await names(client, types) if len(typed) < 2 else ()


async def _workers(client: "AsyncClient", typed: list[str]) -> Iterable[str]:
    from edgeai.cli.jobs.finding import find
    from edgeai.client.logs import worker_words
    from edgeai.client.pods import pods_of

    job = await find(client, "/".join(typed))
    pods = await pods_of(client.kube, job)
    return {word for pod in pods for word in worker_words(pod)}
