"""Requests about single objects. The answers of the Kubernetes API go into the cache at once.

The watch delivers the same changes later. So the next plan sees every write and every deletion of
this process without waiting for the watch.
"""

import contextlib
from collections.abc import Mapping
from typing import Any

from edgeai.api.resources import Object, ObjectRef, ResourceType, ref_of
from edgeai.errors import EdgeAIError
from edgeai.ids import Uid
from edgeai.kube.client import KubeClient
from edgeai.kube.errors import Conflict, NotFound
from edgeai.kube.sender import Check
from globalmanager.cache.followed import CacheOf
from globalmanager.cache.store import uid_of


class Live:
    """Every method raises ApiError and Overloaded, like the methods of KubeClient.

    Args: cached: type -> the cache that takes the answers about objects of this type
    """

    def __init__(self, client: KubeClient, cached: CacheOf) -> None:
        self._client = client
        self._cached = cached

    async def get(self, ref: ObjectRef, *, uid: str = "") -> Object:
        """The object as the API has it now.

        Args:
            uid: the uid that the object must have; "" accepts any uid

        Raises: NotFound when no object has the name, or when the object has another uid
        """
        cache = self._cached(ref.type)
        # Before the request, because the cache may learn of a newer object during the request.
        cached = cache.get(ref)
        expected = uid or (uid_of(cached) if cached is not None else "")
        try:
            object_ = await self._client.get(ref)
        except NotFound as error:
            if expected and _is_absence(error, ref):
                cache.observe_gone(ref, expected)
            raise
        cache.observe(object_)
        if uid and uid_of(object_) != uid:
            cache.observe_gone(ref, uid)
            problem = f"uid {uid} is gone, the name was taken by {uid_of(object_)}"
            raise NotFound("get", str(ref), code=404, message=problem)
        return object_

    async def create(self, type_: ResourceType, object_: Object, *, check: Check) -> Object:
        answer = await self._client.create(type_, object_, check=check)
        self._cached(type_).observe(answer)
        return answer

    async def replace(self, type_: ResourceType, object_: Object) -> Object:
        ref = ref_of(type_, object_)
        try:
            answer = await self._client.replace(type_, object_)
        except (NotFound, Conflict) as error:
            await self._update_cache(error, ref, uid_of(object_))
            raise
        self._cached(type_).observe(answer)
        return answer

    async def patch(
        self, ref: ObjectRef, patch: Mapping[str, Any], *, subresource: str = ""
    ) -> Object:
        """Send a merge patch. Raises: NotFound, also where the type lacks the subresource"""
        patched = await self._client.merge_patch(ref, patch, subresource=subresource)
        self._cached(ref.type).observe(patched)
        return patched

    async def delete(self, ref: ObjectRef, uid: Uid, *, is_forced: bool = False) -> bool:
        """Delete the object if it has this uid.

        Args: is_forced: delete a pod without a kubelet that confirms the deletion
        Returns: False when no object had the name
        Raises: Conflict when the object has another uid
        """
        try:
            terminating = await self._client.delete(
                ref, uid=uid, grace_period_s=0 if is_forced else None
            )
        except NotFound as error:
            await self._update_cache(error, ref, uid)
            return False
        except Conflict as error:
            await self._update_cache(error, ref, uid)
            raise
        if terminating is None:
            self._cached(ref.type).observe_gone(ref, uid)
        else:  # the object has a grace period or finalizers and still exists
            self._cached(ref.type).observe(terminating)
        return True

    async def _update_cache(self, error: NotFound | Conflict, ref: ObjectRef, uid: str) -> None:
        """Update the cache after a failure that shows that the object has changed."""
        if isinstance(error, Conflict):
            # The object changed, or another object took its name. A GET shows which case it is.
            with contextlib.suppress(EdgeAIError):
                await self.get(ref, uid=uid)
        elif _is_absence(error, ref):
            self._cached(ref.type).observe_gone(ref, uid)


def _is_absence(error: NotFound, ref: ObjectRef) -> bool:
    """Whether a 404 says that the object does not exist, and not that the server lacks its type.

    An API server that has just started does not know custom resources yet. It answers 404 for each
    of their objects, and such an answer names no object.
    """
    about = error.about
    return about is not None and (about.name, about.kind) == (ref.name, ref.type.plural)
