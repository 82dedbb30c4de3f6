"""Requests about single objects whose answers enter the stores at once.

Called by apply, owners and status. The watch tells the same later, so nobody has to wait for the
watch: what was written is there for the next plan, and what the API says is gone is gone.
"""

import contextlib
from collections.abc import Mapping
from typing import Any, Self

from common.errors import EdgeAIError
from common.ids import Uid
from globalmanager.cache.store import uid_of
from globalmanager.contract import Object, ObjectRef, ResourceType, ref_of
from globalmanager.engine.observe import StoreOf
from globalmanager.kube.client import Check, KubeClient
from globalmanager.kube.errors import Conflict, NotFound


class Live:
    """Every method raises ApiError and Overloaded, as the client's.

    Args:
        store_of: the store of a type that learns what is answered
    """

    def __init__(self, client: KubeClient, store_of: StoreOf) -> None:
        self._client = client
        self._store_of = store_of

    def through(self, client: KubeClient) -> Self:
        """The same stores, by another client."""
        return type(self)(client, self._store_of)

    async def get(self, ref: ObjectRef, *, uid: str = "") -> Object:
        """
        Args:
            uid: of the object that is meant; "": whichever has the name

        Raises: NotFound when no object has the name, or one with another uid
        """
        store = self._store_of(ref.type)
        known = store.get(ref)
        expected = uid or (uid_of(known) if known is not None else "")  # before asking
        try:
            object_ = await self._client.get(ref)
        except NotFound as error:
            if expected and _is_absence(error, ref):
                store.observe_gone(ref, expected)
            raise
        store.observe(object_)
        if uid and uid_of(object_) != uid:
            store.observe_gone(ref, uid)
            problem = f"uid {uid} is gone, the name was taken by {uid_of(object_)}"
            raise NotFound("get", str(ref), code=404, message=problem)
        return object_

    async def create(self, type_: ResourceType, object_: Object, *, check: Check) -> Object:
        created = await self._client.create(type_, object_, check=check)
        self._store_of(type_).observe(created)
        return created

    async def replace(self, type_: ResourceType, object_: Object) -> Object:
        ref = ref_of(type_, object_)
        try:
            replaced = await self._client.replace(type_, object_)
        except (NotFound, Conflict) as error:
            await self._learn_why(error, ref, uid_of(object_))
            raise
        self._store_of(type_).observe(replaced)
        return replaced

    async def patch(self, ref: ObjectRef, patch: Mapping[str, Any]) -> Object:
        """Merge patch of the object, but for its status."""
        patched = await self._client.merge_patch(ref, patch)
        self._store_of(ref.type).observe(patched)
        return patched

    async def patch_status(self, ref: ObjectRef, patch: Mapping[str, Any]) -> Object:
        """Raises: NotFound also when the type has no status subresource, so `get` must follow"""
        patched = await self._client.merge_patch(ref, patch, subresource="status")
        self._store_of(ref.type).observe(patched)
        return patched

    async def delete(self, ref: ObjectRef, uid: Uid) -> bool:
        """Delete, only if it is the object of that uid (else Conflict).

        Returns: whether there was one to delete
        """
        try:
            ending = await self._client.delete(ref, uid=uid)
        except NotFound as error:
            await self._learn_why(error, ref, uid)
            return False
        except Conflict as error:
            await self._learn_why(error, ref, uid)
            raise
        if ending is None:
            self._store_of(ref.type).observe_gone(ref, uid)
        else:  # it ends gracefully and is still there
            self._store_of(ref.type).observe(ending)
        return True

    async def _learn_why(self, error: NotFound | Conflict, ref: ObjectRef, uid: str) -> None:
        """A conflict does not tell whether the object changed or is another; a GET does."""
        if isinstance(error, Conflict):
            with contextlib.suppress(EdgeAIError):
                await self.get(ref, uid=uid)
        elif _is_absence(error, ref):
            self._store_of(ref.type).observe_gone(ref, uid)


def _is_absence(error: NotFound, ref: ObjectRef) -> bool:
    """Whether the object is not there; a server that does not know the type (yet) names no object.

    A server that has just started says so of every object of a custom resource.
    """
    about = error.about
    return about is not None and (about.name, about.kind) == (ref.name, ref.type.plural)
