"""The scalers of a job: which one is executed, what it does now, and what each of them is told.

Scalers are executed one at a time, the oldest first. A scaler that has begun goes on before any
other one, whatever its age. An edit of `replicas` in the job's own spec, as by `kubectl scale`,
becomes a scaler too, so all changes of the size go one way.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Final, NamedTuple

from edgeai.api.elastic import SCALE_INS, SCALE_OUTS, SCALER_ENDS, ScalerState
from edgeai.api.objects import SPEC_HASH, is_being_deleted
from edgeai.api.resources import Object, ObjectRef, ResourceType, ref_of
from edgeai.api.status import MAX_MESSAGE_CHARS, mapping
from edgeai.faults.faults import STALLED
from edgeai.ids import Uid
from globalmanager.contract import Action, Adopt, Create, Event, Execution, Observed, PatchStatus
from globalmanager.kinds.elastic import scaler_status, scalers
from globalmanager.kinds.elastic.scaler_status import has_ended, state_of
from globalmanager.kinds.elastic.trainingjob import room, scale_in, scale_out
from globalmanager.kinds.elastic.trainingjob.scaling_step import ActiveScaler, Step, StepInputs
from globalmanager.kinds.elastic.trainingjob.spec import is_suspended
from globalmanager.kinds.elastic.trainingjob.table import Table
from globalmanager.kinds.shared import children, objects, status
from globalmanager.kinds.shared.children import Stages
from globalmanager.kinds.shared.lifecycle import Timers, pause_left_s

SCALERS: Final = {SCALE_OUTS: scalers.job_of, SCALE_INS: scalers.job_of}
"""Types of the scalers, for the Kind."""
_STEPS: Final = {"ScaleOut": scale_out.step, "ScaleIn": scale_in.step}
_NAME_CONFLICT: Final = "NameConflict"
"""Reason of the engine's refusal when an object of another owner has the name."""
_FIRST_PAUSE_S: Final = 60.0
_MAX_PAUSE_S: Final = 3600.0
"""Between two ScaleIns of the job to the same limit."""
# A ScaleIn that has failed stays for the user to read, so the tries must end.
_MAX_TRIES: Final = 10
_MAX_WRITES: Final = 50
"""Scalers that one plan adopts, or whose status it writes. They cause the next plan."""


class Scaling(NamedTuple):
    """What the scalers make of the job now."""

    table: Table
    current: str = ""
    """The scaler that is being executed after this plan: "ScaleOut:<namespace>/<name>"."""
    stages: Stages = ()
    """The status of scalers, and deletions of new workers that have failed. They come before all
    other changes, also when the size has just changed."""
    independent_actions: tuple[Action, ...] = ()
    """Adoptions and the new scaler. Nothing else of the job waits for these."""
    fields: Mapping[str, Any] = {}
    """Fields of the job's status."""
    events: tuple[Event, ...] = ()
    executions: Mapping[str, Execution] = {}
    timers: Timers = Timers()
    scale_out: str = ""
    """The name of the ScaleOut that adds the workers that are RESERVED or HIDDEN."""
    problem: str = ""
    """Why an elastic job has more workers than its limit: its own ScaleIn has failed."""


def adoptions(observed: Observed) -> tuple[Adopt, ...]:
    """Adopt the scalers without a controller."""
    # One that its own kind has told nothing changes soon, so the adoption would meet a conflict.
    ready = (
        adoption
        for adoption in children.adoptions(observed)
        if state_of(observed.scalers[adoption.ref]) is not None
    )
    # A plan that took 10,000 scalers at once held up all other jobs for more than a second.
    return tuple(islice(ready, _MAX_WRITES))


def queued(observed: Observed, now: datetime) -> Stages:
    """What the scalers of a suspended job are told, which wait until the job runs again."""
    words = tuple(_waiting_messages(observed, unfinished(observed), now))
    return tuple(stage for stage in (adoptions(observed), words) if stage)


def reserved(observed: Observed, unfinished_scalers: Sequence[ActiveScaler]) -> frozenset[str]:
    """The workers that the current scaler adds or removes."""
    current = _current(unfinished_scalers)
    return frozenset() if current is None else frozenset(current.names(observed.ref.name))


def _current(unfinished_scalers: Sequence[ActiveScaler]) -> ActiveScaler | None:
    return next((scaler for scaler in unfinished_scalers if scaler.has_begun), None)


