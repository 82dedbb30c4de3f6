"""A JointInferenceService on real nodes: what its CR says, and what its edge worker printed."""

import contextlib
import json
from collections.abc import Mapping
from typing import Any, Final

import pytest

from edgeai.cli.api import Object
from edgeai.demo.joint_inference.train import Figures
from tests.support.cluster import Cluster
from tests.support.inference import CountingService
from tests.support.waiting import eventually

RESOURCE: Final = "/apis/edgeai.io/v1alpha1/jointinferenceservices"
DIFFERENCES: Final = {
    "edge_accuracy": 0.002,
    "joint_accuracy": 0.002,
    "cloud_accuracy": 0.01,  # of the images that it was asked for, in either
    "upload_ratio": 0.002,
}
"""Largest difference of each figure."""


def services(cluster: Cluster) -> list[Object]:
    """Of all namespaces."""
    return cluster.client.list(RESOURCE)


def slower(service: Object, *, name: str, rate_per_s: float) -> Object:
    """The same under another name, which streams fewer images per second."""
    spec = json.loads(json.dumps(service["spec"]))
    (container,) = spec["edgeWorker"]["template"]["spec"]["containers"]
    kept = [each for each in container.get("env", ()) if each["name"] != "STREAM_RATE"]
    container["env"] = [*kept, {"name": "STREAM_RATE", "value": f"{rate_per_s:g}"}]
    metadata = {"name": name, "namespace": service["metadata"]["namespace"]}
    return {key: service[key] for key in ("apiVersion", "kind")} | {
        "metadata": metadata,
        "spec": spec,
    }


def check_figure(result: Mapping[str, Any], figures: Figures, name: str) -> None:
    """What the edge worker measured is what is measured without a cluster."""
    assert result[name] == pytest.approx(getattr(figures, name), abs=DIFFERENCES[name])


class Service(CountingService):
    """One in the API."""

    def __init__(self, cluster: Cluster, object_: Object) -> None:
        super().__init__(cluster.client, object_)
        self._cluster = cluster
        self._metadata = object_["metadata"]

    def pods(self, role: str = "") -> list[Object]:
        root = f"/api/v1/namespaces/{self._metadata['namespace']}/pods"
        selector = f"edgeai.io/uid={self._metadata['uid']}"
        if role:
            selector += f",edgeai.io/role={role}"
        return self._cluster.client.list(f"{root}?labelSelector={selector}")

    def edge_pod(self) -> Object:
        (pod,) = self.pods("edge")
        return pod

    def result(self, *, timeout_s: float) -> dict[str, Any]:
        """What the edge worker measured, once it has streamed everything."""

        def check() -> dict[str, Any]:
            printed = self._events()
            found = [event for event in printed if event["event"] == "result"]
            assert found, f"it printed {printed[-1:]}"
            return found[0]

        return eventually("the edge worker's result", check, timeout_s=timeout_s, poll_s=1.0)

    def _events(self) -> list[dict[str, Any]]:
        """The JSON lines among what it printed."""
        events = []
        for line in self._cluster.log_of(self.edge_pod()).splitlines():
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict) and "event" in event:
                    events.append(event)
        return events
