"""The .status that ScaleOut and ScaleIn share, and who writes which part of it.

A scaler gets its status from its own kind (`waiting_or_refused`) until it is Created or refused.
All that follows is written by the plan of the job that executes the scaler. So two writers never
meet, and each of many scalers says at once that it waits.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from edgeai.api.definitions import Definition
from edgeai.api.elastic import MAY_SCALE, SCALER_ENDS, TRAINING_JOBS, ScalerState
from edgeai.api.objects import controllers, is_being_deleted
from edgeai.api.resources import Object, ObjectRef
from edgeai.api.schemas import Column
from edgeai.api.status import MAX_MESSAGE_CHARS, Truth, condition_of, mapping, mappings
from edgeai.faults.faults import STALLED
from edgeai.text import printable
from edgeai.times import rfc3339
from globalmanager.contract import Event, Job, Kind, Observed, Plan, Severity
from globalmanager.kinds.elastic.scalers import Scaler, job_of

_STATES: Final = tuple(ScalerState)  # a status can hold anything, also what has no hash

_BEFORE: Final = {state: _STATES[:number] for number, state in enumerate(_STATES)}
"""State -> the states whose conditions stay when a scaler enters the state."""


def state_of(scaler: Object) -> ScalerState | None:
    """The phase; None before the first one. Total."""
    phase = mapping(scaler.get("status")).get("phase")
    return ScalerState(phase) if isinstance(phase, str) and phase in _STATES else None


def has_ended(scaler: Object) -> bool:
    return state_of(scaler) in SCALER_ENDS


def has_condition(scaler: Object, state: ScalerState) -> bool:
    return any(entry.get("type") == state for entry in _entries(scaler))


def reached(
    scaler: Object, kind: str, state: ScalerState, message: str, now: datetime
) -> dict[str, Any]:
    """The fields of .status for a new state. Args: kind: of the scaler: ScaleOut or ScaleIn"""
    at = rfc3339(now)
    text = message[:MAX_MESSAGE_CHARS]
    entry = {
        "type": str(state),
        "status": str(Truth.TRUE),
        "reason": _reason(kind, state),
        "message": text,
        "lastUpdateTime": at,
        "lastTransitionTime": at,
    }
    earlier = [
        dict(condition) for condition in _entries(scaler) if condition.get("type") in _BEFORE[state]
    ]
    fields: dict[str, Any] = {"phase": str(state), "message": text, "conditions": [*earlier, entry]}
    # The timeout begins here and not with the creation: a scaler may wait long for its turn.
    if state is ScalerState.SCALING:
        fields["startTime"] = at
    if state in SCALER_ENDS:
        fields["completionTime"] = at
    return fields


def event(kind: str, state: ScalerState, message: str, *, about: ObjectRef | None = None) -> Event:
    """The event with which a scaler enters `state`. Args: about: the scaler, in the job's plan"""
    severity = Severity.WARNING if state is ScalerState.FAILED else Severity.NORMAL
    return Event(severity, _reason(kind, state), message[:MAX_MESSAGE_CHARS], about=about)


def _reason(kind: str, state: ScalerState) -> str:
    """For example "ScaleOutSucceeded"."""
    return f"{kind}{state.removeprefix('Scale')}"


def _entries(scaler: Object) -> list[Mapping[str, Any]]:
    entries = mappings(mapping(scaler.get("status")).get("conditions"))
    return [entry for entry in entries if entry.get("type") in list(ScalerState)]


# ---- a scaler's own kind ------------------------------------------------------------------------


def scaler_kind(definition: Definition, reader: Callable[[Object], Scaler]) -> Kind:
    """ScaleOut or ScaleIn."""
    return Kind(
        definition=definition,
        columns=(
            # As the column of the et-operator, so the last condition must be the phase.
            Column("Phase", "string", ".status.conditions[-1:].type"),
            Column("Age", "date", ".metadata.creationTimestamp"),
        ),
        read=reader,
        references=references,
        plan=waiting_or_refused,
    )


