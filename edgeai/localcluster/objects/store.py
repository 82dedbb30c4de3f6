"""The objects of the cluster: one SQLite file, versioned writes, watches.

The API server, the controllers and the kubelet call the store, always on the thread of the event
loop. Every method is synchronous and short. For each write, `strategy` computes the object to
store. The store gives this object a resource version, writes the object and tells the watchers.

Every returned object is a copy for the caller. A write is atomic, and the file has the write when
the method returns. With synchronous=NORMAL a crash loses no write; a power cut may.
"""

import base64
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import msgspec

from edgeai.localcluster.errors import StateError
from edgeai.localcluster.objects import crds, errors, strategy
from edgeai.localcluster.objects.database import Database, Row
from edgeai.localcluster.objects.history import Event, EventType, History, Record, Watch
from edgeai.localcluster.objects.pods import quota_excess
from edgeai.localcluster.objects.resources import (
    BUILTINS,
    CUSTOMRESOURCEDEFINITIONS,
    NAMESPACES,
    PODS,
    RESOURCEQUOTAS,
    Object,
    Resource,
)
from edgeai.localcluster.objects.resources import key as key_of
from edgeai.localcluster.objects.selectors import EVERYTHING, Selector, selectable
from edgeai.times import Clock, utc_now

INITIAL_NAMESPACES = ("default", "kube-system", "edgeai-system")


class Change(msgspec.Struct, frozen=True):
    """One committed change, for listeners.

    All listeners share the objects of a change, so a listener must not change an object.
    """

    type: EventType
    resource: Resource
    object: Object
    previous: Object | None


class ListPage(msgspec.Struct, frozen=True):
    """One page of a list. A watch from `resource_version` delivers all later changes."""

    items: list[Object]
    resource_version: int
    continue_token: str = ""
    """Token for the next page; "" on the last page."""
    remaining: int | None = None
    """Number of objects on later pages; None (not known) for a list with a selector."""


