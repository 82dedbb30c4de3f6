"""The form of an answer: whole objects, a Table, or metadata only. Pure.

The client's Accept header chooses the form. kubectl shows a Table, whose columns a CRD or the
constant `_BUILTINS` names. kubectl shows columns of priority 1 only with `-o wide`.
"""

import functools
import re
from collections.abc import Callable, Iterable
from datetime import datetime
from enum import Enum
from typing import Any, Final

import msgspec

from edgeai import times
from edgeai.localcluster.objects.resources import Column, Object, Resource
from edgeai.times import Clock


class Form(Enum):
    """The forms of an answer. The value of a form is the `as` parameter of the media type."""

    OBJECT = ""
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"
    METADATA_LIST = "PartialObjectMetadataList"


def form(accept: str) -> Form:
    """The first supported form of an Accept header; whole objects if there is none."""
    for media_range in accept.split(","):
        media_type, *parts = (part.strip() for part in media_range.split(";"))
        if media_type not in ("application/json", "*/*", "application/*"):
            continue
        parameters = dict(part.partition("=")[::2] for part in parts)
        try:
            return Form(parameters.get("as", ""))
        except ValueError:
            continue
    return Form.OBJECT


class View(msgspec.Struct, frozen=True):
    """Renders objects of one resource in one client's form.

    `include` says how much of its object each row of a Table contains: Metadata, Object or None.
    """

    resource: Resource
    form: Form
    now: Clock
    include: str = "Metadata"

    def one(self, object_: Object, *, with_columns: bool = True) -> Object:
        """Args: with_columns: a Table has column definitions, as in a watch the first event"""
        if self.form is Form.TABLE:
            return self._table([object_], object_["metadata"], with_columns=with_columns)
        if self.form is Form.OBJECT:
            return object_
        return metadata_only(object_)

    def many(self, objects: list[Object], metadata: Object) -> Object:
        """Render a list of objects. `metadata` is the list's own (resourceVersion, continue)."""
        if self.form is Form.TABLE:
            return self._table(objects, metadata)
        kind, api_version = f"{self.resource.kind}List", self.resource.group_version
        if self.form is not Form.OBJECT:
            kind, api_version = "PartialObjectMetadataList", "meta.k8s.io/v1"
        items = [self.one(object_) for object_ in objects]
        return {"kind": kind, "apiVersion": api_version, "metadata": metadata, "items": items}

    def _table(
        self, objects: list[Object], metadata: Object, *, with_columns: bool = True
    ) -> Object:
        columns, now = _columns(self.resource), self.now()
        fields = ("resourceVersion", "continue", "remainingItemCount")
        return {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": {name: metadata[name] for name in fields if name in metadata},
            "columnDefinitions": [_definition(column) for column, _ in columns if with_columns],
            "rows": [self._row(columns, object_, now) for object_ in objects],
        }

    def _row(self, columns: Iterable["_Printed"], object_: Object, now: datetime) -> Object:
        row: Object = {"cells": [_cell(column, value, object_, now) for column, value in columns]}
        if self.include == "Object":
            row["object"] = object_
        elif self.include != "None":
            row["object"] = metadata_only(object_)
        return row


def metadata_only(object_: Object) -> Object:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object_["metadata"],
    }


def _definition(column: Column) -> Object:
    return {
        "name": column.name,
        # This module computes the ages, so a date column contains text for the client.
        "type": "string" if column.type == "date" else column.type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    }


# Columns and their cells

_Printed = tuple[Column, Callable[[Object], Any]]
"""A column, and the value of one object in it."""


def _columns(resource: Resource) -> list[_Printed]:
    priority = 1 if resource.plural == "events" else 0
    name = Column("Name", "string", "", "name", "Unique within a namespace.", priority)
    custom = [(column, functools.partial(_first, column.json_path)) for column in resource.columns]
    return [
        (name, functools.partial(_first, ".metadata.name")),
        *(custom or _BUILTINS.get(resource.group_resource, (_AGE,))),
    ]


def _cell(column: Column, value: Callable[[Object], Any], object_: Object, now: datetime) -> Any:
    """One cell. A field of a wrong type makes the cell `<invalid>` and not the answer an error.

    The API does not check all fields of built-in kinds.
    """
    try:
        content = value(object_)
        if column.type == "date":
            return times.age(times.parse(content), now) if content else "<unknown>"
    except (AttributeError, KeyError, TypeError, ValueError):
        return "<invalid>"
    if isinstance(content, dict | list) and column.type == "string":
        return msgspec.json.encode(content).decode()
    return content


def _first(path: str, object_: Object) -> Any:
    """The first value at a path; None if the object has no such value."""
    return next(iter(values_at(path, object_)), None)


# The values of columns

_STEP = re.compile(
    r"""
      \.(?P<field>[^.\[\]\\]+)
    | \[(?P<star>\*)\]
    | \[(?P<last>-1:)\]
    | \[\?\(@\.(?P<key>\w+)=="(?P<value>[^"]*)"\)\]
    """,
    re.VERBOSE,
)


def values_at(path: str, document: Any) -> list[Any]:
    """All values at a JSONPath, in the order of the document.

    Of Kubernetes' JSONPath the function knows what edgeai's own definitions use: `.spec.size`,
    `.parts[*].name`, `.status.conditions[-1:].type`, `.conditions[?(@.type=="Ready")].status`.

    Returns: an empty list if the document has no such value or the path is not supported
    """
    steps = _steps(path)
    values = [document] if steps else []
    for step in steps:
        values = [part for value in values for part in _parts(step, value)]
    return values


