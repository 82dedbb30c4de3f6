"""IncrementalLearningJob: a .status that its plan has not written."""

from typing import Any

import msgspec
import pytest

from tests.globalmanager.kinds.edge.incrementallearningjob.learning import evaluate, roll_out, train
from tests.globalmanager.kinds.edge.samples import (
    counted,
    incremental_job,
    incremental_learning_spec,
)
from tests.support.world import NOW, World, merged

PLACE = "/output/helmet-uid-1/1-0/model"


def forged(**status: Any) -> World:
    """A job in its first round, after somebody has written into its status."""
    world = incremental_job().settle().gone("Pod", "helmet-train-1-0")
    world.object = {**world.object, "status": merged(world.status, status)}
    return world


def paths(world: World) -> set[str]:
    """The directories of nodes that the children mount."""
    specs = [
        child["spec"].get("template", child)["spec"]
        for ref, child in world.children.items()
        if ref.type.kind in ("Pod", "Deployment")
    ]
    volumes = [volume for spec in specs for volume in spec.get("volumes", ())]
    return {volume["hostPath"]["path"] for volume in volumes if "hostPath" in volume}


DEPLOYED = {"round": 1, "model": "deployed", "time": "2026-01-01T00:00:00Z"}
FORGERIES: dict[str, dict[str, Any]] = {
    "directory": {"current": {"directory": "/etc/cron.d/x"}},
    "directory of the rounds": {"current": {"directory": "/output/helmet-uid-1/x"}},
    "directory outside": {"current": {"directory": "/etc/helmet-uid-1/1-0/model"}},
    "data": {"current": {"url": "/root/x"}},
    "base": {"current": {"base": "/var/lib/kubelet/x"}},
    "no base": {"current": {"base": ""}},
    "dots": {"current": {"base": "/models/../etc/x"}},
    "no models": {"current": {"stage": "Eval"}},
    "models": {"current": {"stage": "Eval", "models": [{"url": "/etc/passwd"}]}},
    "models outside": {
        "current": {"stage": "Eval", "models": [{"url": "/etc/helmet-uid-1/1-0/model/m"}]}
    },
    "node": {"current": {"node": "other-node"}},
    "deployed": {"deployed": {**DEPLOYED, "url": "/etc/shadow"}},
    "deployed outside": {"deployed": {**DEPLOYED, "url": "/etc/helmet-uid-1/1-0/model/m"}},
    "progress": {"current": None, "progress": {"models": [{"url": "/etc/passwd"}]}},
    "attempt": {"current": {"attempt": 10**9}},
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_path_in_the_status_that_is_not_of_the_job_is_not_mounted(forgery: str) -> None:
    world = counted(forged(**FORGERIES[forgery]), data=30).settle()
    known = ("/models", "/data", "/output/helmet-uid-1/")
    assert [path for path in paths(world) if not f"{path}/".startswith(known)] == []
    for ref, child in world.children.items():
        if ref.type.kind == "Pod":
            assert child["spec"]["nodeName"] == "edge0"


def test_a_model_that_workers_may_no_longer_have_is_named() -> None:
    world = roll_out(evaluate(train(incremental_job().settle()))).settle()
    allowed = ("/models", "/data", "/new")
    world.settings = msgspec.structs.replace(world.settings, node_path_prefixes=allowed)
    world.change(incremental_learning_spec(outputDir="/new")).settle()
    condition = world.condition("ResolvedRefs")
    assert condition["reason"] == "PathNotAllowed"
    assert "/output/helmet-uid-1/1-0/model" in condition["message"]


@pytest.mark.parametrize("round_", [2**53, 2**53 - 1, 2**60, -1])
def test_a_round_stays_within_its_field(round_: int) -> None:
    world = forged(current=None, round=round_)
    counted(world, data=30).settle()
    assert 0 < world.status["round"] <= 2**53
    assert world.plan(NOW).status is None
