"""The interface between pods/log of the API and the kubelet, which has the logs.

The kubelet implements `LogSource`. `cluster` gives the log source to the API server. The server
checks the pod and the container first. So the server asks a log source only for containers of the
pod's spec.
"""

from collections.abc import AsyncIterator
from typing import Protocol

import msgspec

from localcluster.objects import errors
from localcluster.objects.resources import Object


class LogQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Names a container, and the lines that a client wants of the container's log."""

    namespace: str
    pod: str
    uid: str
    """uid of the pod. A new pod of the same name has other logs."""
    container: str
    follow: bool = False
    """Stream new lines until the run ends."""
    previous: bool = False
    """Read the log of the run before the last restart."""
    tail_lines: int | None = None
    since_s: float | None = None
    """Yield only lines of the last `since_s` seconds."""
    timestamps: bool = False
    """Begin each line with its time (RFC 3339)."""


class LogSource(Protocol):
    """Yields the text of a log. A piece of text may end in the middle of a line.

    Before the first piece, the source may raise errors.NotFound, or errors.BadRequest for a
    container that has not started. The server closes the iterator when the client disconnects.
    """

    def __call__(self, query: LogQuery) -> AsyncIterator[bytes]: ...


def container_name(pod: Object, asked: str) -> str:
    """The name of the container that a request for a log means.

    Args:
        asked: name in the request; "" means the only container of the pod
    Raises: errors.BadRequest for an unknown name, and for "" if the pod has several containers
    """
    spec, name = pod["spec"], pod["metadata"]["name"]
    containers = [container["name"] for container in spec["containers"]]
    known = containers + [container["name"] for container in spec.get("initContainers") or []]
    if not asked and len(containers) == 1:
        return str(containers[0])
    if not asked:
        raise errors.BadRequest(
            f"a container name must be specified for pod {name}, choose one of: {containers}"
        )
    if asked not in known:
        raise errors.BadRequest(f"container {asked} is not valid for pod {name}, it has: {known}")
    return asked
