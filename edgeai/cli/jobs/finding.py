"""Finds the object that a user means by "NAME" or "KIND/NAME"."""

import asyncio
import difflib
from collections.abc import Iterable

from edgeai.api.elastic import SCALE_INS, SCALE_OUTS
from edgeai.api.resources import ObjectRef, ResourceType
from edgeai.client.asynchronous import AnyResource, AsyncClient
from edgeai.client.errors import AmbiguousName, JobNotFound
from edgeai.client.words import parse_job, resource
from edgeai.kube.errors import Forbidden, NotFound

_LATER_KINDS = ("Dataset", "Model", SCALE_OUTS.kind, SCALE_INS.kind)


async def find(client: AsyncClient, text: str) -> AnyResource:
    """The object in the namespace of the client. Of several that have the name, a job goes before a
    Model, a Dataset or a scaler.

    Raises: UnknownKind, InvalidName; JobNotFound, AmbiguousName; Forbidden when the caller may not
        look; ApiError
    """
    types, name = parse_job(text)
    refs = [ObjectRef(type_, client.namespace, name) for type_ in types]
    answers = await asyncio.gather(*map(client.kube.get, refs), return_exceptions=True)
    resources = [resource(answer) for answer in answers if not isinstance(answer, BaseException)]
    failures = [answer for answer in answers if isinstance(answer, BaseException)]
    for failure in failures:
        if not isinstance(failure, NotFound | Forbidden):
            raise failure
    jobs = [
        candidate for candidate in resources if candidate.type.kind not in _LATER_KINDS
    ] or resources
    if len(jobs) > 1:
        references = " or ".join(
            f"{job.DEFINITION.singular}.{job.type.group}/{name}" for job in jobs
        )
        raise AmbiguousName(f"JOB {name!r} names several objects; write {references}")
    if jobs:
        return jobs[0]
    for failure in failures:
        if isinstance(failure, Forbidden):
            raise failure
    where = f"namespace {client.namespace}"
    near = difflib.get_close_matches(name, await names(client, types), n=3)
    meant = f"did you mean {' or '.join(near)}? " if near else ""
    remedy = f"{meant}`edgeai get -A` lists the jobs of all namespaces; -n names another one"
    raise JobNotFound(f"JOB {text!r}: there is none in {where}; {remedy}")


async def names(client: AsyncClient, types: Iterable[ResourceType]) -> list[str]:
    """The names of the objects of these types in the namespace of the client, as far as the caller
    may list them.

    Raises: ApiError
    """
    lists = (
        client.kube.list(type_, namespace=client.namespace, metadata_only=True) for type_ in types
    )
    found = set()
    for answer in await asyncio.gather(*lists, return_exceptions=True):
        if isinstance(answer, Forbidden | NotFound):
            continue
        if isinstance(answer, BaseException):
            raise answer
        found |= {str(item["metadata"]["name"]) for item in answer.items}
    return sorted(found)
