"""Writes the .status of jobs, for the reconciler and for edge reports.

A request has only the fields that differ, and changes only the job with the given uid. The patch
must meet the same .status from which it was computed, because totals are sums of the present
values. The API server ignores metadata.uid in a patch of a custom resource's /status. So each patch
has the resourceVersion of a job that is known to have the uid.

A CustomResourceDefinition of another version may drop fields or lack the /status subresource. A
field that the API server has dropped counts as not written. The callers try again, but seldom.
"""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

from common.clock import loop_time
from edgeai.api import slices
from edgeai.api.resources import CONFIG_MAPS, Object, ObjectRef
from edgeai.errors import Unwritable
from edgeai.ids import Uid
from edgeai.kube.client import KubeClient
from edgeai.kube.errors import Conflict, Invalid, NotFound
from edgeai.kube.patches import diff, merged
from edgeai.kube.remedies import UPGRADE
from globalmanager.cache.followed import CacheOf
from globalmanager.cache.live import Live
from globalmanager.cache.store import controller_of, uid_of

PatchOf = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Function from the present .status to a merge patch of it; empty when nothing changes."""

_ATTEMPTS: Final = 4
_RETRY_S: Final = 10.0  # an administrator must apply the definition first
_FORGET_S: Final = 180.0  # longer than a caller's pause between two attempts


class NotKept(Unwritable):
    """The job exists, but the API server has not stored a field of the patch.

    Args: is_general: whether the API server does not store these fields, whatever values they have
    """

    def __init__(
        self, ref: ObjectRef, problem: str, detail: str = "", *, is_general: bool = True
    ) -> None:
        self.problem = f"its CustomResourceDefinition {problem}: {UPGRADE}"
        self.retry_after_s = _RETRY_S
        self.is_general = is_general
        self.at = loop_time()
        super().__init__(f"status of {ref} cannot be written: {self.problem}{detail}")


class _Subject(NamedTuple):
    """A job and the fields of one writer, about which another writer's success says nothing."""

    ref: ObjectRef
    fields: tuple[str, ...]


class _Unkept:
    """What the API server did not store. An entry expires, because its job may be gone."""

    def __init__(self, retry_s: float) -> None:
        self._retry_s = retry_s
        self._failures: OrderedDict[_Subject, NotKept] = OrderedDict()

    def add(self, subject: _Subject, error: NotKept) -> NotKept:
        """Returns: the error, to be raised"""
        self._failures[subject] = error
        self._failures.move_to_end(subject)
        self._forget_old()
        return error

    def check(self, subject: _Subject) -> None:
        """Raises: NotKept when the API server has lately not stored these fields

        A write whose fields are dropped still changes the object's managedFields. So the watch
        delivers the object, and the callers would try again at once, without an end.
        """
        failure = self._failures.get(subject)
        if failure and failure.is_general and failure.at + self._retry_s > loop_time():
            raise failure

    def discard(self, subject: _Subject) -> None:
        self._failures.pop(subject, None)

    def complaints(self) -> tuple[str, ...]:
        self._forget_old()
        failures = self._failures.items()
        return tuple(
            sorted({f"{subject.ref.type}: {error.problem}" for subject, error in failures})
        )

    def _forget_old(self) -> None:
        while self._failures and next(iter(self._failures.values())).at + _FORGET_S < loop_time():
            self._failures.popitem(last=False)


