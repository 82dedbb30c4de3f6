"""What pods/log asks of whoever has the logs of containers.

The kubelet implements `LogSource` and registers it with the server; the server finds the pod and
the container first, so a source is asked only about containers that the pod's spec names.
"""

from collections.abc import AsyncIterator
from typing import Protocol

import msgspec

from localcluster.objects import errors
from localcluster.objects.resources import Object


class LogQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which lines of which container."""

    namespace: str
    pod: str
    uid: str
    """Of the pod: a new pod of the same name has other logs."""
    container: str
    follow: bool = False
    """Go on until the container has ended for good, or the pod is gone."""
    previous: bool = False
    """Of the run before the last restart."""
    tail_lines: int | None = None
    since_s: float | None = None
    """Only lines that are not older, in seconds."""
    timestamps: bool = False
    """Begin each line with its time, RFC 3339."""


class LogSource(Protocol):
    """Yields pieces of text, not necessarily whole lines.

    May raise errors.NotFound or errors.BadRequest (a container that has not started) before the
    first piece. Is closed early when the client goes away.
    """

    def __call__(self, query: LogQuery) -> AsyncIterator[bytes]: ...


def container_name(pod: Object, asked: str) -> str:
    """The container whose logs are meant.

    Raises: errors.BadRequest when the pod has several and none was named, or not that one
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
