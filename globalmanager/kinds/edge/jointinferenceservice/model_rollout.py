"""The rollout of a fleet's Model: from the objects of the API to the decisions of `rollout`, and
from the stored decision to conditions, Events and the contents of nodes.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from edgeai.api.jointinferenceservice import JointInferenceServiceSpec
from edgeai.api.resources import Object, ObjectRef
from edgeai.api.rollouts import ModelVersion, Phase, Rollout, RolloutStatus
from edgeai.api.specs import InvalidSpec
from edgeai.api.status import Finding, Truth, mapping
from edgeai.ids import NodeName
from globalmanager.contract import Event, Observed, Severity
from globalmanager.kinds.edge import references
from globalmanager.kinds.edge.jointinferenceservice import rollout as rollouts
from globalmanager.kinds.edge.jointinferenceservice.fleet import Fleet
from globalmanager.kinds.edge.jointinferenceservice.fleet_models import Reports, members
from globalmanager.kinds.edge.jointinferenceservice.rollout import Decision, Waves
from globalmanager.kinds.shared import status

FIELD: Final = "rollout"
"""Of .status: the decisions on which assignments rest."""
ROLLED_OUT: Final = "RolledOut"
_STATES: Final = {
    Phase.PROGRESSING: (Truth.UNKNOWN, "Progressing"),
    Phase.PAUSED: (Truth.FALSE, "VersionFailed"),
    Phase.ROLLED_BACK: (Truth.FALSE, "RolledBack"),
    Phase.COMPLETE: (Truth.TRUE, "Complete"),
}
"""Phase -> status and reason of the condition."""


class Progress(msgspec.Struct, frozen=True):
    fields: Mapping[str, Any] = {}
    findings: tuple[Finding, ...] = ()
    events: tuple[Event, ...] = ()
    check_in_s: float | None = None


NO_PROGRESS: Final = Progress()


def stored(observed: Observed) -> RolloutStatus | None:
    value = status.status_of(observed).get(FIELD)
    try:
        return msgspec.convert(value, RolloutStatus) if value else None
    except msgspec.ValidationError:  # somebody else wrote it
        return None


class Contents:
    """Which content of its Model each node of the service gets."""

    def __init__(self, observed: Observed, model: ObjectRef | None) -> None:
        spec: JointInferenceServiceSpec | None = observed.spec
        # A service that is no fleet any more has no rollout.
        state = stored(observed) if spec is None or spec.edge_worker.per_node else None
        self._nodes = observed.nodes
        self._model = model
        self._waves = Waves(state) if state else None
        self._first: ModelVersion | None = None
        if spec and spec.rollout and state is None and model:
            # A replica may see the service as it was before its first decision, and the Model as it
            # is. What nodes have got since then has a later number than this.
            newest = _published(observed.references.get(model))
            self._first = newest and replace(newest, number=newest.generation)
        self._shared: dict[ModelVersion | None, Mapping[ObjectRef, ModelVersion | None]] = {}

    def of(self, node: NodeName) -> Mapping[ObjectRef, ModelVersion | None]:
        if self._model is None:
            return {}
        content = self._first
        if self._waves:
            metadata = mapping(self._nodes.get(node, {}).get("metadata"))
            content = self._waves.version_of(node, mapping(metadata.get("labels")))
        return self._shared.setdefault(content, {self._model: content})


def advanced(observed: Observed, fleet: Fleet | None, reports: Reports, now: datetime) -> Progress:
    """The next decision about the rollout, from the accepted spec. A service that is no fleet any
    more keeps no decision.
    """
    spec: JointInferenceServiceSpec = observed.spec
    if fleet is None:
        return Progress({FIELD: None}) if FIELD in status.status_of(observed) else NO_PROGRESS
    before = stored(observed)
    if spec.rollout is None and before is None:
        return NO_PROGRESS
    name = spec.edge_worker.model.name
    ref = references.model_ref(observed, name)
    newest = _published(observed.references.get(ref))
    nodes = members(observed, fleet, reports, before, now) if before else ()
    decision = rollouts.decide(spec.rollout, before, newest, nodes, now)
    if decision.state is None:
        return NO_PROGRESS
    value = msgspec.to_builtins(decision.state)
    current = mapping(status.status_of(observed).get(FIELD))
    return Progress(
        {FIELD: status.replacement_patch(current, value)},
        (_finding(decision, decision.state, spec.rollout),),
        _events(before, decision.state),
        decision.check_in_s,
    )


def _published(model: Object | None) -> ModelVersion | None:
    """What the Model names now; None while it names nothing that nodes can fetch."""
    if model is None:
        return None
    try:
        data = references.content_of(model)
    except InvalidSpec:
        return None
    return ModelVersion(
        generation=int(model["metadata"].get("generation", 1)),
        url=data.url,
        sha256=data.sha256,
        credential_name=data.credential_name,
        number=references.newest_number(model),
        model=str(model["metadata"].get("uid", "")),
    )


def _finding(decision: Decision, state: RolloutStatus, rollout: Rollout | None) -> Finding:
    truth, reason = _STATES[state.phase]
    match state.phase:
        case Phase.COMPLETE if decision.progress:
            truth, reason = _STATES[Phase.PAUSED]
            message = f"{decision.progress}: publish another one"
        case Phase.COMPLETE:
            message = f"every node gets {state.version}"
        case Phase.ROLLED_BACK:
            message = f"{state.message}: every node gets what it had before, now {state.previous}"
        case Phase.PAUSED:
            message = f"{state.message}: promote it, reject it, or publish another one"
        case _:
            is_paused = rollout is not None and rollout.paused
            reason = "Paused" if is_paused else reason
            message = decision.progress or f"{state.version}: wave {state.wave} begins"
    return Finding(
        ROLLED_OUT, truth, reason, "; ".join([message, *_without_effect(state, rollout)])
    )


def _without_effect(state: RolloutStatus, rollout: Rollout | None) -> list[str]:
    """The fields of the spec that name another version than that which went out last."""
    if rollout is None:
        return []
    present = state.version.number
    is_under_way = state.phase in (Phase.PROGRESSING, Phase.PAUSED)
    promoted = rollout.promoted.version if rollout.promoted else 0
    numbers = {"rejected": rollout.rejected, "promoted": promoted}
    # A former version may stand there since its own rollout, and is told only while a person may
    # have meant the present one.
    return [
        f"spec.rollout.{field} names version {number}, which has no effect on {state.version}"
        for field, number in numbers.items()
        if number > present or (is_under_way and 0 < number < present)
    ]


def _events(before: RolloutStatus | None, after: RolloutStatus) -> tuple[Event, ...]:
    if before is None or after.phase is not Phase.PROGRESSING or not after.wave:
        return ()
    is_same = (before.version.number, before.wave) == (after.version.number, after.wave)
    text = f"{after.version} goes to {after.nodes} nodes of wave {after.wave}"
    return () if is_same else (Event(Severity.NORMAL, "WaveBegun", text),)
