"""Writes .status, for the reconciler and for edge reports: only what differs, only to one uid.

Both write disjoint subtrees by merge patch, so neither reads, changes and writes back. The API
server ignores metadata.uid in a patch of a custom resource's /status, so the precondition is the
resourceVersion of an object that is known to have the uid. Called by apply and, through app, by
the edge server.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final
from weakref import WeakValueDictionary

from common.ids import Uid
from globalmanager.engine.observe import StoreOf
from globalmanager.engine.patch import diff
from globalmanager.engine.store import uid_of
from globalmanager.kube.client import KubeClient
from globalmanager.kube.errors import Conflict, NotFound
from globalmanager.model import Object, ObjectRef

_ATTEMPTS: Final = 4


class StatusWriter:
    """One writer per object at a time; the answer goes into the store."""

    def __init__(self, client: KubeClient, store_of: StoreOf) -> None:
        self._client = client
        self._store_of = store_of
        self._locks: WeakValueDictionary[ObjectRef, asyncio.Lock] = WeakValueDictionary()

    def through(self, client: KubeClient) -> "StatusWriter":
        """Another one that writes by `client`, but is the same writer of an object."""
        other = StatusWriter(client, self._store_of)
        other._locks = self._locks
        return other

    async def write(self, ref: ObjectRef, uid: Uid, patch: Mapping[str, Any]) -> None:
        """Merge `patch` into the .status of the object that has `uid`; nothing new, no request.

        Raises:
            NotFound: the object is gone, or its name was taken by another
            Conflict: .status itself was changed by someone else; the store has the new one, so
                compute the patch again
            ApiError, Overloaded: as of any request; Unavailable ones may be tried again
        """
        lock = self._locks.setdefault(ref, asyncio.Lock())
        async with lock:
            await self._write(ref, uid, patch)

    async def _write(self, ref: ObjectRef, uid: Uid, patch: Mapping[str, Any]) -> None:
        object_ = self._store_of(ref.type).get(ref)
        if object_ is None or uid_of(object_) != uid:
            object_ = await self._fresh(ref, uid)
        for _ in range(_ATTEMPTS):
            needed = diff(_status_of(object_), patch)
            if needed is None:
                return
            try:
                await self._send(ref, object_, needed)
            except Conflict:
                fresh = await self._fresh(ref, uid)
                if _status_of(fresh) != _status_of(object_):
                    raise
                object_ = fresh  # only spec or metadata changed: the patch is as good as before
            else:
                return
        raise Conflict("patch", str(ref), code=409, message="it changes faster than it is written")

    async def _send(self, ref: ObjectRef, object_: Object, patch: Mapping[str, Any]) -> None:
        version = object_["metadata"]["resourceVersion"]
        body = {"metadata": {"resourceVersion": version}, "status": patch}
        answer = await self._client.merge_patch(ref, body, subresource="status")
        self._store_of(ref.type).observe_write(answer)

    async def _fresh(self, ref: ObjectRef, uid: Uid) -> Object:
        object_ = await self._client.get(ref)
        if uid_of(object_) != uid:
            problem = f"uid {uid} is gone, the name was taken by {uid_of(object_)}"
            raise NotFound("patch", str(ref), code=404, message=problem)
        self._store_of(ref.type).observe_write(object_)
        return object_


def _status_of(object_: Object) -> Mapping[str, Any]:
    status = object_.get("status")
    return status if isinstance(status, dict) else {}
