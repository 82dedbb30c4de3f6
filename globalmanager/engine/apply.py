"""Carries out a Plan: its actions in order, each an Event, then its status, then its events.

Called by loop, with the plan of one job resource at a time. What the API answers goes into the
stores, so that the next plan sees it. Decides nothing, but creates only for an owner that lives.
"""

import asyncio
import http
from collections.abc import Sequence
from typing import Final

from common import logs
from common.errors import EdgeAIError
from common.tasks import TaskGroup
from globalmanager.cache.store import controller_of
from globalmanager.contract import (
    Action,
    Adopt,
    Create,
    Delete,
    Event,
    Object,
    ObjectRef,
    Observed,
    PatchStatus,
    Plan,
    Refusal,
    Replace,
    Severity,
    ref_of,
)
from globalmanager.engine.drift import Drift
from globalmanager.engine.events import Recorder
from globalmanager.engine.live import Live
from globalmanager.engine.owners import Owners
from globalmanager.engine.status import StatusWriter, status_of
from globalmanager.kube.errors import AlreadyExists, ApiError, Forbidden, Invalid, NotFound
from globalmanager.rules.lifecycle import Timers
from globalmanager.rules.objects import differences, owner_reference
from globalmanager.rules.status import WAITING

log = logs.get_logger(__name__)

_MANY_TIMES: Final = 3  # put back in a row; then somebody must hear of it
_MAX_FIELDS: Final = 5  # named in a message
_AT_A_TIME: Final = 8  # actions of one plan: no job crowds out the others
_WHAT_TO_DO: Final = {
    "Invalid": "correct the field that it names, in the worker's template",
    "Forbidden": "ask who limits the namespace",
}


class NameConflict(EdgeAIError):
    """The name of an object to create is taken by one that belongs to somebody else."""

    def __init__(self, ref: ObjectRef, owner: str) -> None:
        self.ref, self.owner = ref, owner
        super().__init__(
            f"{ref} exists already and belongs to {owner}; rename or delete one of the two"
        )


class StillThere(EdgeAIError):
    """The name of an object to create is taken by its own past, which is being deleted."""

    def __init__(self, ref: ObjectRef) -> None:
        super().__init__(f"an earlier {ref} is still being deleted")


def refusal_of(error: EdgeAIError) -> Refusal | None:
    """What to tell the user; None for what passes, or may pass, by trying again."""
    match error:
        case NameConflict():
            return Refusal("NameConflict", str(error))
        case StillThere():
            return Refusal(WAITING, str(error))
        case Forbidden() if error.remedy:
            return Refusal("Forbidden", str(error))
        case Invalid() | Forbidden():
            reason = type(error).__name__
            return Refusal(reason, f"{error}; {_WHAT_TO_DO[reason]}")
        case ApiError(code=http.HTTPStatus.BAD_REQUEST):  # a field of the wrong type
            return Refusal("Invalid", f"{error}; {_WHAT_TO_DO['Invalid']}")
    return None


