"""What the page of a job shows besides its status: pods, restarts, and how it was scaled.

Pure and total: a status may be whatever another release, or somebody else, has written.
"""

import zlib
from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any, Final

from edgeai.api.pod_state import container_states, node_of, phase_of, telling_states
from edgeai.api.resources import Object, ObjectRef
from edgeai.api.status import count_of, mapping, mappings
from edgeai.faults.remedies import is_good
from edgeai.faults.summary import CURVES, change_of, conditions_of, number_of
from edgeai.faults.tones import Tone, tone_of
from globalmanager.rest.console.board import path_of
from globalmanager.rest.console.recent import POINTS, Curve

MAX_WORD_CHARS: Final = 253  # a name of Kubernetes
MAX_MESSAGE_CHARS: Final = 300
MAX_NOTE_CHARS: Final = 2000  # of a condition; edgeai's own have at most 1024
MAX_MOMENTS: Final = 60  # of a timeline
MAX_ENTRIES: Final = 40  # of a map of a node
_RESOURCES: Final = {"cpu": "CPUs", "memory": "Memory", "nvidia.com/gpu": "GPUs", "pods": "Pods"}
_GIB: Final = {"Ki": 1 << 20, "Mi": 1 << 10, "Gi": 1}  # of each unit in one GiB


def pod_row(pod: Object) -> dict[str, Any]:
    status = mapping(pod.get("status"))
    return {
        "name": str(pod["metadata"]["name"]),
        "node": word(node_of(pod)),
        "phase": word(phase_of(pod)),
        "restarts": sum(count_of(entry.get("restartCount")) for entry in container_states(pod)),
        "why": _why(status, telling_states(pod)),
        "since": word(status.get("startTime") or pod["metadata"].get("creationTimestamp") or ""),
    }


def is_troubled(pod: Object) -> bool:
    """Whether somebody wants to know why: the pod does not run, or runs not for the first time."""
    row = pod_row(pod)
    return row["phase"] not in ("Running", "Succeeded") or row["restarts"] > 0


def _why(status: Mapping[str, Any], containers: Iterable[Mapping[str, Any]]) -> str:
    """Why the pod does not run: from its containers, otherwise from the pod."""
    for container in containers:
        state = mapping(container.get("state"))
        end = mapping(state.get("terminated"))
        if reason := mapping(state.get("waiting")).get("reason"):
            return word(reason)
        code = end.get("exitCode")
        if end and code != 0:
            reason = word(end.get("reason") or "ended")
            return f"{reason}, exit code {code}" if type(code) is int else reason
    if status.get("phase") in ("Running", "Succeeded"):
        return ""
    cause = next((one for one in conditions_of(status) if one.get("status") == "False"), {})
    return word(status.get("reason") or cause.get("reason") or "")


def node_facts(node: Object) -> list[tuple[str, str]]:
    """(what, value) of a Node: its system, and what pods may use of what it has."""
    status = mapping(node.get("status"))
    info, rooms = mapping(status.get("nodeInfo")), mapping(status.get("allocatable"))
    system = (info.get(field) for field in ("osImage", "architecture", "kubeletVersion"))
    facts = [("System", ", ".join(word(value) for value in system if value))]
    facts += [
        (_RESOURCES.get(name, word(name)), _room(rooms[name], amount))
        for name, amount in list(mapping(status.get("capacity")).items())[:MAX_ENTRIES]
        if name in rooms and (name in _RESOURCES or "/" in name)
    ]
    facts += [
        (
            word(condition.get("type") or ""),
            f"{word(condition.get('status'))}, {word(condition.get('reason'))}",
        )
        for condition in conditions_of(status)[:MAX_ENTRIES]
        if (condition.get("type") == "Ready") != (condition.get("status") == "True")
    ]
    return [(label, value) for label, value in facts if value]


def _room(usable: Any, whole: Any) -> str:
    one, other = _amount(usable), _amount(whole)
    return one if one == other else f"{one} of {other}"


def _amount(value: Any) -> str:
    """Memory in GiB; what has no such unit as it is."""
    text = word(value)
    digits, unit = text[:-2], text[-2:]
    is_memory = digits.isdecimal() and len(digits) < 16 and unit in _GIB
    return f"{int(digits) / _GIB[unit]:.1f} GiB" if is_memory else text


def curve_by_round(job: Object) -> Curve | None:
    """The metrics of a federation after its rounds; None for a job without rounds in its status."""
    history = mappings(mapping(job.get("status")).get("history"))[:CURVES]
    series: dict[str, dict[int, float | None]] = {}
    for entry in history:
        rounds, values = entry.get("rounds"), entry.get("values")
        if isinstance(rounds, list) and isinstance(values, list):
            pairs = list(zip(rounds, values, strict=False))[-POINTS:]
            series[word(entry.get("key"))] = {
                number: number_of(value)
                for number, value in pairs
                if type(number) is int and abs(number) <= 2**53
            }
    times = sorted({number for points in series.values() for number in points})
    if not times:
        return None
    by_key = {key: [points.get(number) for number in times] for key, points in series.items()}
    return Curve(
        now=0.0, times=[float(number) for number in times], series=by_key, is_by_round=True
    )


