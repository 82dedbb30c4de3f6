"""Garbage collection: dependents of deleted owners, content of deleted namespaces and CRDs.

The collector deletes objects through the store, like any other client. It looks at every object at
its start, and later only at those that change.

- When all owners of an object are gone, the collector deletes the object. When only some owners are
  gone, the collector removes the references to these owners.
- An owner that is deleted with propagation Foreground keeps the finalizer foregroundDeletion until
  the dependents that block the deletion are gone. An owner that is deleted with propagation Orphan
  keeps the finalizer orphan until no dependent refers to the owner.
- When a namespace or a CustomResourceDefinition is deleted, the collector first deletes the objects
  of this namespace or definition.
- The collector keeps only the newest Events.
"""

from collections.abc import Sequence

from edgeai.localcluster.controllers.controller import Controller
from edgeai.localcluster.objects import crds, strategy
from edgeai.localcluster.objects.resources import (
    CUSTOMRESOURCEDEFINITIONS,
    EVENTS,
    NAMESPACES,
    Object,
    Resource,
)
from edgeai.localcluster.objects.store import Change, Store

MAX_EVENTS = 5_000


class GarbageCollector(Controller[str]):
    """Deletes objects without their owner, namespace or CRD. Keys: uids to examine."""

    def __init__(self, store: Store, *, max_events: int = MAX_EVENTS) -> None:
        super().__init__(store, "garbage collector")
        self._max_events = max_events

    def _add_all(self) -> None:
        for resource in self._store.registry.all_stored():
            for object_ in self._store.list(resource).items:
                self._add_present(resource, object_)

    def _changed(self, change: Change) -> None:
        if change.type == "DELETED":
            self._add_removed(change)
        else:
            self._add_present(change.resource, change.object)

    def _add_present(self, resource: Resource, object_: Object) -> None:
        metadata = object_["metadata"]
        owners, deleting = metadata.get("ownerReferences"), "deletionTimestamp" in metadata
        if owners or deleting or resource is EVENTS:
            self._add(metadata["uid"])

    def _add_removed(self, change: Change) -> None:
        metadata = change.object["metadata"]
        self._add(metadata["uid"])  # the object's dependents must be examined
        for owner in metadata.get("ownerReferences") or []:
            self._add(owner["uid"])
        if namespace := self._terminating(NAMESPACES, metadata.get("namespace", "")):
            self._add(namespace["metadata"]["uid"])
        name = change.resource.group_resource
        if crd := self._terminating(
            CUSTOMRESOURCEDEFINITIONS, name if change.resource.custom else ""
        ):
            self._add(crd["metadata"]["uid"])

    def _terminating(self, resource: Resource, name: str) -> Object | None:
        holder = self._store.find(resource, "", name)
        return holder if holder and "deletionTimestamp" in holder["metadata"] else None

    async def _reconcile(self, uid: str) -> None:
        match = self._store.by_uid(uid)
        if match is None:
            for resource, dependent in self._store.dependents(uid):
                self._collect(resource, dependent)
            return
        resource, object_ = match
        if resource is EVENTS:
            self._trim_events()
        if object_["metadata"].get("ownerReferences"):
            self._collect(resource, object_)
        if "deletionTimestamp" in object_["metadata"]:
            self._process_finalizers(resource, object_)

    # Objects whose owners are gone

    def _collect(self, resource: Resource, object_: Object) -> None:
        """Delete the object if all its owners are gone. Else drop the references to gone owners."""
        metadata = object_["metadata"]
        references = metadata.get("ownerReferences") or []
        if not references or "deletionTimestamp" in metadata:
            return
        owners = {reference["uid"]: self._owner(reference, metadata) for reference in references}
        present = [reference for reference in references if owners[reference["uid"]]]
        if not present:
            self._delete(resource, object_, "Background")
        elif len(present) < len(references):
            metadata["ownerReferences"] = present
            self._store.update(resource, object_)
        for uid, owner in owners.items():
            # A foreground deletion of the owner must delete a new dependent, too.
            if owner and strategy.FOREGROUND in (owner["metadata"].get("finalizers") or []):
                self._add(uid)

    def _owner(self, reference: Object, dependent: Object) -> Object | None:
        """The owner if it exists in the dependent's namespace or is cluster-scoped; else None."""
        _, owner = self._store.by_uid(reference["uid"]) or (None, None)
        if owner and owner["metadata"].get("namespace", "") in ("", dependent.get("namespace", "")):
            return owner
        return None

    # Objects that are being deleted

    def _process_finalizers(self, resource: Resource, object_: Object) -> None:
        finalizers = object_["metadata"].get("finalizers") or []
        if resource is NAMESPACES:
            self._empty_namespace(object_)
        if crds.CLEANUP_FINALIZER in finalizers and resource is CUSTOMRESOURCEDEFINITIONS:
            self._empty_crd(object_)
        elif strategy.ORPHAN in finalizers:
            self._orphan_dependents(resource, object_)
        elif strategy.FOREGROUND in finalizers:
            self._delete_dependents(resource, object_)

    def _orphan_dependents(self, resource: Resource, owner: Object) -> None:
        uid = owner["metadata"]["uid"]
        for dependent_resource, dependent in self._store.dependents(uid):
            metadata = dependent["metadata"]
            owners = [other for other in metadata["ownerReferences"] if other["uid"] != uid]
            metadata["ownerReferences"] = owners
            self._store.update(dependent_resource, dependent)
        self._remove_finalizer(resource, owner, strategy.ORPHAN)

    def _delete_dependents(self, resource: Resource, owner: Object) -> None:
        uid = owner["metadata"]["uid"]
        for dependent_resource, dependent in self._store.dependents(uid):
            if "deletionTimestamp" not in dependent["metadata"]:
                self._delete(dependent_resource, dependent, "Foreground")
        if not any(_blocks(dependent, uid) for _, dependent in self._store.dependents(uid)):
            self._remove_finalizer(resource, owner, strategy.FOREGROUND)

    def _empty_namespace(self, namespace: Object) -> None:
        name = namespace["metadata"]["name"]
        resources = [r for r in self._store.registry.all_stored() if r.namespaced]
        if self._delete_all(resources, namespace=name):
            namespace["spec"] = {}
            self._store.update(NAMESPACES, namespace, subresource=strategy.FINALIZE)

    def _empty_crd(self, crd: Object) -> None:
        resource = self._store.registry.stored(crd["metadata"]["name"])
        if self._delete_all([resource] if resource else []):
            self._remove_finalizer(CUSTOMRESOURCEDEFINITIONS, crd, crds.CLEANUP_FINALIZER)

    def _delete_all(self, resources: Sequence[Resource], *, namespace: str = "") -> bool:
        """Delete all objects of some resources. Returns: whether no object is left"""
        is_empty = True
        for resource in resources:
            for object_ in self._store.list(resource, namespace=namespace).items:
                is_empty = False
                if "deletionTimestamp" not in object_["metadata"]:
                    self._delete(resource, object_, "Background")
        return is_empty

    def _remove_finalizer(self, resource: Resource, object_: Object, name: str) -> None:
        present = object_["metadata"].get("finalizers") or []
        object_["metadata"]["finalizers"] = [other for other in present if other != name]
        self._store.update(resource, object_)

    def _delete(self, resource: Resource, object_: Object, propagation: str) -> None:
        metadata = object_["metadata"]
        self._store.delete(
            resource,
            metadata.get("namespace", ""),
            metadata["name"],
            propagation=propagation,
            uid=metadata["uid"],
        )

    def _trim_events(self) -> None:
        """Delete the oldest Events beyond the limit. The 10 % above it make sorting rare."""
        if self._store.count(EVENTS) <= self._max_events * 1.1:
            return
        events = self._store.list(EVENTS).items
        events.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
        for event in events[: len(events) - self._max_events]:
            self._delete(EVENTS, event, "Background")


def _blocks(dependent: Object, owner_uid: str) -> bool:
    owners = dependent["metadata"].get("ownerReferences") or []
    return any(owner["uid"] == owner_uid and owner.get("blockOwnerDeletion") for owner in owners)