class Position(msgspec.Struct, frozen=True, array_like=True):
    """The end of a page: the resource version of the list, and the last object of the page."""

    resource_version: int
    namespace: str = ""
    name: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    def token(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode()

    @classmethod
    def parse(cls, token: str) -> Self:
        """The position that a continue token contains. Raises: errors.BadRequest"""
        try:
            return msgspec.json.decode(base64.urlsafe_b64decode(token), type=cls)
        except (ValueError, msgspec.DecodeError) as error:
            raise errors.BadRequest("continue token is not valid: list from the start") from error


class Registry:
    """The resources that the API serves now: built-in resources, and resources that CRDs define.

    Each store has one, and changes it with each write of a CustomResourceDefinition.
    """

    def __init__(self) -> None:
        self._by_version: dict[tuple[str, str, str], Resource] = {}
        self._storage_versions: dict[str, Resource] = {}
        for resource in BUILTINS:
            self._add(resource)

    def __iter__(self) -> Iterator[Resource]:
        return iter(tuple(self._by_version.values()))

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._by_version.get((group, version, plural))

    def stored(self, group_resource: str) -> Resource | None:
        """The storage version of the resource; None if the API does not serve the resource."""
        return self._storage_versions.get(group_resource)

    def all_stored(self) -> tuple[Resource, ...]:
        """All resources. Each resource occurs once, in its storage version."""
        return tuple(self._storage_versions.values())

    def define(self, crd: Object) -> None:
        """Serve the versions of a CRD. Stop serving the versions of its previous definition."""
        self.withdraw(crd)
        for resource, is_storage in crds.resources(crd):
            self._add(resource, is_storage=is_storage)

    def withdraw(self, crd: Object) -> None:
        name = crd["metadata"]["name"]
        self._storage_versions.pop(name, None)
        for key, resource in tuple(self._by_version.items()):
            if resource.group_resource == name:
                del self._by_version[key]

    def _add(self, resource: Resource, *, is_storage: bool = True) -> None:
        self._by_version[resource.group, resource.version, resource.plural] = resource
        if is_storage:
            self._storage_versions[resource.group_resource] = resource


class Store:
    """All objects of one cluster.

    Args:
        path: the SQLite file; its directory must exist
        now: UTC clock, for the times in objects
        history: number of changes that the store keeps for each resource; a watch can resume
            within these changes
        max_bytes: limit of the file's size; a write beyond this limit raises errors.OutOfSpace
    Raises: StateError when the store cannot use the file
    """

    def __init__(
        self,
        path: Path,
        *,
        now: Clock = utc_now,
        history: int = 10_000,
        max_bytes: int = 1 << 30,
    ) -> None:
        self._database = Database(path, max_bytes=max_bytes)
        self._now = now
        opened_at = self._version = self._database.resource_version()
        # Resource without its version -> its history.
        self._histories = defaultdict[str, History](lambda: History(history, opened_at))
        self._listeners: list[Callable[[Change], None]] = []
        self.registry = Registry()
        try:
            for row in self._database.rows(CUSTOMRESOURCEDEFINITIONS.group_resource):
                self.registry.define(_decode(row.body))
            for name in INITIAL_NAMESPACES:
                if self.find(NAMESPACES, "", name) is None:
                    self.create(NAMESPACES, {"metadata": {"name": name}})
        except errors.APIError as error:
            self._database.close()
            raise StateError(f"{path}: {error.message}") from error

    @property
    def resource_version(self) -> int:
        """The resource version of the latest change. It only grows, also after a restart."""
        return self._version

    def close(self) -> None:
        for watch in self.watches:
            watch.close()
        self._database.close()

    @property
    def watches(self) -> tuple[Watch, ...]:
        return tuple(watch for history in self._histories.values() for watch in history.watches)

    # Methods that read objects

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """Read one object. `namespace` is "" for a cluster-scoped object.

        Raises: errors.NotFound
        """
        object_ = self.find(resource, namespace, name)
        if object_ is None:
            raise errors.NotFound.named(resource, name)
        return object_

    def find(self, resource: Resource, namespace: str, name: str) -> Object | None:
        body = self._database.body(resource.group_resource, namespace, name)
        return None if body is None else _served(resource, _decode(body))

    def list(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        selector: Selector = EVERYTHING,
        limit: int = 0,
        continue_token: str = "",
    ) -> ListPage:
        """Read a page of objects, ordered by namespace and name.

        A later page shows the objects as they are when the page is read, but has the resource
        version of the first page. A watch from this version delivers every change since then.

        Args:
            namespace: "" means all namespaces
            limit: largest number of objects on the page; 0 means no limit
        Raises: errors.BadRequest for a bad token; errors.Gone for an expired token.
        """
        start = self._start(resource, continue_token)
        items: list[Object] = []
        rows = self._database.rows(resource.group_resource, namespace, after=start.key)
        last = start
        for row in rows:
            if limit and len(items) == limit:
                rest = self._database.count(resource.group_resource, namespace, after=last.key)
                remaining = None if selector else rest
                return ListPage(items, last.resource_version, last.token(), remaining)
            object_ = _served(resource, _decode(row.body))
            if not selector or selector.matches(selectable(resource, object_)):
                items.append(object_)
                last = Position(start.resource_version, row.namespace, row.name)
        return ListPage(items, start.resource_version)

    def count(self, resource: Resource) -> int:
        return self._database.count(resource.group_resource, "", after=("", ""))

    def dependents(self, uid: str) -> Iterator[tuple[Resource, Object]]:
        """The objects that have an ownerReference with this uid."""
        for row in self._database.dependents(uid):
            if resource := self.registry.stored(row.group_resource):
                yield resource, _decode(row.body)

    def by_uid(self, uid: str) -> tuple[Resource, Object] | None:
        row = self._database.by_uid(uid)
        resource = self.registry.stored(row.group_resource) if row else None
        return (resource, _decode(row.body)) if row and resource else None

    # Methods that write objects

    def create(self, resource: Resource, object_: Object, *, dry_run: bool = False) -> Object:
        """Create an object in the namespace that the object's metadata names.

        Raises: errors.AlreadyExists, errors.Invalid, errors.BadRequest; errors.NotFound or
            errors.Forbidden for a missing or terminating namespace, or by a ResourceQuota;
            errors.OutOfSpace
        """
        object_ = strategy.prepare_create(resource, object_, self._now())
        metadata = object_["metadata"]
        namespace = metadata.get("namespace", "")
        self._check_namespace(namespace)
        self._check_quota(resource, namespace, metadata["name"])
        if self.find(resource, namespace, metadata["name"]) is not None:
            raise errors.AlreadyExists(resource, metadata["name"])
        return self._commit(resource, object_, None, dry_run=dry_run)

    def update(
        self, resource: Resource, object_: Object, *, subresource: str = "", dry_run: bool = False
    ) -> Object:
        """Replace an object. With `subresource="status"` replace only the object's status.

        If the kind has a generation, the generation grows when a field outside metadata and status
        changes. A write that changes nothing keeps the resource version and makes no event. When an
        update removes the last finalizer of an object in deletion, the store deletes the object.

        Raises: errors.NotFound; errors.Conflict when the given object has another uid or
            resourceVersion than the stored object; errors.Invalid, errors.OutOfSpace
        """
        current = self.get(resource, *key_of(object_))
        updated = strategy.prepare_update(resource, current, object_, subresource, self._now())
        return self._commit(resource, updated, current, dry_run=dry_run)

    def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        propagation: str = "Background",
        uid: str = "",
        resource_version: str = "",
        grace_period_s: int | None = None,
        dry_run: bool = False,
    ) -> Object:
        """Delete an object. If it has finalizers or runs on a node, only mark it for deletion.

        The store marks a pod that is bound to a node and has not ended (deletionTimestamp,
        deletionGracePeriodSeconds). When the processes of the pod have ended, the kubelet deletes
        the pod with `grace_period_s=0`. `propagation` is Background, Foreground or Orphan. The
        garbage collector acts on the propagation.

        Returns: the object in its last state
        Raises: errors.NotFound; errors.Conflict for another uid or resource version
        """
        current = self.get(resource, namespace, name)
        strategy.check_preconditions(resource, current, uid, resource_version)
        object_ = strategy.prepare_delete(
            resource, current, propagation, grace_period_s, self._now()
        )
        return self._commit(resource, object_, current, dry_run=dry_run)

    # Methods that follow changes

    def watch(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        since: int | None = None,
        selector: Selector = EVERYTHING,
    ) -> Watch:
        """Watch the changes after the resource version `since`.

        Without `since`, the watch first delivers every existing object as ADDED.

        Raises: errors.Gone when not all changes since `since` are here, or it is in the future
        """
        history = self._histories[resource.group_resource]
        initial: list[Event] = []
        if since is None:
            page = self.list(resource, namespace=namespace, selector=selector)
            initial = [Event("ADDED", object_) for object_ in page.items]
            since = self._version
        else:
            self._check_future(since)
            history.check(since)
        return Watch(
            history,
            since,
            resource=resource,
            namespace=namespace,
            selector=selector,
            initial=initial,
            version=lambda: self._version,
        )

    def listen(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call `listener` after every commit, during the write. The listener must not write.

        Returns: a function that removes the listener
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # Parts of the methods above

    def _check_namespace(self, name: str) -> None:
        """Refuse a new object if its namespace does not exist or is being deleted."""
        if not name:
            return
        namespace = self.get(NAMESPACES, "", name)
        if namespace["metadata"].get("deletionTimestamp"):
            raise errors.Forbidden(
                f"unable to create new content in namespace {name} because it is being terminated"
            )

    def _check_quota(self, resource: Resource, namespace: str, name: str) -> None:
        """Refuse a pod beyond a ResourceQuota of its namespace."""
        if resource is not PODS:
            return
        if limits := self.list(RESOURCEQUOTAS, namespace=namespace).items:
            excess = quota_excess(limits, self.list(PODS, namespace=namespace).items)
            if excess:
                raise errors.Forbidden(f'pods "{name}" is forbidden: {excess}')

    def _start(self, resource: Resource, token: str) -> Position:
        """Where a page begins: after the last object of the previous page."""
        if not token:
            return Position(self._version)
        start = Position.parse(token)
        self._check_future(start.resource_version)
        self._histories[resource.group_resource].check(start.resource_version)
        return start

    def _check_future(self, resource_version: int) -> None:
        if resource_version > self._version:
            raise errors.Gone(
                f"resource version {resource_version} is later than the latest,"
                f" {self._version}: it is of another cluster; list again"
            )

    def _commit(
        self, resource: Resource, object_: Object, previous: Object | None, *, dry_run: bool
    ) -> Object:
        """Write one change. Then tell the watchers and the listeners."""
        type_: EventType = "ADDED" if previous is None else "MODIFIED"
        if strategy.is_released(resource, object_):
            type_ = "DELETED"
        elif object_ == previous:
            return _served(resource, object_)
        if dry_run:
            return object_
        version = self._version + 1
        object_["metadata"]["resourceVersion"] = str(version)
        storage = self.registry.stored(resource.group_resource) or resource
        body = msgspec.json.encode(_served(storage, object_))
        metadata = object_["metadata"]
        namespace = metadata.get("namespace", "")
        row = Row(resource.group_resource, namespace, metadata["name"], metadata["uid"], body)
        if type_ == "DELETED":
            self._database.remove(row, version)
        else:
            owners = metadata.get("ownerReferences") or []
            self._database.write(row, [owner["uid"] for owner in owners], version)
        self._version = version
        self._announce(Change(type_, storage, _served(storage, object_), previous), body)
        return _served(resource, _decode(body))

    def _announce(self, change: Change, body: bytes) -> None:
        resource = change.resource
        if resource is CUSTOMRESOURCEDEFINITIONS:
            if change.type == "DELETED":
                self.registry.withdraw(change.object)
            else:
                self.registry.define(change.object)
        before = change.previous
        record = Record(
            change.type,
            self._version,
            change.object["metadata"].get("namespace", ""),
            body,
            selectable(resource, change.object),
            None if before is None else selectable(resource, before),
        )
        self._histories[resource.group_resource].append(record)
        for listener in tuple(self._listeners):
            listener(change)


def _served(resource: Resource, object_: Object) -> Object:
    """The object in the version of `resource`. Two versions differ only in apiVersion."""
    if object_.get("apiVersion") == resource.group_version:
        return object_
    return {**object_, "apiVersion": resource.group_version}


def _decode(body: bytes) -> Object:
    object_: Object = msgspec.json.decode(body)
    return object_