def restarts_of(status: Mapping[str, Any]) -> list[tuple[str, int]]:
    """(what, how often it was started again), as the status counts it, with pods that are gone."""
    whole = {
        "the job": count_of(status.get("jobRestarts")),
        "the launcher": count_of(status.get("restartCount")),
        "lost workers, replaced": count_of(status.get("replacedWorkers")),
    }
    restarts = mapping(status.get("restarts"))
    by_name = {word(name): count_of(count) for name, count in restarts.items()}
    return [(label, count) for label, count in {**whole, **by_name}.items() if count]


def size_of(status: Mapping[str, Any]) -> dict[str, Any]:
    """How many workers an elastic job wants and has; empty for a job that is not elastic."""
    target, elastic = status.get("targetWorkers"), mapping(status.get("elastic"))
    size: dict[str, Any] = {}
    if isinstance(target, list):
        size["wanted"] = len(target)
    if isinstance(status.get("currentWorkers"), list):
        size["in the host list"] = len(status["currentWorkers"])
    for field, label in (("ready", "ready"), ("waiting", "waiting for room"), ("limit", "at most")):
        if type(elastic.get(field)) is int:
            size[label] = elastic[field]
    if current := status.get("currentScaler"):
        size["being executed"] = str(current)[:MAX_MESSAGE_CHARS]
    return size


def timeline_of(
    job: Object, pods: Iterable[Object], scalers: Iterable[tuple[ObjectRef, Object]]
) -> list[dict[str, Any]]:
    """What happened to a job, the newest first: phases, starts and ends of containers, scalings.

    Returns: the newest MAX_MOMENTS, with `at`, `what`, `tone`, `note`, and `path` of a scaler
    """
    status = mapping(job.get("status"))
    moments = [
        *(_condition_moment(condition) for condition in conditions_of(status)[-MAX_MOMENTS:]),
        *(moment for scaler in scalers for moment in _scale_moments(*scaler)),
        *(moment for pod in pods for moment in _pod_moments(pod)),
    ]
    if all(moment["what"] != "Created" for moment in moments):
        moments.append(_moment(job["metadata"].get("creationTimestamp"), "Created"))
    dated = list({moment["key"]: moment for moment in moments if moment["at"]}.values())
    dated.sort(key=itemgetter("at"), reverse=True)
    return dated[:MAX_MOMENTS]


def _moment(
    at: Any, text: str, tone: Tone = Tone.DONE, *, note: str = "", path: str = ""
) -> dict[str, Any]:
    # An open page knows a moment again by its key, so that a selection in it stays.
    key = f"{zlib.crc32(f'{at} {text}'.encode(errors='replace')):08x}"
    moment = {"at": word(at or ""), "what": text, "tone": tone, "note": note, "path": path}
    return {**moment, "key": key}


def _condition_moment(condition: Mapping[str, Any]) -> dict[str, Any]:
    type_, truth = word(condition.get("type") or ""), word(condition.get("status") or "")
    reason, message = word(condition.get("reason") or ""), str(condition.get("message") or "")
    good = Tone.GOOD if truth == "True" else Tone.DONE
    text = type_ if truth == "True" else f"{type_} {truth}"
    return _moment(
        condition.get("lastTransitionTime"),
        text if reason.endswith(type_) else f"{text}: {reason}",
        good if is_good(condition) else Tone.WAITING,
        note=message[:MAX_NOTE_CHARS],
    )


def _scale_moments(ref: ObjectRef, scaler: Object) -> list[dict[str, Any]]:
    row, name = scale_row(ref, scaler), f"{ref.type.kind} {ref.name}"
    end = _moment(
        row["ended"],
        f"{name}: {row['phase']}",
        tone_of(row["phase"], ()),
        note=row["message"],
        path=row["path"],
    )
    start = _moment(row["began"], f"{name} {row['change']}".strip(), Tone.WAITING, path=row["path"])
    return [start, end]


def _pod_moments(pod: Object) -> Iterable[dict[str, Any]]:
    name = str(pod["metadata"]["name"])
    for container in container_states(pod):
        part = f"{name}, container {word(container.get('name', ''))}"
        for field in ("lastState", "state"):
            state = mapping(container.get(field))
            if start := mapping(state.get("running")).get("startedAt"):
                yield _moment(start, f"{part} started", Tone.GOOD)
            if end := mapping(state.get("terminated")):
                code = end.get("exitCode")
                reason = word(end.get("reason") or "ended")
                text = f"{part}: {reason}, exit code {word(code)}"
                yield _moment(end.get("finishedAt"), text, Tone.BAD if code else Tone.DONE)


def scale_row(ref: ObjectRef, scaler: Object) -> dict[str, Any]:
    """One step of a scale history: a ScaleOut or ScaleIn that the cluster still has."""
    status = mapping(scaler.get("status"))
    return {
        "path": path_of(ref),
        "change": change_of(ref.type.kind, scaler),
        "phase": word(status.get("phase") or "waiting"),
        "message": str(status.get("message") or "")[:MAX_MESSAGE_CHARS],
        "began": word(status.get("startTime") or scaler["metadata"].get("creationTimestamp") or ""),
        "ended": word(status.get("completionTime") or ""),
    }


def word(value: Any) -> str:
    """A short text of a status, whose owner may have written a long one."""
    return str(value)[:MAX_WORD_CHARS]
