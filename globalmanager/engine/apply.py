"""Applies the plan of one job: first the actions, stage by stage, then the status and the events.

The applier records successful actions as Kubernetes Events. It makes one decision of its own: it
creates and deletes objects only for a job that the API has confirmed (see owners).
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from common import logs
from common.tasks import TaskGroup
from edgeai.api import deletions
from edgeai.api.objects import is_being_deleted
from edgeai.api.resources import PODS, Object, ObjectRef, ResourceType, ref_of
from edgeai.api.status import WAITING
from edgeai.errors import EdgeAIError
from edgeai.ids import Uid
from edgeai.kube import warnings
from edgeai.kube.errors import AlreadyExists, ApiError, Forbidden, Invalid, NotFound, TooLarge
from edgeai.kube.patches import merged
from edgeai.newest import NewestKeys
from globalmanager.cache.live import Live
from globalmanager.cache.store import controller_of, version_of
from globalmanager.contract import (
    Action,
    Adopt,
    Create,
    Delete,
    Event,
    Kind,
    Observed,
    Patch,
    PatchStatus,
    Plan,
    Refusal,
    Replace,
    Severity,
)
from globalmanager.engine.drift import Drift
from globalmanager.engine.events import Recorder
from globalmanager.engine.job_metrics import JobMetrics
from globalmanager.engine.owners import Owners
from globalmanager.engine.pod_admission import PodAdmission, PodForbidden
from globalmanager.engine.status import StatusWriter, status_of
from globalmanager.engine.successes import Success, messages
from globalmanager.kinds.shared import overridden
from globalmanager.kinds.shared.lifecycle import Timers
from globalmanager.kinds.shared.objects import differences, owner_reference

log = logs.get_logger(__name__)

_AT_ONCE_S: Final = 0.001  # a wait of 0 would carry out the action
_MAX_WARNINGS: Final = 4096  # that are remembered, so that each job has an Event of them once
_MAX_FIELDS_NAMED: Final = 5  # changed fields that one Event names
# of one plan, so that a large job does not keep other jobs waiting
_MAX_PARALLEL_ACTIONS: Final = 8
_REMEDIES: Final = {
    "Invalid": "correct the field that it names, in the worker's template",
    "Forbidden": "ask who limits the namespace",
    "TooLarge": "make the worker's template smaller",
}


class NameConflict(EdgeAIError):
    """An object of another owner has the name of the child to create."""

    reason: Final = "NameConflict"

    def __init__(self, ref: ObjectRef, owner: str) -> None:
        self.ref, self.owner = ref, owner
        super().__init__(
            f"{ref} exists already and belongs to {owner}; rename or delete one of the two"
        )


class StillTerminating(EdgeAIError):
    """An earlier child of this name is still being deleted. Args: child: None: it is gone by now"""

    def __init__(self, ref: ObjectRef, child: Object | None = None) -> None:
        self._child = child
        super().__init__(f"an earlier {ref} is still being deleted")

    def refusal(self, now: datetime) -> Refusal:
        """The refusal, with the cause once the child should be gone."""
        if self._child is None or deletions.overdue_in_s(self._child, now) > 0:
            return Refusal(WAITING, str(self))
        return Refusal(deletions.TERMINATING, f"{self}: {deletions.why(self._child)}")


def refusal_of(error: EdgeAIError) -> Refusal | None:
    """The refusal that the job's status shows to the user; None when a retry may succeed."""
    match error:
        case NameConflict() | PodForbidden():
            return Refusal(error.reason, str(error))
        case StillTerminating():
            return Refusal(WAITING, str(error))
        case Forbidden() if error.remedy:
            return Refusal("Forbidden", str(error))
        case Invalid() | Forbidden() | TooLarge():
            reason = type(error).__name__
            return Refusal(reason, f"{error}; {_REMEDIES[reason]}")
        case ApiError(code=HTTPStatus.BAD_REQUEST):  # a field has the wrong type
            return Refusal("Invalid", f"{error}; {_REMEDIES['Invalid']}")
    return None


