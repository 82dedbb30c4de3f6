"""What the workers of a fleet report of the Model that they load hot, from the slices."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from operator import attrgetter
from typing import Annotated, Any, Final

import msgspec

from edgeai.api import slices
from edgeai.api.objects import labels_of
from edgeai.api.pod_state import container_states
from edgeai.api.resources import CONFIG_MAPS, Object
from edgeai.api.rollouts import ModelVersion, Rollout, RolloutStatus
from edgeai.api.status import condition_of, left_s, mapping, worker_entries
from globalmanager.contract import Observed
from globalmanager.kinds.edge import references
from globalmanager.kinds.edge.jointinferenceservice.fleet import FAILED, READY, SILENT, Fleet
from globalmanager.kinds.edge.jointinferenceservice.rollout import Member
from globalmanager.kinds.edge.node_reports import details_of, is_present, reason_of

CRASHING_S: Final = 60.0
"""A worker crashes when Kubernetes has waited for so long to start it again, some four crashes."""
_FAULT: Final = re.compile(r"version ([0-9]{1,15}):")
_MAX_VERSIONS: Final = 5
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class ModelDetails(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    model_version: Count = 0
    """Number of the version that answers; 0: none."""
    model_digest: str = ""
    model_fault: str = ""

    def serves(self, version: ModelVersion) -> int:
        """Number of the version that answers. Other services that use the Model may give `version`
        another number, and its number to other content; the digest is the same for all.
        """
        if not version.sha256 or not self.model_digest:
            return self.model_version
        if self.model_digest == version.sha256:
            return version.number
        return self.model_version if self.model_version != version.number else 0

    @property
    def fails(self) -> int:
        """Number of the version that cannot be loaded; 0: none."""
        match = _FAULT.match(self.model_fault)
        return int(match[1]) if match else 0


class VersionCounts(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Counts of a worker since its process has loaded the version."""

    version: Count = 0
    seen_of_version: Count = 0
    hard_of_version: Count = 0
    uploaded_of_version: Count = 0
    answered_by_cloud_of_version: Count = 0
    fallbacks_of_version: Count = 0


class ModelReport(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """What a worker reports of its model, as its entry in a slice has it."""

    node: str = ""
    status: str = "running"
    details: ModelDetails = ModelDetails()
    task_info: VersionCounts = VersionCounts()

    def counts(self, version: ModelVersion, metric: str) -> tuple[int, int]:
        """Samples that were answered with the version, and hits of a guard's metric among them."""
        details, counts = self.details, self.task_info
        samples, hits = counts.seen_of_version, _METRICS[metric](counts)
        is_of_version = details.serves(version) == version.number
        # Nobody can have counted a part that is greater than the whole.
        is_right = is_of_version and details.model_version == counts.version and hits <= samples
        return (samples, hits) if is_right else (0, 0)


_NOTHING: Final = ModelReport()
_NO_LABELS: Final[Mapping[str, str]] = {}
_METRICS: Final[Mapping[str, Callable[[VersionCounts], int]]] = {
    "hard": attrgetter("hard_of_version"),
    "uploaded": attrgetter("uploaded_of_version"),
    "answeredByCloud": attrgetter("answered_by_cloud_of_version"),
    "fallbacks": attrgetter("fallbacks_of_version"),
}
# Details are texts.
_DECODER: Final = msgspec.json.Decoder(ModelReport, strict=False)
Reports = Mapping[str, ModelReport]
"""Node -> what its worker reports."""


def reports_of(observed: Observed) -> Reports:
    reports: dict[str, ModelReport] = {}
    children = observed.children.items()
    for config_map in [child for ref, child in children if ref.type == CONFIG_MAPS]:
        for text in slices.texts_of(config_map):
            try:
                report = _DECODER.decode(text)
            except (TypeError, ValueError, RecursionError):  # somebody else wrote it
                continue
            reports[report.node] = report
    return reports


def members(
    observed: Observed, fleet: Fleet, reports: Reports, state: RolloutStatus, now: datetime
) -> Iterator[Member]:
    """The nodes of the fleet, with what the rollout of the accepted spec needs of each."""
    contacts, nodes, states = observed.contacts, observed.nodes, fleet.states
    rollout: Rollout = observed.spec.rollout
    version = state.version
    has_labels = any("=" in wave for wave in (*rollout.waves, *state.labels))
    metric = rollout.guard.metric if rollout.guard else "hard"
    obstacles = _obstacles(observed, version)
    for node in fleet.nodes:
        report, contact, worker = reports.get(node, _NOTHING), contacts.get(node), states[node]
        details, serves = report.details, report.details.serves(version)
        yield Member(
            node,
            labels_of(nodes[node]) if has_labels else _NO_LABELS,
            contact is not None and contact.connected,
            # The pod of a node that is silent for Kubernetes may serve.
            worker in (READY, SILENT) and report.status == "running",
            serves,
            details.fails if details.model_fault else 0,
            "" if serves == version.number else obstacles.get(node, ""),
            _crashes_in_s(fleet.pods.get(node, {}), now) if worker == FAILED else math.inf,
            *report.counts(version, metric),
        )


def _obstacles(observed: Observed, version: ModelVersion) -> dict[str, str]:
    """Node -> why it does not get the content of the version, of the nodes that the status of the
    Model follows.
    """
    name = observed.spec.edge_worker.model.name
    ref = references.model_ref(observed, name)
    model = mapping(observed.references.get(ref))
    entries = worker_entries(mapping(model.get("status"))).values()
    return {
        str(one.get("node")): reason_of(one)
        for one in entries
        if is_present(one, version.number) and details_of(one).get("problem")
    }


def _crashes_in_s(pod: Object, now: datetime) -> float:
    waits = (mapping(mapping(one.get("state")).get("waiting")) for one in container_states(pod))
    if not any(one.get("reason") == "CrashLoopBackOff" for one in waits):
        return math.inf
    return left_s(condition_of(pod, "Ready").get("lastTransitionTime"), CRASHING_S, now)


def counted(reports: Reports, fleet: Fleet) -> list[dict[str, Any]]:
    present = [reports[node] for node in fleet.nodes if node in reports]
    numbers = Counter([one.details.model_version for one in present if one.status == "running"])
    del numbers[0]
    most = sorted(numbers.most_common(_MAX_VERSIONS))
    return [{"version": number, "nodes": count} for number, count in most]