class StatusWriter:
    """Writes .status with one request at a time for each job.

    Args: retry_s: seconds before fields are written again that the API server has dropped
    """

    def __init__(self, client: KubeClient, store_of: CacheOf, *, retry_s: float = _RETRY_S) -> None:
        self._live = Live(client, store_of)
        self._store_of = store_of
        self._unkept = _Unkept(retry_s)
        self._locks: WeakValueDictionary[ObjectRef, asyncio.Lock] = WeakValueDictionary()

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
        """Merge `patch` into .status. Args: basis: .status from which the patch was computed

        Raises:
            Conflict: .status has changed and lacks the values of the patch; the store has it
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
        """Merge a patch into the .status of the job with `uid`. An empty one sends no request.

        Args:
            patch_of: called again when another client has changed the job
            generation: of the spec that the patch holds for; None: any

        Raises:
            NotFound: the job is gone, or another job has taken its name
            NotKept: the type's definition has no place for a field of the patch
            Conflict: others change the job faster than this can write, or its spec has another
                generation
            ApiError, Overloaded: as for any request
        """
        async with self._locks.setdefault(ref, asyncio.Lock()):
            job = self._store_of(ref.type).get(ref)
            if job is None or uid_of(job) != uid:
                job = await self._live.get(ref, uid=uid)
            for _ in range(_ATTEMPTS):
                # With the resourceVersion of `job`: the API takes the patch only for this spec.
                _check_generation(ref, job, generation)
                patch = patch_of(status_of(job))
                try:
                    await self._store(ref, job, patch)
                    return
                except Conflict:
                    job = await self._live.get(ref, uid=uid)
        raise Conflict("patch", str(ref), code=409, message="it changes faster than it is written")

    async def update_slice(
        self, ref: ObjectRef, uid: Uid, name: str, patch_of: PatchOf, *, generation: int | None
    ) -> None:
        """As `update`, for the part of .status that a slice of the job has. The generation is that
        of the cached job: the name of a worker in a slice names its node, so no edit moves it.

        Raises: Conflict also while the plan of the job has not made the slice yet; Unwritable when
            the slice is overfull
        """
        slice_ref = ObjectRef(CONFIG_MAPS, ref.namespace, name)
        async with self._locks.setdefault(slice_ref, asyncio.Lock()):
            for _ in range(_ATTEMPTS):
                job = self._store_of(ref.type).get(ref)
                if job is None or uid_of(job) != uid:
                    job = await self._live.get(ref, uid=uid)
                _check_generation(ref, job, generation)
                config_map = self._store_of(CONFIG_MAPS).get(slice_ref)
                if config_map is None or (controller_of(config_map) or {}).get("uid") != uid:
                    message = "the job has no such slice yet"
                    raise Conflict("patch", str(slice_ref), code=409, message=message)
                if slices.is_overfull(config_map):
                    entries = len(config_map["data"])
                    message = f"{slice_ref} has {entries} entries, more than edgeai writes"
                    raise Unwritable(message)
                part = slices.part_of(config_map)
                patch = patch_of(part)
                if not patch:
                    return
                changes = slices.data_of(merged(part, patch), patch.get(slices.WORKERS, ()))
                data = {**(config_map.get("data") or {}), **changes}
                # With the resourceVersion that the sums belong to. After a refusal the store has
                # the present slice.
                with contextlib.suppress(Conflict, NotFound):
                    await self._live.replace(CONFIG_MAPS, {**config_map, "data": data})
                    return
        message = "it changes faster than it is written"
        raise Conflict("patch", str(slice_ref), code=409, message=message)

    async def _store(self, ref: ObjectRef, job: Object, wanted: Mapping[str, Any]) -> None:
        """Send what changes .status, if anything does, and check that the API has stored it."""
        subject = _Subject(ref, tuple(sorted(wanted)))
        if (patch := diff(status_of(job), wanted)) is not None:
            self._unkept.check(subject)
            stored = await self._send(subject, job, patch)
            if drops := diff(stored, patch):
                fields = ", ".join(f"status.{key}" for key in sorted(drops))
                raise self._unkept.add(subject, NotKept(subject.ref, f"drops {fields}"))
        self._unkept.discard(subject)

    async def _send(
        self, subject: _Subject, job: Object, patch: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Returns: the .status that the API then has"""
        ref, version = subject.ref, job["metadata"]["resourceVersion"]
        body = {"metadata": {"resourceVersion": version}, "status": patch}
        try:
            return status_of(await self._live.patch(ref, body, subresource="status"))
        except NotFound as error:
            await self._live.get(ref, uid=uid_of(job))  # NotFound when the job is gone
            unkept = self._unkept.add(subject, NotKept(ref, "has no status subresource"))
            raise unkept from error
        except Invalid as error:
            detail = f" ({error.message})"
            unkept = NotKept(ref, "refuses status fields", detail, is_general=False)
            raise self._unkept.add(subject, unkept) from error


def _check_generation(ref: ObjectRef, job: Object, generation: int | None) -> None:
    present = job["metadata"].get("generation", 1)
    if generation not in (None, present):
        message = f"its spec is of generation {present}, not {generation}"
        raise Conflict("patch", str(ref), code=409, message=message)


def status_of(job: Object) -> Mapping[str, Any]:
    """The .status of the job; empty when the job has none."""
    status = job.get("status")
    return status if isinstance(status, dict) else {}
