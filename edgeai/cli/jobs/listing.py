"""The table of `edgeai get`: the objects of some kinds."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from edgeai import times
from edgeai.cli import status
from edgeai.cli.jobs.finding import find
from edgeai.cli.options import job_of
from edgeai.client.asynchronous import AnyResource, AsyncClient
from edgeai.client.objects import CLASSES, types_of
from edgeai.client.words import resource, types_named
from edgeai.kube.errors import Forbidden, NotFound


async def read(
    client: AsyncClient, words: Sequence[str], *, all_namespaces: bool = False
) -> list[AnyResource]:
    """The objects that "KIND", "KIND NAME" or nothing names, in the order of their kinds and names.

    Raises: BadParameter, UnknownKind, JobNotFound, ApiError; Forbidden when no kind may be listed
    """
    if is_named(words):
        return [await find(client, job_of(words))]
    jobs = [class_ for class_ in CLASSES if class_.DEFINITION.has_workers]
    types = (
        types_named(words[0], f"KIND {words[0]!r}, before which no name stands")
        if words
        else types_of(jobs)
    )
    namespace = "" if all_namespaces else client.namespace
    answers = await asyncio.gather(
        *(client.kube.list(type_, namespace=namespace) for type_ in types), return_exceptions=True
    )
    _check(answers)
    objects = [
        resource(item)
        for answer in answers
        if not isinstance(answer, BaseException)
        for item in answer.items
    ]
    return sorted(objects, key=lambda one: (one.namespace, one.type.kind, one.name))


def is_named(words: Sequence[str]) -> bool:
    """Whether the words name one object, not all of a kind."""
    return len(words) > 1 or any("/" in word for word in words)


def _check(answers: Sequence[Any]) -> None:
    """A kind whose definition is not installed, or that the caller may not list, has no objects
    here, if other kinds can be listed.
    """
    failures = [answer for answer in answers if isinstance(answer, BaseException)]
    for failure in failures:
        if len(failures) == len(answers) or not isinstance(failure, Forbidden | NotFound):
            raise failure


def table(objects: Iterable[AnyResource], *, has_namespace: bool, is_wide: bool) -> Table:
    now = times.utc_now()
    rows: list[dict[str, str | Text]] = []
    for one in objects:
        phase, progress, age, waits = status.job_cells(one.object, now)
        rows.append(
            {
                **({"NAMESPACE": one.namespace} if has_namespace else {}),
                "KIND": status.word_of(one.object),
                "NAME": one.name,
                "PHASE": phase,
                "PROGRESS": progress,
                "AGE": age,
                **({"GROUP": one.type.group, "UID": one.uid} if is_wide else {}),
                "": waits,
            }
        )
    headers = tuple(rows[0]) if rows else ("KIND", "NAME", "PHASE", "PROGRESS", "AGE", "")
    return status.table("", headers, [tuple(row.values()) for row in rows])
