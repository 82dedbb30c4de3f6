"""Builds what a plan sees, from the stores alone: no request, so it costs microseconds."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from common.ids import NodeName
from globalmanager.cache.store import Store, controller_key, uid_of
from globalmanager.contract import (
    POD_CONTROLLERS,
    PODS,
    Contact,
    Job,
    Kind,
    Object,
    ObjectRef,
    Observed,
    ResourceType,
    WorkerSettings,
    ref_of,
)

StoreOf = Callable[[ResourceType], Store]


class Owned(NamedTuple):
    """What belongs to one job resource.

    An object belongs to a job when it is in the job's namespace and its controllers lead to the
    job's uid. Labels are no proof: anybody who may create a pod in any namespace can copy them.
    """

    controllers: frozenset[str]
    """Keys of index "controller" for the job, its children, and what Kubernetes made for them."""
    children: Mapping[ObjectRef, Object]
    pods: tuple[Object, ...]
    """Ordered by name."""


def find_owned(kind: Kind, job: Job, managed: StoreOf) -> Owned:
    """Args: managed: stores of what carries the label of what edgeai created"""

    namespace = job.ref.namespace

    def key(controller: Object) -> str:
        return controller_key(namespace, uid_of(controller))

    owner = key(job.object)
    children = {
        ref_of(type_, child): child
        for type_ in kind.owns
        for child in managed(type_).find("controller", owner)
    }
    between = (
        made
        for child_ref, child in children.items()
        if (type_ := POD_CONTROLLERS.get(child_ref.type)) is not None
        for made in managed(type_).find("controller", key(child))
    )
    controllers = frozenset({owner, *map(key, children.values()), *map(key, between)})
    pods = (pod for each in controllers for pod in managed(PODS).find("controller", each))
    by_name = sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))
    return Owned(controllers, children, tuple(by_name))


def observe(
    job: Job,
    owned: Owned,
    *,
    references: Iterable[ObjectRef],
    all_of: StoreOf,
    contacts: Mapping[NodeName, Contact],
    settings: WorkerSettings,
) -> Observed:
    """Snapshot of a job resource.

    Args:
        all_of: stores of everything of a type (references)
    """
    return Observed(
        type=job.type,
        object=job.object,
        spec=job.spec,
        invalid=job.invalid,
        children=owned.children,
        pods=owned.pods,
        references={
            reference: found
            for reference in references
            if (found := all_of(reference.type).get(reference)) is not None
        },
        contacts=contacts,
        settings=settings,
    )