@functools.lru_cache(maxsize=1024)
def _steps(path: str) -> tuple[re.Match[str], ...]:
    """The steps of a path; an empty tuple if the path is not supported."""
    steps, position = [], 0
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            return ()
        steps.append(match)
        position = match.end()
    return tuple(steps)


def _parts(step: re.Match[str], value: Any) -> list[Any]:
    """The values one step below `value`."""
    items = value if isinstance(value, list) else []
    if step["star"]:
        return items
    if step["last"]:
        return items[-1:]
    if step["key"]:
        maps = (item for item in items if isinstance(item, dict))
        return [item for item in maps if item.get(step["key"]) == step["value"]]
    name = step["field"]
    return [value[name]] if isinstance(value, dict) and name in value else []


# The columns of built-in kinds


def _joined(path: str, object_: Object) -> str:
    return ",".join(map(str, values_at(path, object_))) or "<none>"


def _text(name: str, value: str | Callable[[Object], str], *, wide: bool = False) -> _Printed:
    """A column with text. Args: value: JSONPath of the text, or a function"""
    function = functools.partial(_joined, value) if isinstance(value, str) else value
    return Column(name, "string", "", priority=int(wide)), function


def _date(name: str, path: str) -> _Printed:
    return Column(name, "date", path), functools.partial(_first, path)


def _containers(pod: Object) -> list[Object]:
    return (pod.get("status") or {}).get("containerStatuses") or []


def _ready_containers(pod: Object) -> str:
    ready = sum(bool(status.get("ready")) for status in _containers(pod))
    return f"{ready}/{len(pod['spec'].get('containers') or [])}"


def _restarts(pod: Object) -> str:
    return str(sum(status.get("restartCount", 0) for status in _containers(pod)))


def _pod_state(pod: Object) -> str:
    """The phase of a pod, or the reason why its containers do not run."""
    status = pod.get("status") or {}
    if "deletionTimestamp" in pod["metadata"]:
        return "Terminating"
    initial = status.get("initContainerStatuses") or []
    for index, container in enumerate(initial):
        state = container.get("state") or {}
        if (state.get("terminated") or {}).get("exitCode") == 0:
            continue
        reason = _reason(state)
        is_failure = reason not in ("", "PodInitializing")
        return f"Init:{reason}" if is_failure else f"Init:{index}/{len(initial)}"
    reasons = [_reason(container.get("state") or {}) for container in _containers(pod)]
    reason = next(filter(None, reasons), "")
    return str(reason or status.get("reason") or status.get("phase") or "<unknown>")


def _reason(state: Object) -> str:
    if wait := state.get("waiting"):
        return str(wait.get("reason") or "")
    if end := state.get("terminated"):
        return str(end.get("reason") or f"ExitCode:{end.get('exitCode')}")
    return ""


def _ports(service: Object) -> str:
    ports = service["spec"].get("ports") or []
    return ",".join(f"{port['port']}/{port.get('protocol')}" for port in ports) or "<none>"


def _replicas(deployment: Object) -> str:
    ready = (deployment.get("status") or {}).get("readyReplicas", 0)
    return f"{ready}/{deployment['spec'].get('replicas', 1)}"


def _node_state(node: Object) -> str:
    ready = _first('.status.conditions[?(@.type=="Ready")].status', node)
    state = {"True": "Ready", "False": "NotReady"}.get(str(ready), "Unknown")
    return state + (",SchedulingDisabled" if node["spec"].get("unschedulable") else "")


def _roles(node: Object) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = sorted(node["metadata"].get("labels") or {})
    roles = [name.removeprefix(prefix) for name in labels if name.startswith(prefix)]
    return ",".join(roles) or "<none>"


def _subject(event: Object) -> str:
    subject = event.get("involvedObject") or {}
    return f"{str(subject.get('kind', '')).lower()}/{subject.get('name', '')}"


_AGE: Final = _date("Age", ".metadata.creationTimestamp")
_BUILTINS: Final[dict[str, tuple[_Printed, ...]]] = {
    "pods": (
        _text("Ready", _ready_containers),
        _text("Status", _pod_state),
        _text("Restarts", _restarts),
        _AGE,
        _text("IP", ".status.podIP", wide=True),
        _text("Node", ".spec.nodeName", wide=True),
    ),
    "endpoints": (_text("Endpoints", ".subsets[*].addresses[*].ip"), _AGE),
    "services": (
        _text("Type", ".spec.type"),
        _text("Cluster-IP", ".spec.clusterIP"),
        _text("External-IP", ".spec.externalIPs[*]"),
        _text("Port(s)", _ports),
        _AGE,
    ),
    "deployments.apps": (_text("Ready", _replicas), _AGE),
    "nodes": (
        _text("Status", _node_state),
        _text("Roles", _roles),
        _AGE,
        _text("Version", ".status.nodeInfo.kubeletVersion"),
        _text("Internal-IP", '.status.addresses[?(@.type=="InternalIP")].address', wide=True),
    ),
    "events": (
        _date("Last Seen", ".lastTimestamp"),
        _text("Type", ".type"),
        _text("Reason", ".reason"),
        _text("Object", _subject),
        _text("Message", ".message"),
    ),
}
