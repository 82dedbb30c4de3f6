"""The names of jobs for the completion of the shell. A name that cannot be found is no error."""

import asyncio
from pathlib import Path
from typing import Final

import typer

from edgeai.errors import EdgeAIError
from edgeai.kubeconfig import default_state_dir, kubeconfig_of

DEADLINE_S: Final = 2.0  # longer, and the user has typed the name


def job_names(context: typer.Context, incomplete: str) -> list[str]:
    """The jobs in the namespace that the command line means, as far as it is typed."""
    parameters = context.params
    kubeconfig, state_dir = parameters.get("kubeconfig"), parameters.get("state_dir")
    try:
        file = kubeconfig_of(kubeconfig, Path(state_dir or default_state_dir()))
        return asyncio.run(_names(file, str(parameters.get("namespace") or ""), incomplete))
    except (EdgeAIError, OSError, TimeoutError):
        return []


async def _names(kubeconfig: Path, namespace: str, incomplete: str) -> list[str]:
    from edgeai.client import AsyncClient
    from edgeai.client.objects import CLASSES, types_of
    from edgeai.kube.errors import Forbidden, NotFound

    jobs = [class_ for class_ in CLASSES if class_.DEFINITION.has_workers]
    async with (
        asyncio.timeout(DEADLINE_S),
        await AsyncClient.open(kubeconfig, namespace) as client,
    ):
        lists = (
            client.kube.list(type_, namespace=client.namespace, metadata_only=True)
            for type_ in types_of(jobs)
        )
        answers = await asyncio.gather(*lists, return_exceptions=True)
    names = set()
    for answer in answers:
        if isinstance(answer, Forbidden | NotFound):
            continue
        if isinstance(answer, BaseException):
            raise answer
        names |= {str(item["metadata"]["name"]) for item in answer.items}
    return sorted(name for name in names if name.startswith(incomplete))