def execute(
    inputs: StepInputs, unfinished_scalers: Sequence[ActiveScaler], *, may_begin: bool
) -> Scaling:
    """Args: may_begin: whether the job is in a state in which a scaler can begin"""
    # A scaler that has begun goes on in each state of the job, or it would hold up the others.
    current = _current(unfinished_scalers)
    # The oldest first: the et-operator begins with the newest, so an old scaler may never begin.
    if current is None and may_begin:
        current = next((scaler for scaler in unfinished_scalers if scaler.is_created), None)
    step = Step(inputs.table) if current is None else _STEPS[current.kind](inputs, current)
    # The phase of the job is Scaling exactly as long as the scaler says that it scales.
    is_active = (
        current is not None
        and (current.has_begun or step.state is ScalerState.SCALING)
        and step.state not in SCALER_ENDS
    )
    patches, events = _current_report(inputs, current, step)
    # An edit of `replicas` compares with the size before this step, and adds the scalers to it.
    resize = _from_replicas(inputs, unfinished_scalers)
    others = [scaler for scaler in unfinished_scalers if scaler is not current]
    stages = (
        (*_waiting_messages(inputs.job.observed, others, inputs.job.now), *patches),
        step.deletions,
    )
    is_scale_out = current is not None and current.has_begun and current.kind == "ScaleOut"
    ref = current.ref if current is not None and is_active else None
    return Scaling(
        step.table,
        f"{ref.type.kind}:{ref.namespace}/{ref.name}" if ref else "",
        tuple(stage for stage in stages if stage),
        (*adoptions(inputs.job.observed), *resize.creates),
        {"observedReplicas": resize.replicas},
        events,
        step.executions,
        step.timers.add(resize.wait_s),
        current.ref.name if current is not None and is_scale_out else "",
        resize.problem,
    )


def refused(observed: Observed, now: datetime) -> tuple[tuple[Action, ...], tuple[Event, ...]]:
    """What the scalers of a job that has ended are told: (actions, events)."""
    text = f"TrainingJob {observed.ref.name} has ended"
    actions: list[Action] = [*adoptions(observed)]
    events: list[Event] = []
    # The own kind of the others still writes their status, and a status has one writer at a time.
    active = (scaler for scaler in unfinished(observed) if scaler.is_created or scaler.has_begun)
    for scaler in islice(active, _MAX_WRITES):
        fields = scaler_status.reached(scaler.object, scaler.kind, ScalerState.FAILED, text, now)
        actions.append(_patch(scaler, fields))
        events += _events(scaler, ScalerState.FAILED, text)
    return tuple(actions), tuple(events)


def unfinished(observed: Observed, job_start: str = "") -> list[ActiveScaler]:
    """The adopted scalers that have not ended, the oldest first, also with a wrong spec.

    Args: job_start: when the job was first worked on, or was last resumed
    """
    return [
        ActiveScaler(ref, scaler, job_start)
        for ref, scaler in observed.scalers.items()
        if children.is_adopted(observed, scaler)
        and not is_being_deleted(scaler)
        and not has_ended(scaler)
    ]


# ---- what scalers are told ----------------------------------------------------------------------


def _waiting_messages(
    observed: Observed, unfinished_scalers: Sequence[ActiveScaler], now: datetime
) -> Iterator[PatchStatus]:
    """What created scalers wait for, when that has changed. Their own kind says it first."""
    text = scaler_status.reason_to_wait(observed.object)
    # Such a job does not become Running by itself: somebody has to resume it.
    if is_suspended(observed.object):
        text = f"waits: TrainingJob {observed.ref.name} is suspended; resume it"
    stale = (
        scaler
        for scaler in unfinished_scalers
        if _message(scaler.object) != text and scaler.is_created
    )
    for scaler in islice(stale, _MAX_WRITES):
        yield _patch(scaler, scaler_status.waits(scaler.object, text, now))


def _message(scaler: Object) -> object:
    return mapping(scaler.get("status")).get("message")


