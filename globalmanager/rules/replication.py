"""Replica type by index: the names, labels and Services of workers that come in numbers.

Called by the kinds whose workers are pods of their own. A replica is the worker of one index of one
type ("train-0"); its pod has the same name in every attempt, so a second one can never exist beside
it.
"""

from collections.abc import Mapping
from typing import Final

from common.ids import WorkerName
from globalmanager.contract import Create, Observed
from globalmanager.rules import children, objects

REPLICA_TYPE: Final = "edgeai.io/replica-type"
REPLICA_INDEX: Final = "edgeai.io/replica-index"

_MAX_INDEX_DIGITS: Final = 4


def replica_name(job: str, replica_type: str, index: int) -> WorkerName:
    """Of the worker, its pod and its Service."""
    return WorkerName(f"{job}-{replica_type}-{index}")


def replica_names(job: str, replica_type: str, replicas: int) -> list[WorkerName]:
    """Of all indices, 0 to replicas - 1."""
    return [replica_name(job, replica_type, index) for index in range(replicas)]


def index_of(job: str, replica_type: str, name: str) -> int | None:
    """The index in a name that `replica_name` made; None for any other name."""
    digits = name.rpartition("-")[2]
    if not digits.isdecimal() or len(digits) > _MAX_INDEX_DIGITS:
        return None
    index = int(digits)
    return index if name == replica_name(job, replica_type, index) else None


def replica_labels(replica_type: str, index: int) -> dict[str, str]:
    """What tells the pods of one job apart, for its Services."""
    return {REPLICA_TYPE: replica_type, REPLICA_INDEX: str(index)}


def replica_service(
    observed: Observed, replica_type: str, index: int, *, ports: Mapping[str, int]
) -> Create:
    """A headless Service: the replica has a DNS name from its creation on.

    Args: ports: name -> number
    """
    selector = objects.selector(observed, replica_type) | replica_labels(replica_type, index)
    return children.service(
        observed,
        name=replica_name(observed.ref.name, replica_type, index),
        role=replica_type,
        ports=ports,
        selector=selector,
        headless=True,
    )