class Applier:
    """Executes plans of any kind.

    Args:
        live: writes what the jobs own
        owners: says for which jobs something may be created
        drift: says what may be put back, and when
    """

    def __init__(
        self,
        live: Live,
        owners: Owners,
        drift: Drift,
        status: StatusWriter,
        recorder: Recorder,
    ) -> None:
        self._live = live
        self._owners = owners
        self._drift = drift
        self._status = status
        self._recorder = recorder

    async def apply(self, observed: Observed, plan: Plan) -> float | None:
        """Stops at a stage that fails: status and events are those of a plan that was carried out.

        Returns: after how many seconds to plan again, though nothing may have changed
        Raises: ApiError, Overloaded, NameConflict, StillThere; the next round plans anew. Conflict
            and NotFound also when the job was deleted meanwhile
        """
        terminating = "deletionTimestamp" in observed.object["metadata"]
        waits = Timers().add(plan.requeue_after_s)
        for stage in plan.stages:
            # What a terminating owner creates, the garbage collector deletes, and so on for ever.
            allowed = [one for one in stage if isinstance(one, Delete) or not terminating]
            waits_s = [self._wait_s(observed, action) for action in allowed]
            due = [one for one, wait_s in zip(allowed, waits_s, strict=True) if wait_s == 0]
            waits = waits.add(*waits_s)
            await self._act_on_all(observed, due)
        await self.tell(observed, plan)
        return waits.next_s

    def _wait_s(self, observed: Observed, action: Action) -> float | None:
        """Seconds until the action may be done, 0 for now; None: there is no need for it."""
        if not isinstance(action, Replace) or not action.is_drift:
            return 0.0
        existing = observed.children[ref_of(action.type, action.object)]
        return self._drift.wait_s(action.object, existing)

    async def _act_on_all(self, observed: Observed, actions: Sequence[Action]) -> None:
        """All actions of one stage, some at a time. Raises: the error that tells the user most"""
        if any(isinstance(action, Create) for action in actions):
            await self._owners.confirm(observed)
        slots = asyncio.Semaphore(_AT_A_TIME)
        failures: list[EdgeAIError] = []

        async def act(action: Action) -> None:
            async with slots:
                try:
                    await self._act(observed, action)
                except EdgeAIError as error:
                    failures.append(error)

        async with TaskGroup() as tasks:
            for action in actions:
                tasks.create_task(act(action), name=f"action on {observed.ref}")
        if failures:
            raise min(failures, key=lambda error: refusal_of(error) is None)

    async def tell(self, observed: Observed, plan: Plan) -> None:
        """Status and events of the plan. Raises: as `apply`"""
        if plan.status is not None:
            basis = status_of(observed.object)
            await self._status.write(observed.ref, observed.uid, plan.status, basis=basis)
        for event in plan.events:
            self._recorder.record(observed.object, event)

    async def _act(self, observed: Observed, action: Action) -> None:
        match action:
            case Create():
                await self._create(observed, action)
            case Replace():
                await self._replace(observed, action)
            case Delete():
                await self._delete(observed, action)
            case PatchStatus():
                known = {**observed.references, **observed.scalers}
                basis = status_of(known.get(action.ref, {}))
                await self._status.write(action.ref, action.uid, action.status, basis=basis)
            case Adopt():
                await self._adopt(observed, action)

    async def _create(self, observed: Observed, action: Create) -> None:
        ref = ref_of(action.type, action.object)
        try:
            created = await self._live.create(
                action.type, action.object, check=lambda: self._owners.check(observed)
            )
        except AlreadyExists:
            await self._find_own(observed, ref)
        else:
            self._drift.written(action.object, created)
            self._done(observed, "Created", ref)

    async def _find_own(self, observed: Observed, ref: ObjectRef) -> None:
        """See that the object that has the name is ours: created before a lost answer."""
        try:
            existing = await self._live.get(ref)
        except NotFound:
            raise StillThere(ref) from None  # and has just gone
        owner = controller_of(existing) or {}
        terminating = "deletionTimestamp" in existing["metadata"]
        if owner.get("uid") == observed.uid and not terminating:
            return
        if terminating or _is_predecessor(owner, observed):
            raise StillThere(ref)
        raise NameConflict(ref, _described(owner))

    async def _replace(self, observed: Observed, action: Replace) -> None:
        ref = ref_of(action.type, action.object)
        replaced = await self._live.replace(action.type, action.object)
        times = self._drift.written(action.object, replaced, is_drift=action.is_drift)
        if not action.is_drift:
            self._done(observed, "Replaced", ref)
            return
        existing = observed.children[ref]
        if _version(replaced) == _version(existing):
            return  # the API server stores the desired object in another form: nobody changed it
        fields = ", ".join(list(differences(action.object, existing))[:_MAX_FIELDS])
        self._done(observed, "Restored", ref, f": somebody else had changed {fields}")
        if times >= _MANY_TIMES:
            message = (
                f"{ref.type.kind} {ref.name} is changed by somebody else again and again "
                f"({fields}) and put back ever more slowly: find out who does so, or change the job"
            )
            self._recorder.record(observed.object, Event(Severity.WARNING, "Drift", message))

    async def _adopt(self, observed: Observed, action: Adopt) -> None:
        """Add the job as controller to the owners of a scaler. Raises: Conflict"""
        metadata = observed.scalers[action.ref]["metadata"]
        owners = [*(metadata.get("ownerReferences") or ()), owner_reference(observed)]
        patch = {"resourceVersion": metadata["resourceVersion"], "ownerReferences": owners}
        await self._live.patch(action.ref, {"metadata": patch})
        self._done(observed, "Adopted", action.ref)

    async def _delete(self, observed: Observed, action: Delete) -> None:
        if await self._live.delete(action.ref, action.uid):
            self._done(observed, "Deleted", action.ref)

    def _done(self, observed: Observed, word: str, ref: ObjectRef, detail: str = "") -> None:
        """Only what was done is an Event: a plan may be refused half-way."""
        log.info("done", action=word, resource=str(ref))
        message = f"{word.lower()} {ref.type.kind} {ref.name}{detail}"
        self._recorder.record(observed.object, Event(Severity.NORMAL, word, message))


def _version(object_: Object) -> str:
    return str(object_["metadata"].get("resourceVersion", ""))


def _is_predecessor(owner: Object, observed: Observed) -> bool:
    """Whether `owner` was a job resource of the same name and group, deleted and made anew."""
    mine = (observed.type.group, observed.type.kind, observed.ref.name)
    return (_group(owner), owner.get("kind"), owner.get("name")) == mine


def _described(owner: Object) -> str:
    return f"{owner['kind']}.{_group(owner)} {owner['name']}" if owner else "no controller"


def _group(owner: Object) -> str:
    group, _, _version = str(owner.get("apiVersion", "")).rpartition("/")
    return group
