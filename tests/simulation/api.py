"""A model of the Kubernetes API: objects with versions, conflicts, watches, garbage collection.

The model answers HTTP requests of the shipped client. It has what edgeai relies on: optimistic
concurrency by resourceVersion, uids, a status subresource for custom resources, merge patches,
lists and watches with bookmarks and 410, preconditions of deletions, collection by owner
references. It is no judge of manifests: tests/conformance compares real servers.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from edgeai.kube.patches import merged
from edgeai.localcluster.objects.selectors import parse_requirements
from edgeai.times import rfc3339
from tests.simulation.world import VirtualTime

Object = dict[str, Any]
Labels = dict[str, str]

_PATH: Final = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/[^/]))?/(?P<plural>[^/]+)"
    r"(?:/(?P<name>[^/]+)(?:/(?P<sub>[^/]+))?)?$"
)
_KEPT_EVENTS: Final = 400


class Key(NamedTuple):
    resource: str
    """Plural and group: "deployments.apps"."""
    namespace: str
    name: str


class Answer(NamedTuple):
    status: int
    body: bytes
    retry_after: str = ""


class Change(NamedTuple):
    version: int
    type: str
    key: Key
    labels: Labels
    before: Labels
    object: bytes


class Watch:
    """One watch. `deliver` takes a line, or None at the end.

    Args: is_wanted: whether the selector takes an object with these labels
    """

    def __init__(self, resource: str, namespace: str, is_wanted: Callable[[Labels], bool]) -> None:
        self.resource, self.namespace, self._is_wanted = resource, namespace, is_wanted
        self.is_open = True
        self.deliver: Callable[[bytes | None], None] = lambda _line: None

    def tell(self, change: Change) -> None:
        if not self.is_open or change.key.resource != self.resource:
            return
        if self.namespace not in ("", change.key.namespace):
            return
        is_in, was_in = self._is_wanted(change.labels), self._is_wanted(change.before)
        if not is_in and not was_in:
            return
        type_ = change.type
        if type_ == "MODIFIED" and is_in != was_in:
            type_ = "ADDED" if is_in else "DELETED"
        self.deliver(b'{"type":"%s","object":%s}' % (type_.encode(), change.object))

    def end(self) -> None:
        if self.is_open:
            self.is_open = False
            self.deliver(None)


class Api:
    """
    Attributes:
        on_write: called with (what, key, old, new) after each change of an object
    """

    def __init__(self, world: VirtualTime) -> None:
        self.world = world
        self.version = 1000
        self.client = ""  # whose request is carried out now
        self.objects: dict[Key, Object] = {}
        self._raw: dict[Key, bytes] = {}
        self._changes: list[Change] = []
        self._forgotten = 0  # changes up to this version are no longer known
        self._watches: list[Watch] = []
        self.writes = 0
        self.pod_ends_s = 0.0  # at most, after a client has deleted a pod that runs
        self.on_write: Callable[[str, Key, Object | None, Object | None], None] = (
            lambda _what, _key, _old, _new: None
        )

    # ---- requests -------------------------------------------------------------------------------

    def handle(self, method: str, path: str, query: dict[str, str], body: Any) -> Answer | Watch:
        match = _PATH.match(path)
        if match is None:
            return Answer(200, b"{}")  # /version
        group = match["group"] or ""
        resource = f"{match['plural']}.{group}" if group else match["plural"]
        key = Key(resource, match["namespace"] or "", match["name"] or "")
        if method == "POST":
            return self._create(Key(resource, key.namespace, body["metadata"]["name"]), body)
        if not key.name:
            return self._watch(key, query) if query.get("watch") else self._list(key, query)
        return self._one(method, key, match["sub"] or "", body)

    def _one(self, method: str, key: Key, sub: str, body: Any) -> Answer:
        """A request about one object that exists already."""
        known = self.objects.get(key)
        if known is None:
            return failure(404, "NotFound", f"{key.name} not found", key)
        if method == "GET":
            return Answer(200, self._raw[key])
        if method == "DELETE":
            return self._delete(key, known, (body or {}).get("preconditions") or {})
        return self._change(key, known, body, is_patch=method == "PATCH", sub=sub)

    def _create(self, key: Key, body: Object) -> Answer:
        if key in self.objects:
            return failure(409, "AlreadyExists", f"{key.name} already exists", key)
        object_ = copied(body)
        object_["metadata"] |= {
            "uid": self.world.new_id("uid"),
            "creationTimestamp": rfc3339(self.world.utcnow()),
            "generation": 1,
        }
        if is_custom(key):
            object_.pop("status", None)
        self._put("ADDED", key, object_)
        return Answer(201, self._raw[key])

    def _change(self, key: Key, known: Object, body: Object, *, is_patch: bool, sub: str) -> Answer:
        metadata = body.get("metadata") or {}
        for field in ("resourceVersion", "uid"):
            if metadata.get(field, known["metadata"][field]) != known["metadata"][field]:
                return failure(409, "Conflict", f"{key.name} has another {field}", key)
        new = copied(known)
        wanted = {k: v for k, v in body.items() if k not in ("apiVersion", "kind", "metadata")}
        if sub == "status":
            wanted = {"status": wanted.get("status")}
        elif is_custom(key):
            wanted.pop("status", None)
        for field, value in wanted.items():
            new[field] = copied(
                merged(new.get(field) or {}, value)
                if is_patch and isinstance(value, dict)
                else value
            )
        if not sub:
            for field in ("labels", "annotations", "ownerReferences"):
                if field in metadata:
                    value = metadata[field]
                    is_map = is_patch and isinstance(value, dict)
                    old = new["metadata"].get(field) or {}
                    new["metadata"][field] = copied(merged(old, value) if is_map else value)
            if new.get("spec") != known.get("spec"):
                new["metadata"]["generation"] += 1
        if new != known:
            self._put("MODIFIED", key, new)
        return Answer(200, self._raw[key])

    def _delete(self, key: Key, known: Object, conditions: Object) -> Answer:
        if conditions.get("uid", known["metadata"]["uid"]) != known["metadata"]["uid"]:
            return failure(409, "Conflict", f"{key.name} has another uid", key)
        self.evict(key)
        # Of an object that is still there, the answer has its present state.
        return Answer(200, self._raw.get(key, b'{"kind":"Status","status":"Success"}'))

    def _list(self, key: Key, query: dict[str, str]) -> Answer:
        is_wanted = selector(query.get("labelSelector", ""))
        items = [
            self._raw[each]
            for each, object_ in sorted(self.objects.items())
            if each.resource == key.resource
            and key.namespace in ("", each.namespace)
            and is_wanted(labels_of(object_))
        ]
        head = b'{"metadata":{"resourceVersion":"%d"},"items":[' % self.version
        return Answer(200, head + b",".join(items) + b"]}")

    def _watch(self, key: Key, query: dict[str, str]) -> Answer | Watch:
        since = int(query["resourceVersion"])
        if since < self._forgotten:
            return failure(410, "Expired", "too old resource version", key)
        watch = Watch(key.resource, key.namespace, selector(query.get("labelSelector", "")))
        self._watches = [each for each in self._watches if each.is_open]
        self._watches.append(watch)
        self.world.after(float(query["timeoutSeconds"]), lambda: self._end(watch))
        return watch

    def catch_up(self, watch: Watch, since: int) -> None:
        """Tell a new watch what happened between its list and now."""
        for change in self._changes:
            if change.version > since:
                watch.tell(change)

    def _end(self, watch: Watch) -> None:
        if watch.is_open:
            bookmark = b'{"metadata":{"resourceVersion":"%d"}}' % self.version
            watch.deliver(b'{"type":"BOOKMARK","object":%s}' % bookmark)
            watch.end()

    # ---- changes from outside -------------------------------------------------------------------

    def evict(self, key: Key) -> None:
        """As a client deletes it: the containers of a pod have a while for their end."""
        known = self.objects[key]
        is_running = (known.get("status") or {}).get("phase") == "Running"
        if key.resource != "pods" or not is_running or not self.pod_ends_s:
            self.remove(key)
        elif "deletionTimestamp" not in known["metadata"]:
            going = copied(known)
            going["metadata"]["deletionTimestamp"] = rfc3339(self.world.utcnow())
            self._put("MODIFIED", key, going)
            uid, after_s = known["metadata"]["uid"], self.world.random.random() * self.pod_ends_s
            self.world.after(after_s / 3, lambda: self._end_containers(key, uid))
            self.world.after(after_s, lambda: self._remove_pod(key, uid))

    def _end_containers(self, key: Key, uid: str) -> None:
        """They end with the signal, most of them as a failure."""
        known = self.objects.get(key)
        if known and known["metadata"]["uid"] == uid and known["status"]["phase"] == "Running":
            ended = copied(known)
            ended["status"]["phase"] = "Failed" if self.world.chance(0.8) else "Succeeded"
            self._put("MODIFIED", key, ended)

    def _remove_pod(self, key: Key, uid: str) -> None:
        known = self.objects.get(key)
        if known and known["metadata"]["uid"] == uid:
            self.remove(key)

    def remove(self, key: Key) -> None:
        old = self.objects.pop(key)
        del self._raw[key]
        self.version += 1
        gone = copied(old)
        gone["metadata"]["resourceVersion"] = str(self.version)
        self._tell("DELETED", key, old, gone)
        self.world.after(self.world.delay_s(0.5), lambda: self._collect(old["metadata"]["uid"]))

    def _collect(self, uid: str) -> None:
        """Delete the objects whose owner has this uid, as the garbage collector does."""
        for key, object_ in list(self.objects.items()):
            owners = object_["metadata"].get("ownerReferences") or ()
            if key in self.objects and any(owner["uid"] == uid for owner in owners):
                self.remove(key)

    def restore(self, key: Key, object_: Object) -> None:
        """Put an object there that keeps its uid and its generation."""
        self._put("ADDED", key, object_)

    def forget(self, key: Key) -> None:
        """As if the object had never been there."""
        del self.objects[key], self._raw[key]

    def forget_history(self) -> None:
        """Compact: a watch from an earlier version gets 410."""
        self._forgotten = self.version
        self._changes.clear()

    def break_watches(self) -> None:
        for watch in self._watches:
            watch.end()
        self._watches.clear()

    def of(self, resource: str) -> Iterator[tuple[Key, Object]]:
        return ((key, each) for key, each in self.objects.items() if key.resource == resource)

    def _put(self, what: str, key: Key, object_: Object) -> None:
        old = self.objects.get(key)
        self.version += 1
        object_["metadata"]["resourceVersion"] = str(self.version)
        self.objects[key] = object_
        self._raw[key] = msgspec.json.encode(object_)
        self._tell(what, key, old, object_)
        owners = [each["uid"] for each in object_["metadata"].get("ownerReferences") or ()]
        if what == "ADDED" and owners:
            self.world.after(self.world.delay_s(0.5), lambda: self._collect_orphan(key, owners))

    def _collect_orphan(self, key: Key, owners: list[str]) -> None:
        """A child that came after the end of its owner goes, too."""
        living = {each["metadata"]["uid"] for each in self.objects.values()}
        if key in self.objects and not living.intersection(owners):
            self.remove(key)

    def _tell(self, what: str, key: Key, old: Object | None, new: Object) -> None:
        self.writes += 1
        before = labels_of(old) if old is not None else {}
        raw = self._raw.get(key) or msgspec.json.encode(new)
        if what == "DELETED":
            raw = msgspec.json.encode(new)
        labels = labels_of(new)
        change = Change(self.version, what, key, labels, before or labels, raw)
        self._changes.append(change)
        if len(self._changes) > _KEPT_EVENTS:
            self._forgotten = self._changes.pop(0).version
        for watch in self._watches:
            watch.tell(change)
        self.on_write(what, key, old, None if what == "DELETED" else new)


def copied(value: Any) -> Any:
    """As copy.deepcopy of JSON, in a fraction of the time."""
    return msgspec.to_builtins(value)


def is_custom(key: Key) -> bool:
    group = key.resource.partition(".")[2]
    return "." in group and not group.endswith("k8s.io")


def labels_of(object_: Object) -> Labels:
    return object_["metadata"].get("labels") or {}


def selector(text: str) -> Callable[[Labels], bool]:
    requirements = parse_requirements("label", text)
    return lambda labels: all(each.matches(labels) for each in requirements)


def failure(code: int, reason: str, message: str, key: Key) -> Answer:
    details = {"name": key.name, "kind": key.resource.partition(".")[0]}
    status = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return Answer(code, msgspec.json.encode({**status, "details": details}))
