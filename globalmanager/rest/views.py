"""The types of the REST API's answers. The JSON and the OpenAPI document come from these types.

An answer shows objects as the Kubernetes API has them, without `managedFields`. No answer contains
a worker secret or its hash, because neither job resources nor sessions have them.
"""

from datetime import date, datetime
from typing import Any

import msgspec

Object = dict[str, Any]


class View(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base class of all answers."""


class SessionView(View, frozen=True):
    """A live session. `synced`: the node holds its whole desired set since it connected. `release`:
    of the LocalController; empty when it does not tell. `lastReportAt` is null for who may not see
    the numbers of tasks.
    """

    id: str
    instance: str
    protocol_version: int
    release: str
    synced: bool
    last_report_at: datetime | None


class NodeView(View, frozen=True):
    """A node of the cluster, or a node that had a session at any replica.

    `inCluster`: the cluster has a Node object of this name. `isEdge`: this object has the label
    `node-role.kubernetes.io/edge`. `connected`: the node has a session at some replica. `since`:
    when `connected` last changed; null for a node that never had a session. `problem`: why the
    node's last connection to this replica ended; empty while it is connected.
    `tasksDesired`: number of tasks that the node must hold. `tasksHeld`: number of tasks that the
    node is known to hold. `tasksHeld` and `session` are null without a session at this replica.
    `certificateEndsOn`: the day on which the client certificate of the node's session, or its CA,
    ends; null without one. Tasks are of all namespaces, so both numbers are null for who may not
    list each type of job in all of them.
    """

    name: str
    in_cluster: bool
    is_edge: bool
    connected: bool
    since: datetime | None
    problem: str
    certificate_ends_on: date | None
    tasks_desired: int | None
    tasks_held: int | None
    session: SessionView | None


class ListMetadata(View, frozen=True):
    """`continue`: the parameter `continue` of the next page; empty at the end of the list."""

    continue_: str = msgspec.field(default="", name="continue")
    remaining_item_count: int = 0


class NodeListView(View, frozen=True):
    metadata: ListMetadata
    items: list[NodeView]


class ObjectListView(View, frozen=True):
    """Job resources of one plural, by namespace and name, of all groups that serve it. An object
    that is deleted while the answer is sent is left out.
    """

    metadata: ListMetadata
    items: list[Object]


class WorkerListView(View, frozen=True):
    """The workers of a job by name. Each item has the fields of an entry of `status.workers`, and
    `name`.
    """

    metadata: ListMetadata
    items: list[Object]


class StatusView(View, frozen=True):
    """An object's .status, with what identifies the object and its state."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    generation: int
    status: Object


class HealthView(View, frozen=True):
    """The process answers."""

    ok: bool


class ReadyView(View, frozen=True):
    """Whether this GlobalManager is ready to serve; `reasons` names the problems."""

    ready: bool
    reasons: list[str]


class ErrorView(View, frozen=True):
    """Why a request failed, in the form of a Status of the Kubernetes API: the HTTP status, one
    word for programs, one sentence for people.
    """

    code: int
    reason: str
    message: str
    api_version: str = "v1"
    kind: str = "Status"
    metadata: Object = {}
    status: str = "Failure"


def object_view(object_: Object) -> Object:
    metadata = {k: v for k, v in object_["metadata"].items() if k != "managedFields"}
    return {**object_, "metadata": metadata}


def status_view(object_: Object) -> StatusView:
    metadata = object_["metadata"]
    return StatusView(
        api_version=object_.get("apiVersion", ""),
        kind=object_.get("kind", ""),
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        generation=metadata.get("generation", 0),
        status=object_.get("status") or {},
    )
