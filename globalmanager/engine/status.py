"""Writes .status, for the reconciler and for edge reports: only what differs, only to one uid.

A patch is only ever sent to the status that it was computed from: totals are sums of what is
there. The API server ignores metadata.uid in a patch of a custom resource's /status, so the
precondition is the resourceVersion of an object that is known to have the uid. Called by apply
and, through app, by the edge server.

A CustomResourceDefinition of another version may drop fields, or have no /status. What it did not
keep counts as not written: it is tried again, but seldom.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

from common.errors import EdgeAIError
from common.ids import Uid
from globalmanager.cache.store import uid_of
from globalmanager.contract import Object, ObjectRef
from globalmanager.engine.live import Live
from globalmanager.engine.observe import StoreOf
from globalmanager.engine.patch import diff
from globalmanager.kube.client import KubeClient
from globalmanager.kube.errors import Conflict, Invalid, NotFound

PatchOf = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]
""".status as it is -> what to merge into it; None: nothing."""

_ATTEMPTS: Final = 4
_RETRY_S: Final = 10.0  # somebody has to apply the definition first
_FORGET_S: Final = 180.0  # longer than whoever wants it written waits between two tries


class NotKept(EdgeAIError):
    """The API has no place for what was to be written; the object is there."""

    def __init__(self, ref: ObjectRef, problem: str, detail: str = "") -> None:
        self.problem = f"its CustomResourceDefinition {problem}: run `kubectl apply -f deploy/crds`"
        self.retry_after_s = _RETRY_S
        super().__init__(f"status of {ref} cannot be written: {self.problem}{detail}")


class _Failure(NamedTuple):
    at: float
    problem: str


class _Subject(NamedTuple):
    """What one of the two writers of an object writes; the other's success says nothing of it."""

    ref: ObjectRef
    fields: tuple[str, ...]

    @classmethod
    def of(cls, ref: ObjectRef, patch: Mapping[str, Any]) -> "_Subject":
        return cls(ref, tuple(sorted(patch)))


class _Unkept:
    """What was not kept; bounded in time, for an object may be gone."""

    def __init__(self) -> None:
        self._failures: OrderedDict[_Subject, _Failure] = OrderedDict()

    def add(self, subject: _Subject, error: NotKept) -> None:
        self._failures[subject] = _Failure(_now(), error.problem)
        self._failures.move_to_end(subject)
        self._forget_old()

    def discard(self, subject: _Subject) -> None:
        self._failures.pop(subject, None)

    def complaints(self) -> tuple[str, ...]:
        self._forget_old()
        failures = self._failures.items()
        return tuple(sorted({f"{each.ref.type}: {failure.problem}" for each, failure in failures}))

    def _forget_old(self) -> None:
        while self._failures and next(iter(self._failures.values())).at + _FORGET_S < _now():
            self._failures.popitem(last=False)


class StatusWriter:
    """One writer per object at a time; the answer goes into the store."""

    def __init__(self, client: KubeClient, store_of: StoreOf) -> None:
        self._live = Live(client, store_of)
        self._store_of = store_of
        self._unkept = _Unkept()
        self._locks: WeakValueDictionary[ObjectRef, asyncio.Lock] = WeakValueDictionary()

    def through(self, client: KubeClient) -> "StatusWriter":
        """Another one that writes by `client`, but is the same writer of an object."""
        other = StatusWriter(client, self._store_of)
        other._locks, other._unkept = self._locks, self._unkept
        return other

    def complaints(self) -> tuple[str, ...]:
        """Of each type whose CustomResourceDefinition does not keep a status, what to do."""
        return self._unkept.complaints()

    async def write(
        self, ref: ObjectRef, uid: Uid, patch: Mapping[str, Any], *, basis: Mapping[str, Any]
    ) -> None:
        """Merge `patch` into the .status that it was computed from, `basis`.

        Raises:
            Conflict: .status is another by now and lacks what the patch says; the store has it,
                so compute the patch again
            others: as `update`
        """

        def patch_of(status: Mapping[str, Any]) -> Mapping[str, Any]:
            if status != basis and diff(status, patch) is not None:
                raise Conflict("patch", str(ref), code=409, message="its status changed meanwhile")
            return patch

        await self.update(ref, uid, patch_of)

    async def update(self, ref: ObjectRef, uid: Uid, patch_of: PatchOf) -> None:
        """Merge a patch into the .status of the object that has `uid`; nothing new, no request.

        Args:
            patch_of: called anew whenever someone else changed the object

        Raises:
            NotFound: the object is gone, or its name was taken by another
            NotKept: the type's definition has no place for it
            Conflict: others change the object faster than it can be written
            ApiError, Overloaded: as of any request; Unavailable ones may be tried again
        """
        lock = self._locks.setdefault(ref, asyncio.Lock())
        async with lock:
            await self._update(ref, uid, patch_of)

    async def _update(self, ref: ObjectRef, uid: Uid, patch_of: PatchOf) -> None:
        object_ = self._store_of(ref.type).get(ref)
        if object_ is None or uid_of(object_) != uid:
            object_ = await self._live.get(ref, uid=uid)
        for _ in range(_ATTEMPTS):
            patch = patch_of(status_of(object_))
            if patch is None:
                return
            subject = _Subject.of(ref, patch)
            needed = diff(status_of(object_), patch)
            if needed is None:
                self._unkept.discard(subject)
                return
            try:
                await self._send(ref, object_, needed)
            except NotKept as error:
                self._unkept.add(subject, error)
                raise
            except Conflict:
                object_ = await self._live.get(ref, uid=uid)
            else:
                self._unkept.discard(subject)
                return
        raise Conflict("patch", str(ref), code=409, message="it changes faster than it is written")

    async def _send(self, ref: ObjectRef, object_: Object, patch: Mapping[str, Any]) -> None:
        version = object_["metadata"]["resourceVersion"]
        body = {"metadata": {"resourceVersion": version}, "status": patch}
        try:
            answer = await self._live.patch_status(ref, body)
        except NotFound as error:
            await self._live.get(ref, uid=uid_of(object_))  # NotFound when the object is gone
            raise NotKept(ref, "has no status subresource") from error
        except Invalid as error:
            raise NotKept(ref, "refuses status fields", f" ({error.message})") from error
        dropped = diff(status_of(answer), patch)
        if dropped is not None:
            raise NotKept(ref, "drops " + ", ".join(f"status.{key}" for key in sorted(dropped)))


def _now() -> float:
    return asyncio.get_running_loop().time()


def status_of(object_: Object) -> Mapping[str, Any]:
    """What it says of its state; empty when it says nothing."""
    status = object_.get("status")
    return status if isinstance(status, dict) else {}
