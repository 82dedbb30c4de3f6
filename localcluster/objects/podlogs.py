"""The interface between the API's pods/log and the kubelet, which has the logs.

The kubelet implements `LogSource`; cluster registers it with the server. The server looks up pod
and container first, so a source is asked only about containers of the pod's spec.
"""

from collections.abc import AsyncIterator
from typing import Protocol

import msgspec

from localcluster.objects import errors
from localcluster.objects.resources import Object


class LogQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A container, and which lines of its log."""

    namespace: str
    pod: str
    uid: str
    """Of the pod; a new pod of the same name has other logs."""
    container: str
    follow: bool = False
    """Stream new lines until the run ends."""
    previous: bool = False
    """The log of the run before the last restart."""
    tail_lines: int | None = None
    since_s: float | None = None
    """Only lines of the last `since_s` seconds."""
    timestamps: bool = False
    """Begin each line with its time, RFC 3339."""


class LogSource(Protocol):
    """Yields pieces of text, not necessarily whole lines.

    Before its first piece it may raise errors.NotFound, or errors.BadRequest for a container that
    has not started. The server closes it early when the client disconnects.
    """

    def __call__(self, query: LogQuery) -> AsyncIterator[bytes]: ...


def container_name(pod: Object, asked: str) -> str:
    """The container that a request means.

    Raises: errors.BadRequest for an unknown name, or none where the pod has several containers
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
