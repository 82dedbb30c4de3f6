"""Replicas: the names, labels and Services of the workers of one type, numbered by an index.

A replica is the worker with one index of one type ("train-0"). The replica's pod has the same name
in every attempt, so two pods of one replica can never exist at the same time.
"""

from collections.abc import Mapping
from typing import Final

from edgeai.ids import WorkerName
from globalmanager.contract import Create, Observed
from globalmanager.kinds.shared import children, objects

REPLICA_TYPE: Final = "edgeai.io/replica-type"
REPLICA_INDEX: Final = "edgeai.io/replica-index"

_MAX_INDEX_DIGITS: Final = 4


def replica_name(job: str, replica_type: str, index: int) -> WorkerName:
    """The name of the replica. The replica's worker, pod and Service all have this name."""
    return WorkerName(f"{job}-{replica_type}-{index}")


def replica_names(job: str, replica_type: str, replicas: int) -> list[WorkerName]:
    return [replica_name(job, replica_type, index) for index in range(replicas)]


def index_of(job: str, replica_type: str, name: str) -> int | None:
    """The index in a name that `replica_name` made; None for any other name."""
    digits = name.rpartition("-")[2]
    if not digits.isdecimal() or len(digits) > _MAX_INDEX_DIGITS:
        return None
    index = int(digits)
    # The comparison refuses leading zeros and digits of other scripts: one index has one name.
    return index if name == replica_name(job, replica_type, index) else None


def replica_labels(replica_type: str, index: int) -> dict[str, str]:
    """The labels by which a Service selects one replica among the pods of a job."""
    return {REPLICA_TYPE: replica_type, REPLICA_INDEX: str(index)}


def replica_service(
    observed: Observed, replica_type: str, index: int, *, ports: Mapping[str, int]
) -> Create:
    """A headless Service for one replica. The replica has a DNS name from its creation on.

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
