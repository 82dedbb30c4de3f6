"""How many workers a TrainingJob has, and which.

`.status.targetWorkers` holds the wanted workers. The plan writes the list before it makes or
deletes a pod, so a restarted GlobalManager goes on with the same workers.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from globalmanager.contract import Observed
from globalmanager.kinds.trainingjob import workers
from globalmanager.kinds.trainingjob.types import MAX_INDEX, TrainingJob
from globalmanager.rules import status
from globalmanager.rules.elastic.words import WORKER
from globalmanager.rules.replication import index_of, replica_name
from globalmanager.rules.training.forms import MAX_REPLICAS


class Size(msgspec.Struct, frozen=True):
    """The workers that the job wants."""

    target: tuple[str, ...]
    """The names of their pods, in the order of their index."""
    next_index: int
    """The index of the next new worker."""
    current_scaler: str = ""
    """The scaler that is being executed: "ScaleOut:<namespace>/<name>"."""

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of .status. None removes a field."""
        return {
            "targetWorkers": list(self.target),
            "nextWorkerIndex": self.next_index,
            "currentScaler": self.current_scaler or None,
        }

    def with_new_workers(self, job: str, number: int) -> "Size":
        """With further workers, as far as there are free indices."""
        end = min(self.next_index + number, MAX_INDEX + 1)
        added = (replica_name(job, WORKER, index) for index in range(self.next_index, end))
        return msgspec.structs.replace(self, target=(*self.target, *added), next_index=end)

    def without(self, names: Iterable[str]) -> "Size":
        gone = frozenset(names)
        kept = tuple(name for name in self.target if name not in gone)
        return msgspec.structs.replace(self, target=kept)


def known_size(observed: Observed, spec: TrainingJob) -> Size:
    """The size as the status has it, and at the start of the job as the spec has it."""
    told = status.of(observed)
    listed = told.get("targetWorkers")
    job = observed.ref.name
    if not isinstance(listed, list):
        at_start = spec.replicas if spec.max_queued is None else 0  # `room` adds the first ones
        return Size((), 0).with_new_workers(job, at_start)
    indices = {index_of(job, WORKER, name) for name in listed if isinstance(name, str)}
    known = sorted(index for index in indices if index is not None)[:MAX_REPLICAS]
    written = told.get("nextWorkerIndex")
    least = known[-1] + 1 if known else 0
    if type(written) is not int or not least <= written <= MAX_INDEX + 1:
        # The et-operator writes no such number. A pod keeps its index as long as it is there.
        there = (index_of(job, WORKER, name) or 0 for name in workers.present(observed))
        written = min(max([least, *(index + 1 for index in there)]), MAX_INDEX + 1)
    return Size(tuple(replica_name(job, WORKER, index) for index in known), written)