def _current_report(
    inputs: StepInputs, current: ActiveScaler | None, step: Step
) -> tuple[tuple[PatchStatus, ...], tuple[Event, ...]]:
    if current is None or not (step.state or step.message):
        return (), ()
    if step.state is None:
        text = step.message[:MAX_MESSAGE_CHARS]
        recorded = mapping(current.object.get("status")).get("message")
        fields: dict[str, Any] = {"message": text}
        return ((_patch(current, fields),) if recorded != text else ()), ()
    states = [step.state]
    if step.state is ScalerState.SUCCEEDED and not current.has_run_script:
        states = [ScalerState.SCRIPT_EXECUTED, step.state]  # the launcher has the new list
    scaler, fields = current.object, {}
    for state in states:
        fields |= scaler_status.reached(scaler, current.kind, state, step.message, inputs.job.now)
        scaler = {**scaler, "status": {**(scaler.get("status") or {}), **fields}}
    return (_patch(current, {**fields, **step.fields}),), _events(current, step.state, step.message)


def _patch(current: ActiveScaler, fields: Mapping[str, Any]) -> PatchStatus:
    return PatchStatus(current.ref, Uid(current.object["metadata"]["uid"]), fields)


def _events(current: ActiveScaler, state: ScalerState, message: str) -> tuple[Event, ...]:
    """One event about the scaler and one about the job."""
    job_message = f"{current.kind} {current.ref.name}: {message}"
    return (
        scaler_status.event(current.kind, state, message, about=current.ref),
        scaler_status.event(current.kind, state, job_message),
    )


# ---- kubectl scale ------------------------------------------------------------------------------


class _Resize(NamedTuple):
    """What `replicas` or the limit of the job asks for."""

    creates: tuple[Create, ...]
    """The new scaler."""
    replicas: int
    """The number with which the plan has dealt."""
    problem: str = ""
    wait_s: float | None = None
    """Seconds until the next try."""


def _from_replicas(inputs: StepInputs, unfinished_scalers: Sequence[ActiveScaler]) -> _Resize:
    """The scaler for an edit of `replicas`."""
    desired = inputs.job.spec.replicas
    observed_replicas = status.status_of(inputs.job.observed).get("observedReplicas")
    if inputs.limits_problem:
        # An edit waits for correct limits.
        return _Resize((), observed_replicas if type(observed_replicas) is int else desired)
    # In an elastic job the number is a limit, not a size: the room decides about the size.
    if inputs.job.spec.is_elastic and (
        observed_replicas == desired or room.accepts(inputs.job.spec, desired)
    ):
        return _to_limit(inputs, unfinished_scalers)
    # Before the first plan nobody has scaled: the job starts with this number.
    if observed_replicas == desired or type(observed_replicas) is not int:
        return _Resize((), desired)
    if adoptions(inputs.job.observed):
        return _Resize((), observed_replicas)  # the number counts the scalers that were adopted
    difference = desired - _expected(inputs, unfinished_scalers)
    # The scalers that wait already bring the job to this number.
    if difference == 0:
        return _Resize((), desired)
    # A number beyond the limits makes a scaler, too. It fails and says why, and the job goes on.
    type_ = SCALE_OUTS if difference > 0 else SCALE_INS
    content = (
        {"toAdd": {"count": difference}} if difference > 0 else {"toDelete": {"count": -difference}}
    )
    scaler = _scaler(inputs, type_, content)
    # A plan about a refusal is not carried out, so the number still waits for its scaler.
    return _Resize(
        (scaler,) if scaler is not None else (),
        observed_replicas if inputs.job.observed.refusal else desired,
    )


