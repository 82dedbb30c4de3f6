"""The columns of `kubectl get` for built-in kinds, and the cells of one object.

Pure; `tables` calls this module. kubectl shows columns of priority 1 only with `-o wide`.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from edgeai import times
from edgeai.localcluster.objects.resources import Column, Object

Cells = list[Any]
_NONE, _UNKNOWN = "<none>", "<unknown>"
# Each row: limit of the age in seconds, unit, its seconds, next smaller unit, its seconds.
_AGE_UNITS = (
    (120, "s", 1, "", 0),
    (600, "m", 60, "s", 1),
    (3 * 3600, "m", 60, "", 0),
    (8 * 3600, "h", 3600, "m", 60),
    (48 * 3600, "h", 3600, "", 0),
    (8 * 86400, "d", 86400, "h", 3600),
    (2 * 365 * 86400, "d", 86400, "", 0),
)


class Printer(msgspec.Struct, frozen=True):
    """The columns of a kind after the column Name, and a function that computes the cells."""

    columns: tuple[Column, ...]
    cells: Callable[[Object, datetime], Cells]
    name_priority: int = 0
    """Priority of the column Name. With 1, as for Events, only `-o wide` shows the name."""


def age(timestamp: str | None, now: datetime) -> str:
    """Time since `timestamp` in kubectl's form: 45s, 5m30s, 3h, 2d4h."""
    if not timestamp:
        return _UNKNOWN
    try:
        seconds = int((now - times.parse(timestamp)).total_seconds())
    except ValueError:
        return "<invalid>"
    return duration(max(seconds, 0))


