"""A new version of a Model goes to a fleet of the local cluster in waves."""

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from edgeai.cli import environment, status, system
from edgeai.cli.api import path_of
from edgeai.cli.environment import Environment
from tests.support.waiting import eventually
from tests.system import hot_worker
from tests.system.manager import stopped_manager
from tests.system.test_hot_models import Fleet, files, worker

__all__ = ["files"]
NODES: Final = ("edge0", "edge1", "edge2")
LABEL: Final = {"camera": "yes"}
NAME: Final = "hot"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    state_dir = tmp_path_factory.mktemp("rollouts") / "state"
    yield environment.up(state_dir, edges=NODES)
    environment.down(state_dir)


class RolledFleet(Fleet):
    """A fleet on three nodes, which gets new versions in waves."""

    def __init__(self, running: Environment, directory: Path, url: str, **rollout: Any) -> None:
        self.running = running
        guard = {"metric": "hard", "operator": "<", "threshold": 0.5, "minSamples": 5, "windowS": 1}
        self.rollout = {"waves": ["1"], "guard": guard, **rollout}
        super().__init__(running, directory, url)
        for node in NODES:
            self.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": LABEL}})

    def service_spec(self) -> dict[str, Any]:
        hot = {"name": "small", "hotUpdate": True, "pollPeriodSeconds": 1}
        edge = worker(hot, "", [sys.executable, "-m", hot_worker.__name__])
        del edge["template"]["spec"]["nodeName"]
        edge |= {"perNode": True, "nodeSelector": LABEL}
        cloud = worker({"name": "big"}, system.CLOUD, ["sleep", "infinity"])
        return {"edgeWorker": edge, "cloudWorker": cloud, "rollout": self.rollout}

    def new_version(self, name: str, **content: Any) -> int:
        """Publish a version. Returns: the generation of the Model"""
        url = self.publish(name, **content)
        digest = hashlib.sha256((self.directory / name).read_bytes()).hexdigest()
        self.change(url=url, sha256=digest)
        return self.generation()

    def scale(self, deployment: str, replicas: int) -> None:
        path = f"/apis/apps/v1/namespaces/{system.NAMESPACE}/deployments/{deployment}"
        self.api.patch(path, {"spec": {"replicas": replicas}})

        def check() -> bool:
            try:
                nodes = status.fetch(self.running.rest_url(), "/api/v1/nodes")
            except status.RestUnavailable as error:
                raise AssertionError(str(error)) from error
            connected = sum(one["connected"] for one in nodes)
            assert connected == len(NODES) - 1 + replicas, f"{nodes}"
            return True

        eventually(f"{deployment} has {replicas} replicas", check, timeout_s=90)

    def service_status(self) -> dict[str, Any]:
        return dict(self.api.get(path_of(self.service)).get("status") or {})

    def state(self) -> dict[str, Any]:
        return dict(self.service_status().get("rollout") or {})

    def condition(self) -> dict[str, Any]:
        conditions = self.service_status().get("conditions") or ()
        return next((dict(one) for one in conditions if one["type"] == "RolledOut"), {})

    def wait_for(self, reason: str, generation: int) -> None:
        def check() -> bool:
            found = (self.condition().get("reason"), self.state()["version"]["generation"])
            assert found == (reason, generation), f"{self.service_status()}"
            return True

        eventually(f"{reason} of version {generation}", check, timeout_s=120)

    def answers(self, node: str) -> list[int]:
        """What the worker of a node has answered with, in order."""
        lines = self.told_by(f"{NAME}-node-{node}")
        return [line["answer"] for line in lines if "answer" in line]

    def wait_for_answers(self, answer: int, *nodes: str) -> None:
        def check() -> bool:
            last = {node: self.answers(node)[-1:] for node in nodes}
            assert all(one == [answer] for one in last.values()), f"{last}, {self.state()}"
            return True

        eventually(f"{nodes} answer {answer}", check, timeout_s=120)


@pytest.fixture
def fleet(running: Environment, files: tuple[Path, str]) -> Iterator[RolledFleet]:
    made = RolledFleet(running, *files)
    try:
        yield made
    finally:
        for each in (made.service, made.model):
            made.api.delete(path_of(each))


@pytest.mark.timeout(400)
def test_a_version_goes_out_in_waves_and_a_bad_one_is_taken_back(fleet: RolledFleet) -> None:
    fleet.wait_for_answers(1, *NODES)
    first = fleet.new_version("v2.json", answer=2)
    fleet.wait_for("Complete", first)
    fleet.wait_for_answers(2, *NODES)

    # A node that is off gets nothing, and does not hold the others.
    away = "edge2"
    deployment = system.localcontroller_of(away)
    fleet.scale(deployment, 0)
    second = fleet.new_version("v3.json", answer=3)
    fleet.wait_for("Complete", second)
    fleet.wait_for_answers(3, "edge0", "edge1")
    assert fleet.answers(away)[-1] == 2

    broken = fleet.new_version("v4.json", broken="no weights")
    fleet.wait_for("RolledBack", broken)
    assert "cannot be loaded" in fleet.condition()["message"]
    with stopped_manager(fleet.running):
        pass
    fleet.scale(deployment, 1)
    fleet.wait_for_answers(3, *NODES)
    assert all(4 not in fleet.answers(node) for node in NODES)

    good = fleet.new_version("v5.json", answer=5)
    fleet.wait_for("Complete", good)
    fleet.wait_for_answers(5, *NODES)
    outcomes = {one["generation"]: one["outcome"] for one in fleet.status()["versions"]}
    assert outcomes[broken] == "RolledBack"
    assert outcomes[second] == "Complete"
