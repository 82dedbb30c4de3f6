"""Garbage collection: dependents of owners that are gone, and what namespaces and CRDs hold.

One task follows the store's changes and deletes through the store, like any other client. It
never polls: after a look at everything when it starts, it examines only what a change concerns.

- An object all of whose owners are gone is deleted; references to some that are gone are dropped.
- An owner deleted in the foreground waits (finalizer foregroundDeletion) until dependents that
  block it are gone. One deleted as Orphan (finalizer orphan) is first taken out of its dependents.
- A namespace or CustomResourceDefinition that is being deleted is emptied, then let go.
- Of Events only the newest are kept.
"""

import asyncio

from common.logs import get_logger
from localcluster.objects import crds, errors, strategy
from localcluster.objects.resources import (
    CUSTOMRESOURCEDEFINITIONS,
    EVENTS,
    NAMESPACES,
    Object,
    Resource,
)
from localcluster.objects.store import Change, Store

log = get_logger(__name__)

MAX_EVENTS = 5_000
RETRY_S = 1.0


class Collector:
    """Runs until cancelled: `await Collector(store).run()`."""

    def __init__(self, store: Store, *, max_events: int = MAX_EVENTS) -> None:
        self._store = store
        self._max_events = max_events
        self._pending: dict[str, None] = {}  # uids to examine, in order, each once
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Follow the store. A write that fails, on a full disk for instance, is tried again."""
        stop_listening = self._store.listen(self.note)
        try:
            self.note_everything()
            while True:
                await self._wake.wait()
                self._wake.clear()
                if not self.settle():
                    await asyncio.sleep(RETRY_S)
                    self._wake.set()
        finally:
            stop_listening()

    def settle(self) -> bool:
        """Examine all that is pending, and what that makes pending.

        Returns: False when a write failed; what remains is still pending.
        """
        while self._pending:
            uid = next(iter(self._pending))
            del self._pending[uid]
            try:
                self._examine(uid)
            except errors.APIError as error:
                log.warning("garbage collection failed", uid=uid, reason=error.message)
                self._pending[uid] = None
                return False
        return True

    def note_everything(self) -> None:
        for resource in self._store.registry.all_stored():
            for object_ in self._store.list(resource).items:
                self._pend(object_["metadata"]["uid"])

    def note(self, change: Change) -> None:
        """Remember whom a change may concern."""
        metadata = change.object["metadata"]
        owned, deleting = metadata.get("ownerReferences"), "deletionTimestamp" in metadata
        if change.type == "DELETED":
            self._note_removal(change)
        elif owned or deleting or change.resource is EVENTS:
            self._pend(metadata["uid"])

    def _note_removal(self, change: Change) -> None:
        metadata = change.object["metadata"]
        self._pend(metadata["uid"])  # its dependents
        for owner in metadata.get("ownerReferences") or []:
            self._pend(owner["uid"])
        if namespace := self._holder(NAMESPACES, metadata.get("namespace", "")):
            self._pend(namespace["metadata"]["uid"])
        name = change.resource.group_resource
        if crd := self._holder(CUSTOMRESOURCEDEFINITIONS, name if change.resource.custom else ""):
            self._pend(crd["metadata"]["uid"])

    def _holder(self, resource: Resource, name: str) -> Object | None:
        """The namespace or CRD of that name, if it is being deleted."""
        try:
            holder = self._store.get(resource, "", name)
        except errors.NotFound:
            return None
        return holder if "deletionTimestamp" in holder["metadata"] else None

    def _pend(self, uid: str) -> None:
        self._pending[uid] = None
        self._wake.set()

    def _examine(self, uid: str) -> None:
        found = self._store.by_uid(uid)
        if found is None:
            for resource, dependent in self._store.dependents(uid):
                self._collect(resource, dependent)
            return
        resource, object_ = found
        if resource is EVENTS:
            self._trim_events()
        if object_["metadata"].get("ownerReferences"):
            self._collect(resource, object_)
        if "deletionTimestamp" in object_["metadata"]:
            self._let_go(resource, object_)

    # Dependents

    def _collect(self, resource: Resource, object_: Object) -> None:
        """Delete an object that has no owner left; forget owners that are gone."""
        metadata = object_["metadata"]
        owners = metadata.get("ownerReferences") or []
        present = [owner for owner in owners if self._exists(owner, metadata)]
        if not owners or "deletionTimestamp" in metadata:
            return
        if not present:
            self._delete(resource, object_, "Background")
        elif len(present) < len(owners):
            metadata["ownerReferences"] = present
            self._store.update(resource, object_)
        for owner in present:
            self._pend_foreground_owner(owner["uid"])

    def _exists(self, owner: Object, dependent: Object) -> bool:
        """An owner lives in the dependent's namespace or in none."""
        found = self._store.by_uid(owner["uid"])
        if found is None:
            return False
        namespace = found[1]["metadata"].get("namespace", "")
        return namespace in ("", dependent.get("namespace", ""))

    def _pend_foreground_owner(self, uid: str) -> None:
        """A dependent that was made after its owner's deletion began is deleted with the rest."""
        found = self._store.by_uid(uid)
        if found and strategy.FOREGROUND in (found[1]["metadata"].get("finalizers") or []):
            self._pend(uid)

    # Objects that are being deleted

    def _let_go(self, resource: Resource, object_: Object) -> None:
        """Do what the finalizers that are ours stand for."""
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
        left = [
            (resource, object_)
            for resource in self._store.registry.all_stored()
            if resource.namespaced
            for object_ in self._store.list(resource, namespace=name).items
        ]
        for resource, object_ in left:
            if "deletionTimestamp" not in object_["metadata"]:
                self._delete(resource, object_, "Background")
        if not left:
            namespace["spec"] = {}
            self._store.update(NAMESPACES, namespace, subresource=strategy.FINALIZE)

    def _empty_crd(self, crd: Object) -> None:
        resource = self._store.registry.stored(crd["metadata"]["name"])
        left = self._store.list(resource).items if resource else []
        for object_ in left:
            if resource and "deletionTimestamp" not in object_["metadata"]:
                self._delete(resource, object_, "Background")
        if not left:
            self._remove_finalizer(CUSTOMRESOURCEDEFINITIONS, crd, crds.CLEANUP_FINALIZER)

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
        """Keep the newest; look only when a tenth more than that has gathered."""
        if self._store.count(EVENTS) <= self._max_events * 1.1:
            return
        events = self._store.list(EVENTS).items
        events.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
        for event in events[: len(events) - self._max_events]:
            self._delete(EVENTS, event, "Background")


def _blocks(dependent: Object, owner_uid: str) -> bool:
    owners = dependent["metadata"].get("ownerReferences") or []
    return any(owner["uid"] == owner_uid and owner.get("blockOwnerDeletion") for owner in owners)