class Applier:
    """Applies plans of jobs of every kind."""

    def __init__(
        self,
        live: Live,
        owners: Owners,
        drift: Drift,
        status: StatusWriter,
        recorder: Recorder,
        *,
        kinds: Mapping[ResourceType, Kind],
        admission: PodAdmission,
        metrics: JobMetrics,
    ) -> None:
        self._live = live
        self._kinds = kinds
        self._admission = admission
        self._metrics = metrics
        self._owners = owners
        self._drift = drift
        self._status = status
        self._recorder = recorder
        self._warnings = NewestKeys[tuple[Uid, str], None](_MAX_WARNINGS)

    async def apply(self, observed: Observed, plan: Plan) -> float | None:
        """Apply the stages of the plan, then write its status and record its events. When an action
        fails, the later stages, the status and the events are left out.

        Returns: seconds after which the engine must plan the job again although nothing changed
        Raises: ApiError (Conflict and NotFound also when the job was deleted meanwhile),
            Unavailable, NameConflict, StillTerminating, PodForbidden: plan the job again
        """
        terminating = "deletionTimestamp" in observed.object["metadata"]
        self._note_in_order(observed, plan)
        timers = Timers().add(plan.requeue_after_s)
        for stage in plan.stages:
            # The garbage collector deletes the children of a job that is being deleted, and would
            # delete them again without end if the engine created them again.
            allowed = [action for action in stage if isinstance(action, Delete) or not terminating]
            waits_s = [self._wait_s(observed, action) for action in allowed]
            due = [action for action, wait_s in zip(allowed, waits_s, strict=True) if wait_s == 0]
            timers = timers.add(*waits_s)
            await self._apply_stage(observed, due)
        await self.tell(observed, plan)
        return timers.next_s

    def overridden(self, observed: Observed) -> dict[ObjectRef, tuple[str, ...]]:
        """The children whose drift is left alone, for the next plan: see Observed.overridden."""
        overrides = (
            (ref, self._drift.left_alone(child)) for ref, child in observed.children.items()
        )
        return {ref: fields for ref, fields in overrides if fields}

    def _note_in_order(self, observed: Observed, plan: Plan) -> None:
        drifted = {
            ref_of(action.type, action.object)
            for action in plan.actions
            if isinstance(action, Replace) and action.is_drift
        }
        for ref, child in observed.children.items():
            if ref not in drifted:
                self._drift.note_in_order(child)

    def _wait_s(self, observed: Observed, action: Action) -> float | None:
        """Seconds until the action may begin; 0 for now; None when it is left out. When that is
        new, an Event tells it, and the job is planned again at once for its status.
        """
        if not isinstance(action, Replace) or not action.is_drift:
            return 0.0
        ref = ref_of(action.type, action.object)
        existing = observed.children[ref]
        wait_s = self._drift.wait_s(action.object, existing)
        if wait_s is not None:
            return wait_s
        fields = self._drift.left_alone(existing)
        if fields == observed.overridden.get(ref):
            return None
        event = Event(Severity.WARNING, "Drift", overridden.describe({ref: fields}))
        self._recorder.record(observed.object, event)
        return _AT_ONCE_S

    async def _apply_stage(self, observed: Observed, actions: Sequence[Action]) -> None:
        """Try all actions of one stage, several at a time, and record Events about those that
        succeed. Raises: the error of one that failed; one that the user can correct comes first
        """
        if any(isinstance(action, Create | Delete) for action in actions) and not is_being_deleted(
            observed.object
        ):
            await self._owners.confirm(observed)
        slots = asyncio.Semaphore(_MAX_PARALLEL_ACTIONS)
        successes: list[Success | None] = [None] * len(actions)
        failures: list[EdgeAIError] = []

        async def attempt(number: int, action: Action) -> None:
            async with slots:
                try:
                    successes[number] = await self._apply_action(observed, action)
                except EdgeAIError as error:
                    failures.append(error)

        try:
            async with TaskGroup() as tasks:
                for number, action in enumerate(actions):
                    tasks.create_task(attempt(number, action), name=f"action on {observed.ref}")
        finally:
            self._record(observed, filter(None, successes))
        if failures:
            raise min(failures, key=lambda error: refusal_of(error) is None)

    async def tell(self, observed: Observed, plan: Plan) -> None:
        """Write the status of the plan and record the plan's events. Raises: as `apply`"""
        if plan.status is not None:
            basis = status_of(observed.object)
            await self._status.write(observed.ref, observed.uid, plan.status, basis=basis)
            kind, namespace = self._kinds[observed.type], observed.ref.namespace
            self._metrics.written(kind, namespace, basis, merged(basis, plan.status))
        for event in plan.events:
            about = observed.object if event.about is None else observed.scalers.get(event.about)
            if about is not None:
                self._recorder.record(about, event)

    async def _apply_action(self, observed: Observed, action: Action) -> Success | None:
        """As `_carry_out`. What the API server warns of meanwhile becomes an Event."""
        with warnings.collected() as texts:
            try:
                return await self._carry_out(observed, action)
            finally:
                for text in texts:
                    self._warn(observed, action, text)

    def _warn(self, observed: Observed, action: Action, text: str) -> None:
        """Record a warning once: all pods of a job have the same unknown field."""
        warning = (observed.uid, text)
        if warning not in self._warnings:
            type_ = action.type if isinstance(action, Create | Replace) else action.ref.type
            event = Event(Severity.WARNING, "APIWarning", f"{type_.kind}: {text}")
            self._recorder.record(observed.object, event)
        self._warnings[warning] = None

    async def _carry_out(self, observed: Observed, action: Action) -> Success | None:
        """Returns: what an Event tells; None when nothing has changed, or what programs read"""
        match action:
            case Create():
                self._admission.check(observed, action)
                return await self._create(observed, action)
            case Replace():
                self._admission.check(observed, action)
                return await self._replace(observed, action)
            case Delete():
                return await self._delete(observed, action)
            case PatchStatus():
                objects = {**observed.references, **observed.scalers}
                basis = status_of(objects.get(action.ref, {}))
                await self._status.write(action.ref, action.uid, action.status, basis=basis)
            case Adopt():
                return await self._adopt(observed, action)
            case Patch():
                await self._patch(observed, action.ref, action.patch)
                # No Event: this is for programs, or the plan tells it.
                log.info("done", action=f"patched {action.ref}")
        return None

    async def _create(self, observed: Observed, action: Create) -> Success | None:
        ref = ref_of(action.type, action.object)
        try:
            object_ = await self._live.create(
                action.type, action.object, check=partial(self._owners.check, observed)
            )
        except AlreadyExists:
            await self._require_own(observed, ref)
            return None
        if action.type != PODS:  # a pod is never corrected
            self._drift.note_write(action.object, object_)
        return self._success(observed, "Created", ref)

    async def _require_own(self, observed: Observed, ref: ObjectRef) -> None:
        """Check that the existing object `ref` is the job's own child: an earlier request may have
        created it, and its answer may be lost. Raises: NameConflict, StillTerminating
        """
        try:
            existing = await self._live.get(ref)
        except NotFound:  # the object was deleted since the attempt to create the child
            raise StillTerminating(ref) from None
        owner = controller_of(existing) or {}
        terminating = "deletionTimestamp" in existing["metadata"]
        if owner.get("uid") == observed.uid and not terminating:
            return
        if terminating or _is_predecessor(owner, observed):
            raise StillTerminating(ref, existing)
        raise NameConflict(ref, _describe_owner(owner))

    async def _replace(self, observed: Observed, action: Replace) -> Success | None:
        ref = ref_of(action.type, action.object)
        object_ = await self._live.replace(action.type, action.object)
        if not action.is_drift:
            self._drift.note_write(action.object, object_)
            return self._success(observed, "Replaced", ref)
        existing = observed.children[ref]
        drifted = differences(action.object, existing)
        self._drift.note_write(action.object, object_, drifted=drifted)
        if version_of(object_) == version_of(existing):
            return None  # the API server stores the object in another form; nobody changed it
        fields = ", ".join(list(drifted)[:_MAX_FIELDS_NAMED])
        return self._success(observed, "Restored", ref, f": somebody else had changed {fields}")

    async def _adopt(self, observed: Observed, action: Adopt) -> Success:
        """Make the job the controller of an object. Raises: Conflict when it has changed"""
        metadata = _seen(observed, action.ref)["metadata"]
        owners = [*(metadata.get("ownerReferences") or ()), owner_reference(observed)]
        await self._patch(observed, action.ref, {"metadata": {"ownerReferences": owners}})
        return self._success(observed, "Adopted", action.ref)

    async def _patch(self, observed: Observed, ref: ObjectRef, patch: Mapping[str, Any]) -> None:
        """Raises: Conflict when the object has changed since it was observed"""
        version = version_of(_seen(observed, ref))
        metadata = {**patch.get("metadata", {}), "resourceVersion": version}
        await self._live.patch(ref, {**patch, "metadata": metadata})

    async def _delete(self, observed: Observed, action: Delete) -> Success | None:
        if await self._live.delete(action.ref, action.uid, is_forced=action.is_forced):
            return self._success(observed, "Deleted", action.ref)
        return None

    def _success(self, observed: Observed, what: str, ref: ObjectRef, detail: str = "") -> Success:
        """Count a successful action on `ref`. Returns: what an Event tells of the action"""
        self._metrics.acted(self._kinds[observed.type], what, ref.type)
        return Success(what, ref, detail)

    def _record(self, observed: Observed, successes: Iterable[Success]) -> None:
        for (what, type_), message in messages(successes):
            log.info("done", action=message)
            reason = self._kinds[observed.type].event_reason(what, type_)
            self._recorder.record(observed.object, Event(Severity.NORMAL, reason, message))


def _seen(observed: Observed, ref: ObjectRef) -> Object:
    """The object to patch, as the plan saw it."""
    seen = (observed.children, observed.scalers, observed.references)
    return next(objects[ref] for objects in seen if ref in objects)


def _is_predecessor(owner: Object, observed: Observed) -> bool:
    """Whether `owner` is an earlier job of the same group, kind and name, with another uid."""
    job = (observed.type.group, observed.type.kind, observed.ref.name)
    return (_group_of(owner), owner.get("kind"), owner.get("name")) == job


def _describe_owner(owner: Object) -> str:
    return f"{owner['kind']}.{_group_of(owner)} {owner['name']}" if owner else "no controller"


def _group_of(owner: Object) -> str:
    group, _, _version = str(owner.get("apiVersion", "")).rpartition("/")
    return group
