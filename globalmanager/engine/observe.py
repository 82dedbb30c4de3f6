"""Builds what a plan sees, from the stores alone: no request, so it costs microseconds."""

from collections.abc import Callable, Iterable, Mapping

from common.ids import NodeName
from globalmanager.engine.store import Store
from globalmanager.model import (
    PODS,
    Contact,
    Kind,
    Object,
    ObjectRef,
    Observed,
    ResourceType,
    WorkerSettings,
    ref_of,
)

StoreOf = Callable[[ResourceType], Store]


def observe(
    kind: Kind,
    ref: ObjectRef,
    object_: Object,
    *,
    references: Iterable[ObjectRef],
    managed: StoreOf,
    all_of: StoreOf,
    contacts: Mapping[NodeName, Contact],
    settings: WorkerSettings,
) -> Observed:
    """Snapshot of the job resource `ref`.

    Args:
        managed: stores of what edgeai created (children, pods)
        all_of: stores of everything of a type (references)
    """
    uid = object_["metadata"]["uid"]
    return Observed(
        type=ref.type,
        object=object_,
        children={
            ref_of(type_, child): child
            for type_ in kind.owns
            for child in managed(type_).find("controller", uid)
        },
        pods=managed(PODS).find("label", uid),
        references={
            reference: found
            for reference in references
            if (found := all_of(reference.type).get(reference)) is not None
        },
        contacts=contacts,
        settings=settings,
    )
