"""A whole edgeai on the local cluster says why a job does not get on: the cause first."""

from typing import Any, Final

import pytest

from edgeai.cli.environment import Environment
from tests.edgeai.cli.command import edgeai
from tests.support.waiting import eventually
from tests.system.test_training_jobs import apply, template

__all__ = ["apply"]

CRASHES: Final = 'print("reading /data"); raise SystemExit(3)'
NOTHING: Final = "it goes on by itself"


@pytest.fixture
def crashing(running: Environment, apply: Any) -> Any:
    """A PyTorchJob whose master exits with 3 again and again, and whose workers wait for it."""
    script = template("pytorch", CRASHES)
    replicas = {
        "Master": {"template": script, "restartPolicy": "OnFailure"},
        "Worker": {"replicas": 2, "template": script, "restartPolicy": "OnFailure"},
    }
    return apply("PyTorchJob", "pytorchjobs", "crash", {"pytorchReplicaSpecs": replicas})


def test_a_crash_loop_is_told_before_what_waits_for_it(running: Environment, crashing: str) -> None:
    directory = ("--state-dir", str(running.state_dir))

    def stalled() -> bool:
        conditions = running.api.get(crashing).get("status", {}).get("conditions", [])
        told = [one for one in conditions if one["type"] == "Stalled"]
        assert told, conditions
        assert told[0]["reason"] == "CrashLoopBackOff"
        assert "pod crash-master-0" in told[0]["message"]
        assert "exit code 3" in told[0]["message"]
        return True

    eventually("the condition Stalled", stalled)
    page = edgeai("describe", "crash", *directory).stdout
    assert NOTHING not in page
    first = page.splitlines()[0]
    assert "pod crash-master-0" in first
    assert "CrashLoopBackOff: container pytorch ended with exit code 3" in first
    assert "- CrashLoopBackOff: read its last words with `edgeai logs`" in page
    assert "has power and network" not in page
    status = edgeai("status", *directory).stdout
    assert "exit code 3" in " ".join(status.split())
