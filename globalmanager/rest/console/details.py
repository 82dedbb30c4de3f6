"""What the page of a job shows besides its status: pods, restarts, and how it was scaled.

Pure and total: a status may be whatever another release, or somebody else, has written.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from edgeai.api.pod_state import telling_states
from edgeai.api.resources import Object, ObjectRef
from edgeai.api.status import mapping, mappings
from edgeai.faults.summary import conditions_of
from globalmanager.rest.console.board import path_of

MAX_WORD_CHARS: Final = 253  # a name of Kubernetes
MAX_MESSAGE_CHARS: Final = 300
_SCALED: Final = {"ScaleOut": ("toAdd", "+"), "ScaleIn": ("toDelete", "-")}


def pod_row(pod: Object) -> dict[str, Any]:
    status = mapping(pod.get("status"))
    containers = mappings(status.get("containerStatuses"))
    inits = mappings(status.get("initContainerStatuses"))
    return {
        "name": str(pod["metadata"]["name"]),
        "node": word(mapping(pod.get("spec")).get("nodeName") or ""),
        "phase": word(status.get("phase") or "Pending"),
        "restarts": sum(_count(entry.get("restartCount")) for entry in (*inits, *containers)),
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
    cause = next((each for each in conditions_of(status) if each.get("status") == "False"), {})
    return word(status.get("reason") or cause.get("reason") or "")


def restarts_of(status: Mapping[str, Any]) -> list[tuple[str, int]]:
    """(what, how often it was started again), as the status counts it. Pods that are gone count,
    too.
    """
    whole = {
        "the job": _count(status.get("jobRestarts")),
        "the launcher": _count(status.get("restartCount")),
        "lost workers, replaced": _count(status.get("replacedWorkers")),
    }
    each = {word(name): _count(count) for name, count in mapping(status.get("restarts")).items()}
    return [(label, count) for label, count in {**whole, **each}.items() if count]


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


def scale_row(ref: ObjectRef, scaler: Object) -> dict[str, Any]:
    """One step of a scale history: a ScaleOut or ScaleIn that the cluster still has."""
    status = mapping(scaler.get("status"))
    field, sign = _SCALED.get(ref.type.kind, ("", ""))
    change = mapping(mapping(scaler.get("spec")).get(field))
    names = change.get("podNames")
    count = len(names) if isinstance(names, list) else change.get("count")
    return {
        "path": path_of(ref),
        "kind": ref.type.kind,
        "name": ref.name,
        "change": f"{sign}{count}" if type(count) is int else "",
        "phase": word(status.get("phase") or "waiting"),
        "message": str(status.get("message") or "")[:MAX_MESSAGE_CHARS],
        "began": word(status.get("startTime") or scaler["metadata"].get("creationTimestamp") or ""),
        "ended": word(status.get("completionTime") or ""),
    }


def word(value: Any) -> str:
    """A short text of a status, whose owner may have written a long one."""
    return str(value)[:MAX_WORD_CHARS]


def _count(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 10**9 else 0
