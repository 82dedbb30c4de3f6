"""How old the values in the API are while many nodes report often, and what a status write costs
the API server, whoever sends it: parts of the section `scale`.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.bench.nodes import Fleet
from tests.bench.onlooker import Onlooker
from tests.bench.plane import connection, send
from tests.bench.process import answer_of
from tests.bench.samples import NAMESPACE, node_name, path_of, service
from tests.bench.spread import spread
from tests.cluster.controlplane import ControlPlane
from tests.support.processes import processor_s

REPORTING_S: Final = 30.0
REPORT_EVERY_S: Final = 0.1
ENDING: Final = 100  # workers that end while all report
VISIBLE_S: Final = 20.0  # the watch goes on so long after the last report
WRITTEN: Final = 20  # jobs whose status is written
WRITES: Final = 400
LANES: Final = 4
_CONDITIONS: Final = ("Accepted", "ResolvedRefs", "Running", "EdgeConnected")


def statuses(
    control_plane: ControlPlane, fleet: Fleet, directory: Path, *, count: int
) -> dict[str, Any]:
    """`count` nodes report ten times a second each."""
    with Onlooker(connection(control_plane, directory), jobs=path_of()) as onlooker:
        heard, ending = len(control_plane.audit()), min(ENDING, count // 2)
        told = fleet.report(
            REPORTING_S, every_s=REPORT_EVERY_S, of=count, ending=ending, evenly=True
        )
        asked = control_plane.audit()[heard:]
        time.sleep(VISIBLE_S)
        ages = _ages(onlooker, told)
    writes = Counter(each["objectRef"]["name"] for each in asked if _is_status_write(each))
    return {
        "jobs": count,
        "load_late_s": round(told["late"], 2),
        **ages,
        "writes_per_s_of_a_job": round(max(writes.values()) / REPORTING_S, 2),
    }


class Seen(NamedTuple):
    """What the watch showed of a job, and when."""

    at: float
    value: int


def _ages(onlooker: Onlooker, told: Mapping[str, Any]) -> dict[str, Any]:
    """How old each value is when the next one takes its place, and when the ends are visible."""
    values: defaultdict[str, list[Seen]] = defaultdict(list)  # by the job's name
    for key, at in onlooker.times("jobs", "count").items():
        name, _, value = key.partition(":")
        values[name].append(Seen(at, int(value)))
    names = dict(key.split(":")[::-1] for key in onlooker.times("jobs", "exists"))  # by uid
    ended = onlooker.times("jobs", "ended")
    oldest, ends = [], []
    for uid, reported_s in told["reported"].items():
        ended_s, name = told["ended"].get(uid), names[uid]
        if ended_s is None:
            oldest.append(oldest_s(values[name], told["first"], reported_s))
        else:
            ends.append(ended[name] - ended_s if name in ended else VISIBLE_S)
    return {"oldest_value_s": spread(oldest), "end_visible_s": spread(ends)}


def oldest_s(values: Sequence[Seen], first: int, reported_s: Sequence[float]) -> float:
    """The greatest age of a value of one job, while the worker reported.

    Args: reported_s: when each value was reported, beginning with the value `first`
    """
    last_s = reported_s[-1]
    shown = [each for each in values if each.at < last_s and each.value >= first]
    began_s = shown[0].at if shown else last_s
    until_s = [*(each.at for each in shown[1:]), last_s]
    replaced = zip(shown, until_s, strict=False)
    ages = [later_s - reported_s[each.value - first] for each, later_s in replaced]
    return max([began_s - reported_s[0], *ages])  # at first there is no value at all


def _is_status_write(event: Mapping[str, Any]) -> bool:
    reference = event.get("objectRef", {})
    return event["verb"] in ("patch", "update") and reference.get("subresource") == "status"


# ---- one write ----------------------------------------------------------------------------------


def status_write_ms(control_plane: ControlPlane, directory: Path) -> float:
    """Processor time of the API server for the merge patch that a report leads to, LANES at a time.

    The jobs have no workers, since their Model does not exist.
    """
    paths = [f"{path_of()}/bench-{number}" for number in range(WRITTEN)]

    def write(statuses: Iterable[dict[str, Any]]) -> None:
        patches = [{"status": status} for status in statuses]
        requests = [
            ("PATCH", f"{paths[number % WRITTEN]}/status", patch)
            for number, patch in enumerate(patches)
        ]
        answer_of(send(control_plane, directory, requests, concurrency=LANES))

    for number in range(WRITTEN):
        control_plane.client.create(service(number, NAMESPACE, node_name(0)))
    write([_whole_status()] * WRITTEN)
    write(map(_counts, range(WRITES)))  # so that the API server is warm
    pid = control_plane.pids()["kube-apiserver"]
    before_s = processor_s(pid)
    write(map(_counts, range(WRITES, 2 * WRITES)))
    spent_s = processor_s(pid) - before_s
    for path in paths:
        control_plane.client.delete(path)
    return round(1000 * spent_s / WRITES, 2)


def _whole_status() -> dict[str, Any]:
    """As a service has it whose worker reports."""
    condition = {
        "status": "True",
        "reason": "Valid",
        "message": "the spec can be carried out",
        "lastTransitionTime": "2026-11-23T00:00:00Z",
        "observedGeneration": 1,
    }
    worker = {"node": node_name(0), "instance": "of a ledger", "attempt": 1}
    counts = _counts(0)
    worker |= {"phase": "inference", "status": "running", **counts["workers"]["edge"]}
    return {
        **counts,
        "phase": "Running",
        "conditions": [{"type": each, **condition} for each in _CONDITIONS],
        "workers": {"edge": worker},
    }


def _counts(value: int) -> dict[str, Any]:
    metrics = {"seen": str(value), "uploaded": str(value), "uploadCloudRatio": "1.0000"}
    return {
        "uploadCount": value,
        "metrics": [{"key": key, "value": told} for key, told in metrics.items()],
        "workers": {"edge": {"revision": value, "taskInfo": {"seen": value, "uploaded": value}}},
    }
