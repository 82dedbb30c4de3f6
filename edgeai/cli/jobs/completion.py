"""The words of a command line for the completion of the shell: kinds, and the names of jobs. A name
that cannot be found is no error.
"""

import asyncio
import contextlib
from typing import Final

import typer

from edgeai.errors import EdgeAIError
from edgeai.kubeconfig import default_state_dir, kubeconfig_of

DEADLINE_S: Final = 2.0  # longer, and the user has typed the name


def job_names(context: typer.Context, incomplete: str) -> list[str]:
    """The kinds, where none is typed yet, and the objects in the namespace that the command line
    means, as far as it is typed.
    """
    from edgeai.client.words import kind_words

    typed = context.params.get("job") or context.params.get("words") or []
    kind = "" if not typed or typed[0] == incomplete else typed[0]
    words = [] if kind else list(kind_words())
    # A cluster that does not answer has no names.
    with contextlib.suppress(EdgeAIError, OSError, TimeoutError):
        words += asyncio.run(_names(context, kind))
    return sorted(word for word in words if word.startswith(incomplete))


async def _names(context: typer.Context, kind: str) -> list[str]:
    from edgeai.cli.jobs.finding import names
    from edgeai.client import AsyncClient
    from edgeai.client.objects import CLASSES, types_of
    from edgeai.client.words import types_named

    given = context.params
    file = kubeconfig_of(given.get("kubeconfig"), given.get("state_dir") or default_state_dir())
    jobs = [class_ for class_ in CLASSES if class_.DEFINITION.has_workers]
    types = types_named(kind, "KIND") if kind else types_of(jobs)
    options = {"context": given.get("context") or ""}
    async with (
        asyncio.timeout(DEADLINE_S),
        await AsyncClient.open(file, given.get("namespace") or "", **options) as client,
    ):
        return await names(client, types)
