"""What the page of a service shows of a rollout: its waves, its nodes by version, and its guard.

All of it comes from the stored decision, the pods, and what workers report. Pure and total: the
status may be whatever another release, or somebody else, has written.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from operator import attrgetter
from typing import Final, NamedTuple

from msgspec.structs import replace

from edgeai.api.objects import labels_of
from edgeai.api.resources import CONFIG_MAPS, Object, ObjectRef, ResourceType, ref_of
from edgeai.api.rollouts import ALL_NODES, ModelVersion, Phase, Rollout, RolloutStatus
from edgeai.api.slices import slice_names
from edgeai.api.status import mapping
from edgeai.faults.tones import Tone
from edgeai.ids import NodeName
from globalmanager.contract import Observed, WorkerSettings
from globalmanager.ha.contacts import Contacts
from globalmanager.kinds.edge.jointinferenceservice import KIND
from globalmanager.kinds.edge.jointinferenceservice.fleet import FAILED, STARTING, fleet_of
from globalmanager.kinds.edge.jointinferenceservice.fleet_models import Reports, reports_of
from globalmanager.kinds.edge.jointinferenceservice.model_rollout import stored
from globalmanager.kinds.edge.jointinferenceservice.rollout import Waves, wave_size
from globalmanager.rest.api import ObjectCache

AWAY: Final = "away"
"""How a node out of contact looks: nobody knows what its worker does."""
_LOOKS: Final = (Tone.BAD, AWAY, Tone.WAITING, Tone.GOOD, Tone.DONE)
"""What a person looks at first comes first."""


class RolloutNode(NamedTuple):
    name: str
    labels: Mapping[str, str]
    text: str
    tone: str
    """A Tone, or AWAY."""
    is_reached: bool
    """Whether it gets the version that goes out."""

    @property
    def order(self) -> tuple[int, str]:
        return _LOOKS.index(self.tone), self.name


class GuardView(NamedTuple):
    """What the guard says of the version that goes out, or said of the last one."""

    trace: str
    """Each version has a curve of its own."""
    text: str
    limit: float
    numbers: dict[str, float]
    """The present share. Empty without a sample, and when no version goes out."""
    is_over: bool


class FleetRollout:
    """Args: observed: the service as its kind observes it, with its slices alone"""

    def __init__(self, observed: Observed, state: RolloutStatus) -> None:
        self._observed, self._state = observed, state
        self._spec: Rollout | None = observed.spec.rollout if observed.spec else None
        self._is_under_way = state.phase in (Phase.PROGRESSING, Phase.PAUSED)

    @classmethod
    def of(cls, cache: ObjectCache, type_: ResourceType, job: Object) -> "FleetRollout | None":
        if not mapping(job.get("status")).get("rollout"):
            return None
        slices = (cache.slice(job, name) for name in slice_names(job["metadata"]["name"]))
        observed = Observed(
            type=type_,
            object=job,
            spec=KIND.decode(type_, job).spec,
            children={ref_of(CONFIG_MAPS, one): one for one in slices if one is not None},
            pods=(),
            references={},
            contacts={},
            settings=WorkerSettings(),
        )
        state = stored(observed)
        return None if state is None else cls(observed, state)

    @cached_property
    def _reports(self) -> Reports:
        return reports_of(self._observed)

    def nodes(
        self, nodes: Iterable[Object], contacts: Contacts, children: Mapping[ObjectRef, Object]
    ) -> list[RolloutNode]:
        """The nodes of the fleet; what a person looks at first comes first.

        Args: children: of the service, with its pods
        """
        spec, waves, rows = self._observed.spec, Waves(self._state), []
        selector = spec.edge_worker.node_selector if spec else {}
        members = {
            NodeName(node["metadata"]["name"]): node
            for node in nodes
            if selector and selector.items() <= labels_of(node).items()
        }
        fleet = fleet_of(replace(self._observed, children=children, nodes=members))
        away = contacts.without_session(members.keys())
        states = fleet.states if fleet else {}
        for name, node in members.items():
            labels, state = labels_of(node), states.get(name, STARTING)
            version = waves.version_of(name, labels)
            what = ("out of contact", AWAY) if name in away else self._what(name, version, state)
            is_reached = version is self._state.version
            rows.append(RolloutNode(name, labels, *what, is_reached))
        return sorted(rows, key=attrgetter("order"))

    def _what(self, node: NodeName, version: ModelVersion, state: str) -> tuple[str, str]:
        """What a node does with the version that it gets, and how it looks.

        Args: state: of its worker
        """
        report = self._reports.get(node)
        # A worker that ends again and again still has the report of its last run.
        if state == FAILED or (report and report.status != "running"):
            return "with a worker that does not run", Tone.BAD
        if report is None:
            return "without a report", Tone.WAITING
        if report.details.model_fault and report.details.fails == version.number:
            return f"unable to load {version}", Tone.BAD
        if report.details.serves(version) != version.number:
            return f"waiting for {version}", Tone.WAITING
        if state == STARTING:
            return "with a worker that is not ready", Tone.WAITING
        is_before = version is not self._state.version and self._is_under_way
        return (f"still with {version}", Tone.DONE) if is_before else (f"with {version}", Tone.GOOD)

    def steps(self, nodes: Collection[RolloutNode]) -> list[tuple[str, str, Tone]]:
        """(wave, how far it is, tone); the present one is WAITING or BAD."""
        waves, size, steps = self._spec.all_waves if self._spec else (), 0, []
        for number, wave in enumerate(waves, 1):
            size = max(size, wave_size(wave, len(nodes)))
            count = f": {size} node{'s' * (size > 1)}" if size and "=" not in wave else ""
            name = "all" if wave == ALL_NODES else wave
            steps.append((name, *self._step(number, count, nodes)))
        return steps

    def _step(self, number: int, count: str, nodes: Collection[RolloutNode]) -> tuple[str, Tone]:
        phase, wave = self._state.phase, self._state.wave
        if phase is Phase.ROLLED_BACK:
            text = "taken back" if number <= wave else "not begun"
            return text, Tone.BAD if number == wave else Tone.DONE
        if number == wave and self._is_under_way:
            reached = [one for one in nodes if one.is_reached]
            text = f"{sum(one.tone == Tone.GOOD for one in reached)} of {len(reached)} nodes serve"
            return text, Tone.BAD if phase is Phase.PAUSED else Tone.WAITING
        is_done = number < wave or phase is Phase.COMPLETE
        return (f"done{count}", Tone.GOOD) if is_done else (f"to come{count}", Tone.DONE)

    def guard(self) -> GuardView | None:
        guard = self._spec.guard if self._spec else None
        if guard is None:
            return None
        key, reports = f"{guard.metric} of {self._state.version}", self._reports.values()
        counts = (one.counts(self._state.version, guard.metric) for one in reports)
        samples, hits = guard.share_of(counts) if self._is_under_way else (0.0, 0.0)
        share = hits / samples if samples else None
        figures = "" if share is None else f" is {share:.4g} of {samples:.0f} samples, and"
        text = f"{key}{figures} must be {guard.operator} {guard.threshold:g}"
        if self._is_under_way and samples < guard.min_samples:
            text += f"; judged from {guard.min_samples} samples on"
        numbers = {} if share is None else {key: share}
        trace, is_over = f"{self._observed.uid} {key}", not self._is_under_way
        return GuardView(trace, text, guard.threshold, numbers, is_over)
