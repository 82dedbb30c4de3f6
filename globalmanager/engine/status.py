"""Writes the .status of jobs, for the reconciler and for edge reports.

A request has only the fields that differ, and changes only the job with the given uid. The patch
must meet the same .status from which it was computed, because totals are sums of the present
values. The API server ignores metadata.uid in a patch of a custom resource's /status. So each patch
has the resourceVersion of a job that is known to have the uid.

A CustomResourceDefinition of another version may drop fields or lack the /status subresource. A
field that the API server has dropped counts as not written. The callers try again, but seldom.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

from common.clock import loop_time
from edgeai.api.resources import Object, ObjectRef
from edgeai.errors import EdgeAIError
from edgeai.ids import Uid
from edgeai.kube.client import KubeClient
from edgeai.kube.errors import Conflict, Invalid, NotFound, TooLarge
from edgeai.kube.patches import between, diff, merged, overlap
from globalmanager.cache.live import Live
from globalmanager.cache.store import StoreOf, uid_of

PatchOf = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]
"""Function from the present .status to a merge patch of it; None when nothing changes."""

_ATTEMPTS: Final = 4
_RETRY_S: Final = 10.0  # an administrator must apply the definition first
_CONTENT_CODES: Final = (400, 413, 422)  # a patch is malformed, too large, or against the schema
_FORGET_S: Final = 180.0  # longer than a caller's pause between two attempts


class NotKept(EdgeAIError):
    """The job exists, but the API server has not stored a field of the patch."""

    def __init__(self, ref: ObjectRef, problem: str, detail: str = "") -> None:
        self.problem = f"its CustomResourceDefinition {problem}: run `kubectl apply -f deploy/crds`"
        self.retry_after_s = _RETRY_S
        super().__init__(f"status of {ref} cannot be written: {self.problem}{detail}")


class _Failure(NamedTuple):
    at: float
    error: NotKept
    is_drop: bool
    """Whether the API server took the patch and dropped fields, whatever values they have."""


class _Subject(NamedTuple):
    """A job and the fields that one writer writes. Another writer's success says nothing about
    these fields.
    """

    ref: ObjectRef
    fields: tuple[str, ...]

    @classmethod
    def of(cls, ref: ObjectRef, patch: Mapping[str, Any]) -> "_Subject":
        return cls(ref, tuple(sorted(patch)))


class _Unkept:
    """The patches that the API server did not store. An entry expires, because its job may be
    gone.
    """

    def __init__(self, retry_s: float) -> None:
        self._retry_s = retry_s
        self._failures: OrderedDict[_Subject, _Failure] = OrderedDict()

    def add(self, subject: _Subject, error: NotKept, *, is_drop: bool = False) -> None:
        self._failures[subject] = _Failure(loop_time(), error, is_drop)
        self._failures.move_to_end(subject)
        self._forget_old()

    def recent_drop(self, subject: _Subject) -> NotKept | None:
        """The error when the API server has dropped these fields so recently that a new try would
        be too early.

        Such a write still changes the object's managedFields. So the watch delivers the object, and
        the callers would try again at once, without an end.
        """
        failure = self._failures.get(subject)
        if failure is None or not failure.is_drop or failure.at + self._retry_s <= loop_time():
            return None
        return failure.error

    def discard(self, subject: _Subject) -> None:
        self._failures.pop(subject, None)

    def complaints(self) -> tuple[str, ...]:
        self._forget_old()
        failures = self._failures.items()
        return tuple(
            sorted(
                {f"{failure_.ref.type}: {failure.error.problem}" for failure_, failure in failures}
            )
        )

    def _forget_old(self) -> None:
        while self._failures and next(iter(self._failures.values())).at + _FORGET_S < loop_time():
            self._failures.popitem(last=False)


class _Caller:
    """A caller of the StatusWriter. The caller waits until its patch is written. `error` then says
    whether the write failed.
    """

    def __init__(self, patch_of: PatchOf, generation: int | None) -> None:
        self.patch_of = patch_of
        self.generation = generation
        self.is_served = False
        self.error: Exception | None = None

    def serve(self, error: Exception | None = None) -> None:
        self.is_served, self.error = True, error


class StatusWriter:
    """Writes .status with one request at a time for each job. The API server's answers go into the
    store.

    A caller brings one patch. While a request for a job is under way, or waits for the rate limit,
    callers with more patches may arrive. The next request has all these patches. Thus many changes
    of one job at the same time take two requests at most, and the first change does not wait for
    the others.

    Args: retry_s: seconds before fields are written again that the API server has dropped
    """

    def __init__(self, client: KubeClient, store_of: StoreOf, *, retry_s: float = _RETRY_S) -> None:
        self._live = Live(client, store_of)
        self._store_of = store_of
        self._unkept = _Unkept(retry_s)
        self._locks: WeakValueDictionary[ObjectRef, asyncio.Lock] = WeakValueDictionary()
        self._waiting: dict[tuple[ObjectRef, Uid], list[_Caller]] = {}

    def through(self, client: KubeClient) -> "StatusWriter":
        """A writer that sends its requests with `client` and shares the locks of this writer."""
        other = StatusWriter(client, self._store_of)
        other._locks, other._unkept = self._locks, self._unkept
        return other

    def complaints(self) -> tuple[str, ...]:
        """A remedy for each type whose CustomResourceDefinition does not store a status."""
        return self._unkept.complaints()

    async def write(
        self, ref: ObjectRef, uid: Uid, patch: Mapping[str, Any], *, basis: Mapping[str, Any]
    ) -> None:
        """Merge `patch` into .status. `basis` is the .status from which the caller computed
        `patch`.

        Raises:
            Conflict: .status has changed and lacks the values of the patch. The store has the new
                .status, so the caller must compute the patch again
            NotFound, NotKept, ApiError, Overloaded: as in `update`
        """

        def patch_of(status: Mapping[str, Any]) -> Mapping[str, Any]:
            if status != basis and diff(status, patch) is not None:
                raise Conflict("patch", str(ref), code=409, message="its status changed meanwhile")
            return patch

        await self.update(ref, uid, patch_of)

    async def update(
        self, ref: ObjectRef, uid: Uid, patch_of: PatchOf, *, generation: int | None = None
    ) -> None:
        """Merge a patch into the .status of the job with `uid`. An empty patch sends no request.

        Returns when the API has the patch. One request may have the patches of several callers.

        Args:
            patch_of: called again when another client has changed the job. An exception of
                `patch_of` goes to this caller only
            generation: of the spec that the patch holds for; None: any

        Raises:
            NotFound: the job is gone, or another job has taken its name
            NotKept: the type's definition has no place for a field of the patch
            Conflict: other clients change the job faster than this writer can write, or the spec of
                the job has another generation
            ApiError, Overloaded: as for any request. The caller may try again after Unavailable
        """
        caller, subject = _Caller(patch_of, generation), (ref, uid)
        lock = self._locks.setdefault(ref, asyncio.Lock())
        self._waiting.setdefault(subject, []).append(caller)
        try:
            async with lock:
                if not caller.is_served:
                    await self._serve(ref, uid)
        finally:
            self._forget(subject, caller)
        if caller.error is not None:
            raise caller.error

    def _forget(self, subject: tuple[ObjectRef, Uid], caller: _Caller) -> None:
        callers = [other for other in self._waiting.get(subject, ()) if other is not caller]
        if callers:
            self._waiting[subject] = callers
        else:
            self._waiting.pop(subject, None)

    async def _serve(self, ref: ObjectRef, uid: Uid) -> None:
        """Write the patches of all callers that wait now. When this caller is cancelled, the other
        callers go on waiting. The next of them that gets the lock continues. No patch is written
        twice.
        """
        callers = [each for each in self._waiting[ref, uid] if not each.is_served]
        try:
            await self._update(ref, uid, callers)
        except EdgeAIError as error:
            pending = [each for each in callers if not each.is_served]
            if len(pending) == 1 or not _blames_content(error):
                for caller in pending:
                    caller.serve(error)
                return
            # write each patch alone, because one bad patch must not fail the others
            for caller in pending:
                try:
                    await self._update(ref, uid, [caller])
                except EdgeAIError as its_error:
                    caller.serve(its_error)

    async def _update(self, ref: ObjectRef, uid: Uid, callers: Sequence[_Caller]) -> None:
        """Write the patches of all callers in one request. Raises: the error for the callers that
        are not served
        """
        job = self._store_of(ref.type).get(ref)
        if job is None or uid_of(job) != uid:
            job = await self._live.get(ref, uid=uid)
        for _ in range(_ATTEMPTS):
            status = status_of(job)
            _serve_other_generations(ref, job, callers)
            target, patches = _fold(status, [each for each in callers if not each.is_served])
            if self._serve_too_early(ref, patches):
                continue
            needed = between(status, target)
            try:
                stored = None if needed is None else await self._send(ref, job, needed)
            except NotKept as error:
                for patch in patches.values():
                    self._unkept.add(_Subject.of(ref, patch), error)
                raise
            except Conflict:
                job = await self._live.get(ref, uid=uid)
                continue
            removals = {} if stored is None or needed is None else diff(stored, needed) or {}
            for caller, patch in patches.items():
                self._conclude(ref, caller, patch, removals)
            return
        raise Conflict("patch", str(ref), code=409, message="it changes faster than it is written")

    def _serve_too_early(
        self, ref: ObjectRef, patches: Mapping[_Caller, Mapping[str, Any]]
    ) -> bool:
        """Refuse the callers whose fields the API has just not stored. Returns: whether there are
        such callers
        """
        errors = {
            caller: self._unkept.recent_drop(_Subject.of(ref, patch))
            for caller, patch in patches.items()
            if patch
        }
        for caller, error in errors.items():
            if error is not None:
                caller.serve(error)
        return any(errors.values())

    def _conclude(
        self,
        ref: ObjectRef,
        caller: _Caller,
        patch: Mapping[str, Any],
        fields: Mapping[str, Any],
    ) -> None:
        """Tell the caller whether the API has stored the caller's patch."""
        subject = _Subject.of(ref, patch)
        overlaps = [key for key in sorted(fields) if overlap({key: fields[key]}, patch)]
        if not overlaps:
            self._unkept.discard(subject)
            caller.serve()
            return
        error = NotKept(ref, "drops " + ", ".join(f"status.{key}" for key in overlaps))
        self._unkept.add(subject, error, is_drop=True)
        caller.serve(error)

    async def _send(
        self, ref: ObjectRef, job: Object, patch: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Send the patch. Returns: the .status that the API then has"""
        version = job["metadata"]["resourceVersion"]
        body = {"metadata": {"resourceVersion": version}, "status": patch}
        try:
            return status_of(await self._live.patch_status(ref, body))
        except NotFound as error:
            await self._live.get(ref, uid=uid_of(job))  # NotFound when the job is gone
            raise NotKept(ref, "has no status subresource") from error
        except Invalid as error:
            raise NotKept(ref, "refuses status fields", f" ({error.message})") from error


def _serve_other_generations(ref: ObjectRef, job: Object, callers: Iterable[_Caller]) -> None:
    """Refuse the callers whose patch holds for another spec than the spec of `job`. A patch is sent
    with the resourceVersion of `job`, so the API has this spec when it takes the patch.
    """
    generation = job["metadata"].get("generation", 1)
    for caller in callers:
        if caller.generation not in (None, generation):
            message = f"its spec is of generation {generation}, not {caller.generation}"
            caller.serve(Conflict("patch", str(ref), code=409, message=message))


def _fold(
    status: Mapping[str, Any], callers: Iterable[_Caller]
) -> tuple[Mapping[str, Any], dict[_Caller, Mapping[str, Any]]]:
    """The .status with all patches, and each caller's patch. A caller whose `patch_of` fails gets
    the exception.
    """
    patches: dict[_Caller, Mapping[str, Any]] = {}
    for caller in callers:
        try:
            patch = caller.patch_of(status)
        except Exception as error:  # noqa: BLE001 - `update` raises it to its caller
            caller.serve(error)
            continue
        patches[caller] = patch or {}
        status = merged(status, patches[caller])
    return status, patches


def _blames_content(error: EdgeAIError) -> bool:
    """Whether the content of a patch may have caused the error. A request may have several patches,
    and then the other patches may be good.
    """
    return isinstance(error, NotKept | TooLarge) or getattr(error, "code", 0) in _CONTENT_CODES


def status_of(job: Object) -> Mapping[str, Any]:
    """The .status of the job; empty when the job has none."""
    status = job.get("status")
    return status if isinstance(status, dict) else {}
