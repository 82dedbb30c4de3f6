"""A service with a worker on each of many nodes, whose new version is on its way in waves."""

from collections.abc import Collection
from typing import Any, Final

import msgspec

from edgeai.api.resources import PODS, Object, ref_of
from edgeai.api.rollouts import ModelVersion, Phase, RolloutStatus
from edgeai.api.slices import SUMMARY, slice_name, slice_names
from edgeai.ids import NodeName, WorkerName
from globalmanager.kinds.edge.jointinferenceservice.rollout import Waves, place_of
from globalmanager.rest.console.board import ZONE_LABEL
from tests.globalmanager.kinds.edge.samples import EDGEAI
from tests.globalmanager.rest.cluster import RestSide, object_of

NAME: Final = "cameras"
PAGE: Final = f"/jobs/jointinferenceservices.edgeai.io/default/{NAME}"
SITES: Final = ("berlin", "lyon", "porto", "turin")
WAVES: Final = ("1", "10%", "50%")
_CAMERA: Final = {"camera": "yes"}
_CONTAINERS: Final = {"containers": [{"name": "main", "image": "a"}]}
_GUARD: Final = {"metric": "hard", "operator": "<", "threshold": 0.3, "minSamples": 500}
BEFORE: Final = ModelVersion(generation=6, url="https://models.example.org/6.onnx", number=6)
NEW: Final = ModelVersion(generation=7, url="https://models.example.org/7.onnx", number=7)
_MESSAGES: Final = {
    Phase.ROLLED_BACK: (
        "RolledBack",
        "hard is 0.4127 of 5210 samples with version 7, and must be < 0.3: every node gets what "
        "it had before, now version 6",
    ),
    Phase.PAUSED: ("VersionFailed", "hard is 0.4127 of 5210 samples with version 7"),
    Phase.COMPLETE: ("Complete", "every node gets version 7"),
}


class FleetSide:
    """The fleet in the caches of a server.

    Args: count: number of nodes, of which number 7 and so on have lost contact
    """

    def __init__(self, side: RestSide, *, count: int) -> None:
        self._cluster, self._contacts = side.cluster, side.contacts
        self.nodes = [NodeName(f"camera-{number:04d}") for number in range(count)]
        self._cluster.node_names = list(self.nodes)
        self._cluster.node_labels = {
            node: {**_CAMERA, ZONE_LABEL: SITES[number % len(SITES)]}
            for number, node in enumerate(self.nodes)
        }
        self.away = set(self.nodes[7::40])
        for node in self.nodes:
            if node not in self.away:
                self._contacts.claim(node, ledger="l")

    def show(
        self,
        phase: Phase,
        *,
        wave: int = 2,
        waiting: int = 0,
        broken: int = 0,
        crashing: int = 0,
        hard: int = 20,
        version: ModelVersion = NEW,
        **rollout: Any,
    ) -> None:
        """
        Args:
            waiting, broken: so many nodes of the wave have not loaded it yet, or cannot
            crashing: the workers of so many nodes have loaded it and end again and again
            hard: of 100 samples of each worker
            rollout: fields of the spec
        """
        sizes = (0, 1, len(self.nodes) // 10, len(self.nodes) // 2, len(self.nodes))
        in_order = sorted(self.nodes, key=lambda node: place_of(node, version))
        reach = place_of(in_order[max(1, sizes[wave]) - 1], version)
        state = state_of(phase, wave=wave, reach=reach, version=version)
        served, waves, data = 0, Waves(state), {name: {SUMMARY: "{}"} for name in slice_names(NAME)}
        for node in in_order:
            content, fault = waves.version_of(node, {}), ""
            if content is version and node not in self.away and broken + waiting:
                fault = f"version {version.number}: no model" if broken else ""
                broken, waiting = (broken - 1, waiting) if broken else (broken, waiting - 1)
                content = BEFORE
            served += content is version and node not in self.away
            worker = WorkerName(f"{NAME}-node-{node}")
            entry = _entry(node, content.number, hard, fault)
            data[slice_name(NAME, worker)][worker] = msgspec.json.encode(entry).decode()
        progress = f"wave {wave} of 4: {served} of {sizes[wave]} nodes serve version 7"
        self._cluster.objects = [_service(state, rollout, progress)]
        serving = [node for node in in_order if node not in self.away]
        self._show_pods(frozenset(serving[:crashing]))
        self._cluster.slices = {
            name: {"metadata": {"name": name, "namespace": "default"}, "data": part}
            for name, part in data.items()
        }

    def _show_pods(self, crashing: Collection[NodeName]) -> None:
        waits = [{"name": "main", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]
        pods = {}
        for node in self.nodes:
            is_ready = node not in crashing
            metadata = {"name": f"{NAME}-node-{node}", "namespace": "default"}
            ready = {"type": "Ready", "status": str(is_ready)}
            status = {"conditions": [ready], "containerStatuses": [] if is_ready else waits}
            pod = {"metadata": metadata, "spec": {"nodeName": node}, "status": status}
            pods[ref_of(PODS, pod)] = pod
        [service] = self._cluster.objects
        self._cluster.children_of = {ref_of(EDGEAI, service): pods}


def state_of(phase: Phase, *, wave: int, reach: int, version: ModelVersion = NEW) -> RolloutStatus:
    return RolloutStatus(version=version, previous=BEFORE, phase=phase, wave=wave, reach=reach)


def _service(state: RolloutStatus, rollout: dict[str, Any], progress: str) -> Object:
    edge = {
        "perNode": True,
        "nodeSelector": _CAMERA,
        "model": {"name": "small", "hotUpdate": True},
        "template": {"spec": _CONTAINERS},
    }
    cloud = {"model": {"name": "big"}, "template": {"spec": _CONTAINERS}}
    waves = {"waves": list(WAVES), "guard": _GUARD, **rollout}
    waits = f"{progress}; waits 900 s from 2026-01-02T03:04:05Z"
    reason, message = _MESSAGES.get(state.phase, ("Progressing", waits))
    service = object_of(NAME)
    service["metadata"]["creationTimestamp"] = "2026-01-02T03:04:05Z"
    return {
        **service,
        "spec": {"edgeWorker": edge, "cloudWorker": cloud, "rollout": waves},
        "status": {
            "phase": "Running",
            "rollout": msgspec.to_builtins(state),
            "metrics": [{"key": "seen", "value": "8000"}],
            "conditions": [
                {"type": "RolledOut", "status": "Unknown", "reason": reason, "message": message}
            ],
        },
    }


def _entry(node: str, number: int, hard: int, fault: str) -> Object:
    return {
        "node": node,
        "status": "running",
        "details": {"modelVersion": str(number), **({"modelFault": fault} if fault else {})},
        "taskInfo": {"version": number, "seenOfVersion": 100, "hardOfVersion": hard},
    }
