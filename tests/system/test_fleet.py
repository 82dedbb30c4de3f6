"""A fleet on the local cluster, with real workers that count: nodes come and go by their labels."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from edgeai.api import slices
from edgeai.cli.api import Object, path_of
from edgeai.cli.environment import Environment
from edgeai.ids import WorkerName
from tests.support.jobs import Job
from tests.system import counting_worker

LABEL: Final = "camera"
NODES: Final = ("edge0", "edge1")
SETTLE_S: Final = 60.0
TYPES: Final = (("v1", "Pod"), ("apps/v1", "Deployment"))


class Fleet(Job):
    def __init__(self, running: Environment) -> None:
        worker = [sys.executable, "-m", counting_worker.__name__, "cameras"]
        edge = {"perNode": True, "nodeSelector": {LABEL: "yes"}, **_worker(worker)}
        spec = {"edgeWorker": edge, "cloudWorker": _worker(["sleep", "infinity"])}
        manifest = _object("JointInferenceService", "cameras", spec)
        super().__init__(running.api, running.api.apply, manifest, timeout_s=SETTLE_S, types=TYPES)

    def label(self, node: str, value: str | None) -> None:
        self.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {LABEL: value}}})

    def wait_for_nodes(self, *nodes: str) -> None:
        """Each of the nodes serves, and no other."""

        def check() -> bool:
            fleet = self.status().get("fleet") or {}
            names = {f"Pod/cameras-node-{node}" for node in nodes}
            pods = {name for name in self.made() if name.startswith("Pod/cameras-node-")}
            assert pods == names, f"{pods} are there"
            assert fleet.get("ready") == fleet.get("nodes") == len(nodes), f"fleet is {fleet}"
            return True

        self.eventually(f"workers on {nodes}", check)

    def seen(self, node: str) -> int:
        """The samples that a node has counted."""
        worker = WorkerName(f"cameras-node-{node}")
        name = slices.slice_name("cameras", worker)
        config_map = self.api.find(f"/api/v1/namespaces/default/configmaps/{name}") or {}
        info = slices.entry_of(config_map, worker).get("taskInfo") or {}
        return int(info.get("seen", 0))

    def total(self) -> int:
        metrics = self.status().get("metrics") or []
        return next((int(one["value"]) for one in metrics if one["key"] == "seen"), 0)

    def wait_until_counting(self, node: str) -> None:
        before = self.seen(node)

        def check() -> bool:
            assert self.seen(node) > before, f"{node} has counted {before}"
            return True

        self.eventually(f"counts of {node}", check)


def _worker(command: list[str]) -> dict[str, Any]:
    container = {
        "name": "worker",
        "image": "edgeai/test",
        "command": command,
        "workingDir": str(Path(__file__).parents[2]),
    }
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
    return {"model": {"name": "cameras"}, "template": {"spec": spec}}


def _object(kind: str, name: str, spec: dict[str, Any]) -> Object:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "edgeai.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


@pytest.fixture
def fleet(running: Environment, tmp_path: Path) -> Iterator[Fleet]:
    (tmp_path / "model").touch()
    model = _object("Model", "cameras", {"url": str(tmp_path / "model"), "format": "none"})
    running.api.apply(model)
    made = Fleet(running)
    made.create()
    try:
        yield made
    finally:
        for node in NODES:
            made.label(node, None)
        made.api.delete(made.path)
        made.api.delete(path_of(model))
        made.wait_until_gone()


def test_a_worker_runs_on_each_node_while_the_node_has_the_label(fleet: Fleet) -> None:
    fleet.wait_for_condition("Running", "NoNodes")
    fleet.label("edge0", "yes")
    fleet.wait_for_nodes("edge0")
    fleet.wait_for("phase", "Running")
    fleet.wait_until_counting("edge0")
    fleet.label("edge1", "yes")
    fleet.wait_for_nodes("edge0", "edge1")
    fleet.wait_until_counting("edge1")
    fleet.label("edge1", None)
    fleet.wait_for_nodes("edge0")
    of_the_gone = fleet.seen("edge1")
    assert of_the_gone > 0
    fleet.wait_until_counting("edge0")
    fleet.eventually(
        "the sum of both nodes", lambda: fleet.total() == fleet.seen("edge0") + of_the_gone
    )
