"""The pods of a job, by the chain of their controllers: anybody may give a pod any label."""

from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

import msgspec

from edgeai.api.objects import LABEL_ROLE, controllers, label_of
from edgeai.api.pod_state import node_of, phase_of
from edgeai.api.resources import POD_CONTROLLERS, PODS, Object
from edgeai.api.status import count_of, mapping, mappings, worker_entries
from edgeai.client.objects import AnyResource
from edgeai.faults.pod_faults import first_fault
from edgeai.kube.client import KubeClient
from edgeai.kube.errors import NotFound
from edgeai.labels import LABEL_WORKER
from edgeai.text import printable

_COUNTS_SHOWN: Final = 6


class Worker(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One worker: its pod, and the last report of its node's LocalController, or one of the two."""

    name: str
    """Of the pod; of a worker without a pod, the name by which it reports."""
    role: str = ""
    node: str = ""
    phase: str = ""
    attempt: int | None = None
    restarts: int = 0
    """How often the node has started its containers again."""
    counts: dict[str, Any] = {}
    problem: str = ""


async def pods_of(kube: KubeClient, job: AnyResource) -> list[Object]:
    """The pods of the job, its children, and what Kubernetes made for these. Raises: ApiError"""
    owners = await owners_of(kube, job)
    pods = (await kube.list(PODS, namespace=job.namespace)).items
    return sorted(owned(pods, owners), key=lambda pod: str(pod["metadata"]["name"]))


async def owners_of(kube: KubeClient, job: AnyResource) -> set[str]:
    """The uids of the objects whose pods are the job's. Raises: ApiError"""
    owners = {job.uid}
    for type_ in job.DEFINITION.pod_owners:
        children = (await kube.list(type_, namespace=job.namespace)).items
        uids = {str(child["metadata"]["uid"]) for child in owned(children, owners)}
        owners |= uids
        if uids:
            with suppress(NotFound):  # the local cluster has nothing between a Deployment and pods
                listing = await kube.list(POD_CONTROLLERS[type_], namespace=job.namespace)
                owners |= {str(one["metadata"]["uid"]) for one in owned(listing.items, uids)}
    return owners


def owned(objects: Iterable[Object], owners: Set[str]) -> list[Object]:
    """The objects whose controller has one of these uids."""
    return [
        object_
        for object_ in objects
        if any(owner.get("uid") in owners for owner in controllers(object_))
    ]


def workers_of(job: Object, pods: Iterable[Object], now: datetime | None = None) -> list[Worker]:
    """Every worker that has a pod or has reported, by name.

    Args: now: UTC. None: of the pods only what they themselves call a fault
    """
    reports = dict(worker_entries(mapping(job.get("status"))))
    members = []
    for pod in pods:
        name = str(pod["metadata"]["name"])
        report = reports.pop(label_of(pod, LABEL_WORKER) or name, None) or reports.pop(name, {})
        members.append(_worker(name, report, pod, now))
    members += [_worker(name, report, None, now) for name, report in reports.items()]
    return sorted(members, key=lambda worker: worker.name)


def _worker(
    name: str, entry: Mapping[str, Any], pod: Object | None, now: datetime | None
) -> Worker:
    attempt = entry.get("attempt")
    counts = {
        printable(str(key)): value
        for key, value in mapping(entry.get("taskInfo")).items()
        if isinstance(value, int | float)
    }
    fault = None if pod is None else first_fault([pod], now)
    phase = str(entry.get("phase") or entry.get("status") or "")
    if pod is not None:
        phase = phase_of(pod)
    states = mappings(mapping((pod or {}).get("status")).get("containerStatuses"))
    return Worker(
        name=printable(name),
        role="" if pod is None else printable(label_of(pod, LABEL_ROLE)),
        node=printable(node_of(pod) if pod is not None else str(entry.get("node") or "")),
        phase=printable(phase),
        attempt=attempt if isinstance(attempt, int) else None,
        restarts=sum(count_of(state.get("restartCount")) for state in states),
        counts=dict(list(counts.items())[:_COUNTS_SHOWN]),
        problem=printable(fault.message if fault else str(entry.get("reason") or "")),
    )
