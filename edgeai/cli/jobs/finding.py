"""Finds the object that a user means by "NAME" or "KIND/NAME"."""

import asyncio
import difflib
from collections.abc import Iterable
from typing import TypeVar

from edgeai.api.resources import ObjectRef, ResourceType
from edgeai.client.asynchronous import AsyncClient
from edgeai.client.errors import AmbiguousName, JobNotFound
from edgeai.client.objects import AnyResource
from edgeai.client.words import parse_job, resource
from edgeai.kube.errors import Forbidden, NotFound

T = TypeVar("T")


async def find(client: AsyncClient, text: str) -> AnyResource:
    """The object in the client's namespace. Of several with the name, a job goes first.

    Raises: UnknownKind, InvalidName; JobNotFound, AmbiguousName; ApiError
    """
    types, name = parse_job(text)
    refs = [ObjectRef(type_, client.namespace, name) for type_ in types]
    answers = await asyncio.gather(*map(client.kube.get, refs), return_exceptions=True)
    resources = [resource(answer) for answer in successes(answers)]
    jobs = [one for one in resources if one.DEFINITION.has_workers] or resources
    if len(jobs) > 1:
        references = " or ".join(
            f"{job.DEFINITION.singular}.{job.type.group}/{name}" for job in jobs
        )
        raise AmbiguousName(f"JOB {name!r} names several objects; write {references}")
    if jobs:
        return jobs[0]
    for answer in answers:
        if isinstance(answer, Forbidden):
            raise answer
    where = f"namespace {client.namespace}"
    near = difflib.get_close_matches(name, await names(client, types), n=3)
    meant = f"did you mean {' or '.join(near)}? " if near else ""
    remedy = f"{meant}`edgeai get -A` lists the jobs of all namespaces; -n names another one"
    raise JobNotFound(f"JOB {text!r}: there is none in {where}; {remedy}")


async def names(client: AsyncClient, types: Iterable[ResourceType]) -> list[str]:
    """The names of objects of these types in the client's namespace that the caller may list.

    Raises: ApiError
    """
    lists = (
        client.kube.list(type_, namespace=client.namespace, metadata_only=True) for type_ in types
    )
    listings = successes(await asyncio.gather(*lists, return_exceptions=True))
    return sorted({str(item["metadata"]["name"]) for one in listings for item in one.items})


def successes(answers: Iterable[T | BaseException]) -> list[T]:
    """Without what is not there, and what the caller may not read. Raises: any other failure"""
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, Forbidden | NotFound):
            raise answer
    return [answer for answer in answers if not isinstance(answer, BaseException)]