def references(job: Job) -> frozenset[ObjectRef]:
    """The TrainingJob that the scaler names."""
    name = job_of(job.object)
    return frozenset({ObjectRef(TRAINING_JOBS, job.ref.namespace, name)} if name else ())


def waiting_or_refused(observed: Observed, now: datetime) -> Plan:
    """Refuses a scaler with a wrong spec, and says what each other one waits for."""
    scaler, kind, name = observed.object, observed.type.kind, observed.ref.name
    # The end of a scaler is final, whatever happens to its job.
    if is_being_deleted(scaler) or has_ended(scaler):
        return Plan()
    stranger = _stranger(observed)
    if state_of(scaler) not in (None, ScalerState.CREATED):
        # A job executes the scaler, or did so until somebody edited the name of the job.
        problem = f"spec.selector.name was changed while {stranger} executed {kind} {name}"
        return _refused(observed, problem, now) if stranger else Plan()
    # A scaler that is wrong ends here, so it never holds up the scalers behind it.
    if observed.invalid is not None:
        return _refused(observed, f"{kind} {name} cannot be executed: {observed.invalid}", now)
    if stranger:
        message = f"is not executed, because {stranger} controls it: create it without owners"
        return _waiting(scaler, "NotAdopted", message)
    job = next(iter(observed.references.values()), None)
    if job is not None:
        return _created(observed, job, now)
    # A scaler may be applied before its job, so a missing job is no failure.
    where = f"namespace {observed.ref.namespace}"
    text = f"TrainingJob {job_of(scaler)}"
    message = f"waits for {text} (spec.selector.name), which does not exist in {where}"
    return _waiting(scaler, "JobNotFound", message)


def _refused(observed: Observed, message: str, now: datetime) -> Plan:
    kind = observed.type.kind
    fields = reached(observed.object, kind, ScalerState.FAILED, message, now)
    return Plan(status=fields, events=(event(kind, ScalerState.FAILED, message),))


def _created(observed: Observed, job: Object, now: datetime) -> Plan:
    # From then on the plan of the job says what the scaler waits for.
    if state_of(observed.object) is not None:
        return Plan()
    message = reason_to_wait(job)
    kind = observed.type.kind
    return Plan(status=reached(observed.object, kind, ScalerState.CREATED, message, now))


def reason_to_wait(job: Object) -> str:
    """What a created scaler of the job waits for, with the fault of a job that does not start. No
    other scaler is named: else the end of each would change the status of all.
    """
    recorded, name = mapping(job.get("status")), job["metadata"]["name"]
    text = f"waits until TrainingJob {name} is Running and has executed the scalers that were"
    text = f"{text} created before"
    fault = condition_of(job, STALLED).get("message")
    # A job that runs executes scalers whatever its other faults are.
    if fault and recorded.get("phase") not in MAY_SCALE:
        text = f"{text}; TrainingJob {name} is stalled: {printable(str(fault))}"
    return text[:MAX_MESSAGE_CHARS]


def waits(scaler: Object, message: str, now: datetime) -> dict[str, Any]:
    """The fields of .status with which a created scaler waits for something else than before."""
    conditions = [
        {**entry, "message": message, "lastUpdateTime": rfc3339(now)}
        for entry in _entries(scaler)
        if entry.get("type") == ScalerState.CREATED
    ]
    return {"message": message, **({"conditions": conditions[:1]} if conditions else {})}


def _waiting(scaler: Object, reason: str, message: str) -> Plan:
    text = message[:MAX_MESSAGE_CHARS]
    # The same words are no news.
    if mapping(scaler.get("status")).get("message") == text:
        return Plan()
    return Plan(status={"message": text}, events=(Event(Severity.NORMAL, reason, text),))


def _stranger(observed: Observed) -> str:
    """The controller of a scaler that is not the TrainingJob that the scaler names; "" for none."""
    jobs = [job["metadata"].get("uid") for job in observed.references.values()]
    for owner in controllers(observed.object):
        # By uid, because a job that was created again under the name is another job.
        if owner["uid"] not in jobs:
            return f"{owner.get('kind')} {owner.get('name')}"
    return ""