def duration(seconds: int) -> str:
    for limit, unit, unit_s, smaller, smaller_s in _AGE_UNITS:
        if seconds < limit:
            rest = seconds % unit_s // smaller_s if smaller_s else 0
            return f"{seconds // unit_s}{unit}" + (f"{rest}{smaller}" if rest else "")
    years, days = divmod(seconds // 86400, 365)
    return f"{years}y" + (f"{days}d" if days and years < 8 else "")


def object_age(object_: Object, now: datetime) -> str:
    return age(object_["metadata"].get("creationTimestamp"), now)


def _columns(names: str, wide: str = "") -> tuple[Column, ...]:
    """The columns of a kind.

    Args:
        names: comma-separated names of the columns that kubectl always shows
        wide: comma-separated names of the columns that only `-o wide` shows
    """
    listed = [(name, 0) for name in names.split(",")]
    listed += [(name, 1) for name in wide.split(",") if name]
    return tuple(Column(name, "string", "", priority=priority) for name, priority in listed)


def _status(object_: Object) -> Object:
    status: Object = object_.get("status") or {}
    return status


def _pod(pod: Object, now: datetime) -> Cells:
    status = _status(pod)
    states = status.get("containerStatuses") or []
    ready = sum(1 for state in states if state.get("ready"))
    return [
        f"{ready}/{len(pod['spec'].get('containers') or [])}",
        pod_state(pod),
        str(sum(state.get("restartCount", 0) for state in states)),
        object_age(pod, now),
        status.get("podIP") or _NONE,
        pod["spec"].get("nodeName") or _NONE,
    ]


def pod_state(pod: Object) -> str:
    """The STATUS that kubectl shows for a pod.

    Returns: the phase of the pod, or the reason why its containers do not run
    """
    status = _status(pod)
    if "deletionTimestamp" in pod["metadata"]:
        return "Terminating"
    initial = status.get("initContainerStatuses") or []
    for index, state in enumerate(initial):
        if reason := _init_reason(state.get("state") or {}):
            return f"Init:{reason}" if reason != "Running" else f"Init:{index}/{len(initial)}"
    reasons = [_reason(state.get("state") or {}) for state in status.get("containerStatuses") or []]
    found = next((reason for reason in reasons if reason), "")
    return found or status.get("reason") or status.get("phase") or _UNKNOWN


def _init_reason(state: Object) -> str:
    terminated = state.get("terminated")
    if terminated is not None and terminated.get("exitCode") == 0:
        return ""
    waiting = (state.get("waiting") or {}).get("reason", "")
    return _reason(state) if waiting != "PodInitializing" and _reason(state) else "Running"


def _reason(state: Object) -> str:
    for phase in ("waiting", "terminated"):
        if phase in state:
            detail = state[phase] or {}
            code = f"ExitCode:{detail.get('exitCode')}" if phase == "terminated" else ""
            return str(detail.get("reason") or code)
    return ""


def _service(service: Object, now: datetime) -> Cells:
    spec = service["spec"]
    ports = [
        f"{port.get('port')}{':' + str(port['nodePort']) if port.get('nodePort') else ''}"
        f"/{port.get('protocol', 'TCP')}"
        for port in spec.get("ports") or []
    ]
    external = spec.get("externalIPs") or [spec.get("externalName")]
    return [
        spec.get("type", "ClusterIP"),
        spec.get("clusterIP") or _NONE,
        ",".join(filter(None, external)) or _NONE,
        ",".join(ports) or _NONE,
        object_age(service, now),
        _pairs(spec.get("selector")),
    ]


def _pairs(labels: Object | None) -> str:
    return ",".join(f"{name}={value}" for name, value in (labels or {}).items()) or _NONE


def _template_cells(object_: Object) -> Cells:
    spec = object_["spec"]
    containers = (spec.get("template", {}).get("spec") or {}).get("containers") or []
    return [
        ",".join(str(container.get("name")) for container in containers),
        ",".join(str(container.get("image")) for container in containers),
        _pairs((spec.get("selector") or {}).get("matchLabels")),
    ]


def _deployment(deployment: Object, now: datetime) -> Cells:
    status = _status(deployment)
    return [
        f"{status.get('readyReplicas', 0)}/{deployment['spec'].get('replicas', 1)}",
        str(status.get("updatedReplicas", 0)),
        str(status.get("availableReplicas", 0)),
        object_age(deployment, now),
        *_template_cells(deployment),
    ]


def _node(node: Object, now: datetime) -> Cells:
    status = _status(node)
    conditions = {c.get("type"): c.get("status") for c in status.get("conditions") or []}
    state = {"True": "Ready", "False": "NotReady"}.get(conditions.get("Ready", ""), "Unknown")
    if node.get("spec", {}).get("unschedulable"):
        state += ",SchedulingDisabled"
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels") or {}
    roles = [name.removeprefix(prefix) for name in labels if name.startswith(prefix)]
    addresses = {a.get("type"): a.get("address") for a in status.get("addresses") or []}
    info = status.get("nodeInfo") or {}
    return [
        state,
        ",".join(sorted(roles)) or _NONE,
        object_age(node, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP") or _NONE,
        info.get("osImage") or _UNKNOWN,
        info.get("containerRuntimeVersion") or _UNKNOWN,
    ]


def _event(event: Object, now: datetime) -> Cells:
    last = event.get("lastTimestamp") or event.get("eventTime") or event.get("firstTimestamp")
    about = event.get("involvedObject") or {}
    return [
        age(last, now),
        event.get("type", ""),
        event.get("reason", ""),
        f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}",
        str(event.get("message", "")).strip(),
        (event.get("source") or {}).get("component") or event.get("reportingComponent", ""),
        str(event.get("count", 1)),
    ]


def _endpoints(endpoints: Object, now: datetime) -> Cells:
    addresses = [
        f"{address.get('ip')}:{port.get('port')}"
        for subset in endpoints.get("subsets") or []
        for address in subset.get("addresses") or []
        for port in subset.get("ports") or [{}]
    ]
    more = f" + {len(addresses) - 3} more..." if len(addresses) > 3 else ""
    return [(",".join(addresses[:3]) or _NONE) + more, object_age(endpoints, now)]


def _count(object_: Object, *fields: str) -> int:
    return sum(len(object_.get(field) or ()) for field in fields)


DEFAULT = Printer(_columns("Age"), lambda object_, now: [object_age(object_, now)])
PRINTERS: dict[str, Printer] = {
    "pods": Printer(_columns("Ready,Status,Restarts,Age", "IP,Node"), _pod),
    "services": Printer(_columns("Type,Cluster-IP,External-IP,Port(s),Age", "Selector"), _service),
    "deployments.apps": Printer(
        _columns("Ready,Up-to-date,Available,Age", "Containers,Images,Selector"), _deployment
    ),
    "nodes": Printer(
        _columns("Status,Roles,Age,Version", "Internal-IP,OS-Image,Container-Runtime"), _node
    ),
    "events": Printer(
        _columns("Last Seen,Type,Reason,Object,Message", "Source,Count"), _event, name_priority=1
    ),
    "endpoints": Printer(_columns("Endpoints,Age"), _endpoints),
    "namespaces": Printer(
        _columns("Status,Age"),
        lambda object_, now: [_status(object_).get("phase", ""), object_age(object_, now)],
    ),
    "configmaps": Printer(
        _columns("Data,Age"),
        lambda object_, now: [_count(object_, "data", "binaryData"), object_age(object_, now)],
    ),
    "secrets": Printer(
        _columns("Type,Data,Age"),
        lambda object_, now: [object_["type"], _count(object_, "data"), object_age(object_, now)],
    ),
    "leases.coordination.k8s.io": Printer(
        _columns("Holder,Age"),
        lambda object_, now: [
            (object_.get("spec") or {}).get("holderIdentity") or "",
            object_age(object_, now),
        ],
    ),
    "customresourcedefinitions.apiextensions.k8s.io": Printer(
        _columns("Created At"), lambda object_, _: [object_["metadata"]["creationTimestamp"]]
    ),
}
