"""The table of `edgeai get`: the objects of some kinds."""

import asyncio
from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from edgeai import times
from edgeai.cli import status
from edgeai.cli.jobs.finding import find, successes
from edgeai.cli.options import job_of
from edgeai.client.asynchronous import AsyncClient
from edgeai.client.objects import JOB_TYPES, AnyResource
from edgeai.client.words import resource, types_named


async def read(
    client: AsyncClient, words: Sequence[str], *, all_namespaces: bool = False
) -> list[AnyResource]:
    """The objects that "KIND", "KIND NAME" or nothing names, in the order of their kinds and names.

    Raises: BadParameter, UnknownKind, JobNotFound, ApiError; Forbidden when no kind may be listed
    """
    if is_name(words):
        return [await find(client, job_of(words))]
    types = JOB_TYPES
    if words:
        types = types_named(words[0], f"KIND {words[0]!r}, before which no name stands")
    namespace = "" if all_namespaces else client.namespace
    answers = await asyncio.gather(
        *(client.kube.list(type_, namespace=namespace) for type_ in types), return_exceptions=True
    )
    listings = successes(answers)
    for answer in answers:
        if not listings and isinstance(answer, BaseException):
            raise answer
    objects = [resource(item) for listing in listings for item in listing.items]
    return sorted(objects, key=lambda one: (one.namespace, one.type.kind, one.name))


def is_name(words: Sequence[str]) -> bool:
    """Whether the words name one object, not all of a kind."""
    return len(words) > 1 or any("/" in word for word in words)


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
