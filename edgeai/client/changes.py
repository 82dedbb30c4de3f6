"""Follows a collection of the API: what is there, and then every change.

The rules are those of the informer of the GlobalManager (globalmanager.cache.informer), without a
cache: after a broken connection the watch goes on where it was, and after 410 a new list tells what
has changed meanwhile. So no change is lost, and none is told twice; several changes of one object
that nobody could see may be told as one.
"""

import asyncio
import math
import random
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import Final, Literal, NamedTuple

import msgspec

from edgeai.api.resources import Object, ObjectRef, ref_of
from edgeai.backoff import Backoff
from edgeai.errors import Unavailable
from edgeai.kube import errors
from edgeai.kube.client import KubeClient, Listing
from edgeai.kube.objects import NotReadable, Unreadable, read, read_event

Word = Literal["ADDED", "MODIFIED", "DELETED"]
WATCH_S: Final = 240.0
"""The longest watch. A shorter one costs the API server more; a longer one notices faults late."""
_HEALTHY_S: Final = 5.0  # after a watch of this length the next one begins at once


class Change(NamedTuple):
    type: Word
    object: Object


class _Follower:
    """Args: objects: that the caller knows already"""

    def __init__(self, ref: ObjectRef, objects: Sequence[Object]) -> None:
        self._type, self._namespace = ref.type, ref.namespace
        self._field_selector = f"metadata.name={ref.name}" if ref.name else ""
        self._objects = {ref_of(ref.type, item): item for item in objects}
        self._version = ""  # where the next watch begins; "" means: list first
        self._backoff = Backoff(base_s=0.5, max_s=10.0)
        self._has_listed = False
        self._is_known = False  # the API server has accepted the credential last time

    async def run(self, kube: KubeClient) -> AsyncGenerator[Change, None]:
        while True:
            retry_after_s = 0.0
            try:
                if not self._version:
                    for change in self._take_list(await self._list(kube)):
                        yield change
                async with aclosing(self._watch(kube)) as changes:
                    async for change in changes:
                        yield change
            except errors.Expired:
                self._version = ""
            except errors.Unauthorized:
                if not self._is_known:
                    raise
                self._is_known = False  # the next try has a new token, if the kubeconfig has one
            except Unavailable as error:
                if not self._has_listed:
                    raise
                retry_after_s = getattr(error, "retry_after_s", 0.0)
                if isinstance(error, errors.ServerError):
                    self._version = ""
            await asyncio.sleep(self._backoff.next_s(at_least_s=retry_after_s))

    async def _list(self, kube: KubeClient) -> Listing:
        listing = await kube.list(
            self._type, namespace=self._namespace, field_selector=self._field_selector
        )
        self._has_listed = self._is_known = True
        self._version = listing.resource_version
        return listing

    def _take_list(self, listing: Listing) -> Iterator[Change]:
        type_ = self._type
        items = {ref_of(type_, item): item for item in listing.items}
        unreadable = {entry.ref(type_) for entry in listing.unreadable}
        for ref in [ref for ref in self._objects if ref not in items and ref not in unreadable]:
            yield Change("DELETED", self._objects.pop(ref))
        for ref, object_ in items.items():
            yield from self._take(ref, object_)

    def _take(self, ref: ObjectRef, object_: Object) -> Iterator[Change]:
        """The changes that lead from the known object to this one."""
        before = self._objects.get(ref)
        self._objects[ref] = object_
        if before is None:
            yield Change("ADDED", object_)
        elif before["metadata"]["uid"] != object_["metadata"]["uid"]:
            yield Change("DELETED", before)
            yield Change("ADDED", object_)
        elif before["metadata"]["resourceVersion"] != object_["metadata"]["resourceVersion"]:
            yield Change("MODIFIED", object_)

    async def _watch(self, kube: KubeClient) -> AsyncGenerator[Change, None]:
        loop = asyncio.get_running_loop()
        timeout_s = max(1, round(WATCH_S * random.uniform(0.5, 1)))
        healthy_at = math.inf
        lines = kube.watch_lines(
            self._type,
            resource_version=self._version,
            timeout_s=timeout_s,
            namespace=self._namespace,
            field_selector=self._field_selector,
        )
        try:
            async with aclosing(lines):
                async for line in lines:
                    if not line:  # the server has accepted the watch
                        self._is_known = True
                        healthy_at = loop.time() + min(_HEALTHY_S, timeout_s / 2)
                        continue
                    for change in self._read(line):
                        yield change
        finally:
            if loop.time() >= healthy_at:
                self._backoff.reset()

    def _read(self, line: bytes) -> Iterator[Change]:
        type_ = self._type
        try:
            event = read_event(line)
        except NotReadable as error:
            raise errors.Malformed("watch", str(type_), message=str(error)) from error
        if event.type == "ERROR":
            status = msgspec.json.decode(event.object, type=errors.Status)
            raise errors.from_status("watch", str(type_), status)
        if event.type == "BOOKMARK":
            bookmark = msgspec.json.decode(event.object)
            self._version = bookmark["metadata"]["resourceVersion"]
            return
        object_ = read(event.object)
        if isinstance(object_, Unreadable):  # no change that anybody could use
            self._version = object_.resource_version or self._version
            return
        self._version = object_["metadata"]["resourceVersion"]
        if event.type == "DELETED":
            self._objects.pop(ref_of(type_, object_), None)
            yield Change("DELETED", object_)
        else:
            yield from self._take(ref_of(type_, object_), object_)


def follow(
    kube: KubeClient, ref: ObjectRef, *, objects: Sequence[Object] = ()
) -> AsyncGenerator[Change, None]:
    """Every object as ADDED, then every change, without end. Iterate inside `aclosing`.

    Args:
        ref: of one object; with the name "", all objects of its type in its namespace
        objects: that the caller has read; only what differs from them is told
    Raises: ApiError when the API does not answer the first list, or refuses a list or a watch.
        Later the function waits for an API that is away, and takes a new token once
    """
    return _Follower(ref, objects).run(kube)
