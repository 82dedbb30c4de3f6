"""Slices: the entries of a job's workers, for a job with thousands of workers.

The .status of such a job has no room for them. A slice is a ConfigMap of the job. It is a part of
.status: the entries of some workers, each as JSON under its `key_of`, and the sums of these
entries as JSON under SUMMARY. One write changes entries and sums together, so a reader of the sums
needs no entry. Readers accept any content, and decode no more than edgeai writes: who may write a
ConfigMap must not hold up the GlobalManager.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final
from zlib import crc32

import msgspec

from edgeai.api.resources import Object
from edgeai.api.status import mapping
from edgeai.ids import MAX_NAME_CHARS, WorkerName

ROLE: Final = "workers"
"""Role of a slice, in its labels."""
SLICES: Final = 4
"""Number of slices of a job."""
MAX_WORKERS: Final = 2000
"""In a slice, as in .status."""
MAX_TEXT_CHARS: Final = 64 * 1024
"""Of an entry, and of the sums."""
SUMMARY: Final = "summary"
"""No worker has this name: the name of a worker begins with that of its job, and a "-"."""
WORKERS: Final = "workers"
_NAME: Final = "name"
"""In an entry whose key is not the whole name of its worker."""


def key_of(worker: str) -> str:
    """The name of the worker, cut to the length of a Kubernetes name."""
    if len(worker) <= MAX_NAME_CHARS:
        return worker
    mark = f"-{crc32(worker.encode()):08x}"
    return worker[: MAX_NAME_CHARS - len(mark)].rstrip("-.") + mark


def slice_names(job: str) -> list[str]:
    return [f"{job}-workers-{number}" for number in range(SLICES)]


def slice_name(job: str, worker: WorkerName) -> str:
    return slice_names(job)[crc32(key_of(worker).encode()) % SLICES]


def part_of(config_map: Object) -> dict[str, Any]:
    """The part of .status that the slice holds: `workers`, and the sums over them."""
    entries = {key: entry_of(config_map, key) for key in workers_of(config_map)}
    by_name = {str(entry.get(_NAME) or key): entry for key, entry in entries.items()}
    return {**summary_of(config_map), WORKERS: by_name}


def summary_of(config_map: Object) -> Mapping[str, Any]:
    """The sums over the workers of the slice, as .status has them."""
    return _decoded(mapping(config_map.get("data")).get(SUMMARY))


def is_overfull(config_map: Object) -> bool:
    """Whether somebody else has put more entries into the slice than edgeai does."""
    return len(mapping(config_map.get("data"))) > MAX_WORKERS + 1  # and the sums


def workers_of(config_map: Object) -> list[WorkerName]:
    """The keys of the workers that have an entry in the slice; none of an overfull one."""
    data = {} if is_overfull(config_map) else mapping(config_map.get("data"))
    return [WorkerName(name) for name in data if name != SUMMARY]


def texts_of(config_map: Object) -> list[Any]:
    """The entry of each worker of `workers_of`, encoded."""
    data = mapping(config_map.get("data"))
    return [data[key] for key in workers_of(config_map)]


def entry_of(config_map: Object, worker: WorkerName) -> Mapping[str, Any]:
    """The entry of one worker; empty when the slice has none."""
    return _decoded(mapping(config_map.get("data")).get(key_of(worker)))


def data_of(part: Mapping[str, Any], changed: Iterable[str]) -> dict[str, str]:
    """The fields of .data that a write of the part changes. Args: changed: names of workers"""
    entries = mapping(part.get(WORKERS))
    sums = {key: value for key, value in part.items() if key != WORKERS}
    data = {SUMMARY: _encoded(sums)}
    for name in changed:
        key = key_of(name)
        data[key] = _encoded(entries[name] if key == name else {**entries[name], _NAME: name})
    return data


def _encoded(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _decoded(text: Any) -> Mapping[str, Any]:
    try:
        return {} if len(text) > MAX_TEXT_CHARS else mapping(msgspec.json.decode(text))
    except (TypeError, ValueError, RecursionError):  # somebody else wrote it
        return {}
