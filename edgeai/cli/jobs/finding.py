"""Finds the object that a user means by "NAME" or "KIND/NAME"."""

import asyncio

from edgeai.api.elastic import SCALE_INS, SCALE_OUTS
from edgeai.api.resources import ObjectRef
from edgeai.client.asynchronous import AnyResource, AsyncClient
from edgeai.client.errors import JobNotFound
from edgeai.client.words import parse_job, resource
from edgeai.kube.errors import Forbidden, NotFound

_LATER_KINDS = ("Dataset", "Model", SCALE_OUTS.kind, SCALE_INS.kind)


async def find(client: AsyncClient, text: str) -> AnyResource:
    """The object in the namespace of the client. Of several that have the name, a job goes before a
    Model, a Dataset or a scaler.

    Raises: UnknownKind, InvalidName; JobNotFound; Forbidden when the caller may not look; ApiError
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
        raise JobNotFound(f"JOB {name!r} names several objects; write {references}")
    if jobs:
        return jobs[0]
    for failure in failures:
        if isinstance(failure, Forbidden):
            raise failure
    where = f"namespace {client.namespace}"
    remedy = "`edgeai status` lists the jobs of all namespaces; -n names another one"
    raise JobNotFound(f"JOB {text!r}: there is none in {where}; {remedy}")
