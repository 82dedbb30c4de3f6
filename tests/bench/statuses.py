"""How old the values in the API are while many nodes report often: part of the section `scale`."""

import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.bench.nodes import Fleet
from tests.bench.onlooker import Onlooker, watched
from tests.bench.plane import connection
from tests.bench.samples import path_of
from tests.bench.spread import spread
from tests.cluster.controlplane import ControlPlane
from tests.support.manager import GlobalManager
from tests.support.processes import processor_s

REPORTING_S: Final = 30.0
REPORT_EVERY_S: Final = 0.1
ENDING: Final = 100  # workers that end while all report
VISIBLE_S: Final = 20.0  # the watch goes on so long after the last report


def statuses(
    control_plane: ControlPlane,
    manager: GlobalManager,
    fleet: Fleet,
    directory: Path,
    *,
    count: int,
) -> dict[str, Any]:
    """`count` nodes report ten times a second each."""
    with watched(connection(control_plane, directory), jobs=path_of()) as onlooker:
        processes = {
            **control_plane.pids(),
            "globalmanager": manager.pid,
            "nodes": fleet.pid,
            "watcher": onlooker.pid,
        }
        fleet.forget()
        heard, spent_s = len(control_plane.audit()), _spent_s(processes)
        ending = min(ENDING, count // 2)
        fleet.ask(reporting=REPORTING_S, every=REPORT_EVERY_S, of=count, ending=ending, evenly=True)
        told = fleet.answer("began")
        spent_s = {name: now_s - spent_s[name] for name, now_s in _spent_s(processes).items()}
        asked = control_plane.audit()[heard:]
        writes = [event for event in asked if _is_status_write(event)]
        tally = fleet.tally()
        time.sleep(VISIBLE_S)
        ages = _ages(onlooker, told)
    writes_of = Counter(each["objectRef"]["name"] for each in writes)
    return {
        "jobs": count,
        "seconds": REPORTING_S,
        "reported": tally["reported"],
        "acknowledged": tally["acknowledged"],
        "load_late_s": round(told["late"], 2),
        **ages,
        "writes_per_s": round(len(writes) / REPORTING_S, 1),
        "writes_per_s_of_a_job": round(max(writes_of.values()) / REPORTING_S, 2),
        "write_ms_at_the_server": spread([1000 * _took_s(event) for event in writes]),
        "requests_per_s": {
            what: round(number / REPORTING_S, 1)
            for what, number in Counter(map(_what, asked)).most_common()
            if number > REPORTING_S
        },
        "processor_percent": {
            name: round(100 * seconds / REPORTING_S) for name, seconds in spent_s.items()
        },
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
    return {
        "jobs_without_value": sum(not values[names[uid]] for uid in told["reported"]),
        "oldest_value_s": spread(oldest),
        "end_visible_s": spread(ends),
    }


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


def _spent_s(processes: Mapping[str, int]) -> dict[str, float]:
    return {name: processor_s(pid) for name, pid in processes.items()}


def _took_s(event: Mapping[str, Any]) -> float:
    began, ended = (
        datetime.fromisoformat(event[name])
        for name in ("requestReceivedTimestamp", "stageTimestamp")
    )
    return (ended - began).total_seconds()


def _what(event: Mapping[str, Any]) -> str:
    about = event.get("objectRef", {})
    parts = (about.get("resource"), about.get("subresource"))
    return f"{event['verb']} {'/'.join(filter(None, parts))} {event['responseStatus']['code']}"


def _is_status_write(event: Mapping[str, Any]) -> bool:
    reference = event.get("objectRef", {})
    return event["verb"] in ("patch", "update") and reference.get("subresource") == "status"
