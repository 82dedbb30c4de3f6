"""Writes the Events that a user reads in `kubectl describe`.

If a component writes the same Event about the same object again, the count of the existing Event
grows. An Event that cannot be written is logged and dropped.
"""

import hashlib

from common.logs import get_logger
from edgeai.localcluster.objects import errors
from edgeai.localcluster.objects.resources import EVENTS, Object
from edgeai.localcluster.objects.store import Store
from edgeai.times import Clock, rfc3339, utc_now

log = get_logger(__name__)

_NAMES = ("name", "uid", "namespace")


class EventRecorder:
    """Writes the Events of one component.

    Args:
        component: the source of the Events, e.g. "kubelet"
        host: name of the component's node; "" for a component without a node
    """

    def __init__(
        self, store: Store, *, component: str, host: str = "", now: Clock = utc_now
    ) -> None:
        self._store = store
        self._source = {"component": component} | ({"host": host} if host else {})
        self._now = now

    def normal(self, about: Object, reason: str, message: str) -> None:
        self._record("Normal", about, reason, message)

    def warning(self, about: Object, reason: str, message: str) -> None:
        self._record("Warning", about, reason, message)

    def _record(self, type_: str, about: Object, reason: str, message: str) -> None:
        metadata = about["metadata"]
        namespace = metadata.get("namespace") or "default"
        content = f"{metadata['uid']}|{self._source}|{type_}|{reason}|{message}"
        name = f"{metadata['name'][:200]}.{hashlib.sha256(content.encode()).hexdigest()[:16]}"
        now = rfc3339(self._now())
        reference = {"apiVersion": about["apiVersion"], "kind": about["kind"]}
        reference |= {name: metadata[name] for name in _NAMES if metadata.get(name)}
        event = {
            "metadata": {"name": name, "namespace": namespace},
            "type": type_,
            "reason": reason,
            "message": message,
            "source": self._source,
            "reportingComponent": self._source["component"],
            "involvedObject": reference,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            if present := self._store.find(EVENTS, namespace, name):
                again = {"lastTimestamp": now, "count": present["count"] + 1}
                self._store.update(EVENTS, present | again)
            else:
                self._store.create(EVENTS, event)
        except errors.APIError as error:
            log.warning("event not written", reason=reason, error=error.message)