def _to_limit(inputs: StepInputs, unfinished_scalers: Sequence[ActiveScaler]) -> _Resize:
    """The ScaleIn of an elastic job with more workers than `kubectl scale` or maxReplicas allow. A
    ScaleIn that has failed is followed by another one, ever more slowly.
    """
    limit = room.limit(inputs.job.observed, inputs.job.spec)
    no_change = _Resize((), inputs.job.spec.replicas)
    surplus = _expected(inputs, unfinished_scalers) - limit
    # A scaler that the job has not adopted yet is not counted yet.
    if surplus <= 0 or adoptions(inputs.job.observed):
        return no_change
    former = _former_scale_ins(inputs.job.observed)
    last = max(former, key=_ended_at, default=None)
    if last is not None:
        cause = mapping(last.get("status")).get("message")
        # The job tells why it is above its limit, because the pods show no fault.
        has_too_many = (
            f"{inputs.job.text} has {len(inputs.table.workers)} workers, above its limit, {limit}"
        )
        is_last_try = len(former) >= _MAX_TRIES
        remedy = (
            "delete the ScaleIn, and another one follows"
            if is_last_try
            else "another ScaleIn follows, and at once when you delete this one"
        )
        problem = f"ScaleIn {last['metadata']['name']}: {cause}. {has_too_many}; {remedy}"
        pause_s = min(_FIRST_PAUSE_S * 2.0 ** (len(former) - 1), _MAX_PAUSE_S)
        wait_s = pause_left_s(_ended_at(last), pause_s, inputs.job.now)
        if is_last_try or wait_s > 0:
            return no_change._replace(problem=problem, wait_s=None if is_last_try else wait_s)
    scaler = _scaler(inputs, SCALE_INS, {"toDelete": {"count": surplus}}, is_tried_again=True)
    return no_change if scaler is None else no_change._replace(creates=(scaler,))


def _former_scale_ins(job: Observed) -> list[Object]:
    """The ScaleIns that the job has made for the present spec and that have ended."""
    name = _first_name(job)
    return [
        scaler
        for ref, scaler in job.scalers.items()
        if ref.type == SCALE_INS
        and (ref.name == name or ref.name.startswith(f"{name}-"))
        and children.is_adopted(job, scaler)
        # Only a scaler that the job made has a hash. A ScaleIn of the user is no try of the job.
        and SPEC_HASH in mapping(scaler["metadata"].get("annotations"))
        and has_ended(scaler)
    ]


def _ended_at(scaler: Object) -> str:
    return str(mapping(scaler.get("status")).get("completionTime", ""))


def _expected(inputs: StepInputs, unfinished_scalers: Sequence[ActiveScaler]) -> int:
    """The number of workers after all unfinished scalers."""
    job, target = inputs.job.observed.ref.name, inputs.table.workers.keys()
    number = len(target)
    for scaler in unfinished_scalers:
        names = frozenset(scaler.names(job) if scaler.has_begun else ())
        if scaler.kind == "ScaleIn":
            number -= len(names & target) if names else scaler.scaler.count if scaler.scaler else 0
        # A ScaleOut names its workers one plan before the table has them.
        elif scaler.scaler and not inputs.has_enlisted(names):
            number += scaler.scaler.count
    return number


def _first_name(job: Observed) -> str:
    # Each plan about one edit finds the same name, so no edit makes two scalers.
    return f"{job.ref.name}-scale-{job.generation}"


def _scaler(
    inputs: StepInputs,
    type_: ResourceType,
    content: Mapping[str, Any],
    *,
    is_tried_again: bool = False,
) -> Create | None:
    """The scaler that an edit makes; None when it exists and only the status was not written. A
    scaler of the user that has the name is passed over, because the name can be guessed.

    Args: is_tried_again: whether a scaler that has ended is passed over, too
    """
    job = inputs.job.observed
    spec = {"selector": {"name": job.ref.name}, **content}
    name = _first_name(job)
    number = 1
    while True:
        numbered = name if number == 1 else f"{name}-{number}"
        scaler = objects.child(job, type_, name=numbered, role="scaler", content={"spec": spec})
        ref = ref_of(type_, scaler.object)
        existing = job.scalers.get(ref)
        is_over = is_tried_again and existing is not None and has_ended(existing)
        if existing is not None and not is_over and _is_ours(job, existing, scaler.object):
            return None
        if existing is None and not _was_refused(job, ref):
            return scaler
        number += 1


def _is_ours(job: Observed, existing: Object, desired: Object) -> bool:
    """Whether the job made the existing scaler, and for the same change."""
    marks = mapping(existing["metadata"].get("annotations"))
    is_same = marks.get(SPEC_HASH) == desired["metadata"]["annotations"][SPEC_HASH]
    return is_same and children.is_adopted(job, existing)


def _was_refused(job: Observed, ref: ObjectRef) -> bool:
    """Whether the API has refused a scaler of this name, which a scaler of another job has."""
    # In the plan of the refusal itself the name stays the same.
    stall = status.condition(job, STALLED)
    is_conflict = job.refusal is None and stall.get("reason") == _NAME_CONFLICT
    return is_conflict and str(stall.get("message")).startswith(f"{ref} ")
