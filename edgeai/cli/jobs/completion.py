"""The words of a command line for the completion of the shell: kinds, and the names of jobs and of
their workers. A name that cannot be found is no error.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Collection
from typing import TYPE_CHECKING, Final

import typer

from edgeai.errors import EdgeAIError
from edgeai.kubeconfig import default_state_dir, kubeconfig_of

if TYPE_CHECKING:
    from edgeai.client import AsyncClient

DEADLINE_S: Final = 2.0  # longer, and the user has typed the name
_WORKER: Final = "--worker"


def job_names(context: typer.Context, incomplete: str) -> list[str]:
    """The kinds, where none is typed yet, and the objects in the namespace that the command line
    means, as far as it is typed. Behind a job, the option that chooses a worker.
    """
    from edgeai.client.errors import UnknownKind
    from edgeai.client.words import kind_words, types_named

    typed = _typed(context)
    if not typed:
        return _matches(incomplete, _names(context, ""), kind_words())
    with contextlib.suppress(UnknownKind):
        types_named(typed[0], "KIND")
        if len(typed) == 1:
            return _matches(incomplete, _names(context, typed[0]))
    has_workers = any(_WORKER in parameter.opts for parameter in context.command.params)
    return [_WORKER] if has_workers and _WORKER.startswith(incomplete) else []


def worker_names(context: typer.Context, incomplete: str) -> list[str]:
    """The words that mean pods of the job on the command line."""
    return _matches(incomplete, _workers(context))


def _typed(context: typer.Context) -> list[str]:
    """The words of the job. Of a line that ends with an option, only `args` has them."""
    params = context.params
    return list(params.get("job") or params.get("words") or context.args)


def _matches(
    incomplete: str, answer: Awaitable[Collection[str]], words: Collection[str] = ()
) -> list[str]:
    """Those of the words, and of the cluster's answer, that begin with what is typed."""

    async def bounded() -> Collection[str]:
        async with asyncio.timeout(DEADLINE_S):
            return await answer

    # A cluster that does not answer has no names.
    with contextlib.suppress(EdgeAIError, OSError, TimeoutError):
        words = (*words, *asyncio.run(bounded()))
    return sorted(word for word in words if word.startswith(incomplete))


@contextlib.asynccontextmanager
async def _client(context: typer.Context) -> "AsyncIterator[AsyncClient]":
    from edgeai.client import AsyncClient

    given = context.params
    file = kubeconfig_of(given.get("kubeconfig"), given.get("state_dir") or default_state_dir())
    options = {"context": given.get("context") or ""}
    async with await AsyncClient.open(file, given.get("namespace") or "", **options) as client:
        yield client


async def _names(context: typer.Context, kind: str) -> list[str]:
    from edgeai.cli.jobs.finding import names
    from edgeai.client.objects import CLASSES, types_of
    from edgeai.client.words import types_named

    jobs = [class_ for class_ in CLASSES if class_.DEFINITION.has_workers]
    types = types_named(kind, "KIND") if kind else types_of(jobs)
    async with _client(context) as client:
        return await names(client, types)


async def _workers(context: typer.Context) -> set[str]:
    from edgeai.cli.jobs.finding import find
    from edgeai.client.logs import worker_words
    from edgeai.client.pods import pods_of

    async with _client(context) as client:
        job = await find(client, "/".join(_typed(context)))
        pods = await pods_of(client.kube, job.DEFINITION, job.object)
    return {word for pod in pods for word in worker_words(pod)}
