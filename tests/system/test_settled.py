"""A settled system writes nothing, heartbeats aside: neither to the API nor to an edge's disk."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgeai.cli import environment, system
from edgeai.cli.environment import Environment
from edgeai.demo.joint_inference import story as demo
from tests.support.inference import counts_of
from tests.support.waiting import eventually
from tests.system.digits import streaming

QUIET_S = 5.0  # several heartbeats of the worker and beats of the session
QUICK = ("--session-beat-s", "1", "--session-silence-s", "3")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    state_dir = tmp_path_factory.mktemp("settled") / "state"
    tuning = system.Tuning(globalmanager_flags=QUICK, localcontroller_flags=QUICK)
    yield environment.up(state_dir, tuning=tuning)
    environment.down(state_dir)


def versions(running: Environment) -> dict[str, str]:
    """Every object of the API -> its resourceVersion; Leases are there to be renewed."""
    groups = running.api.get("/apis")["groups"]
    roots = ["/api/v1", *(f"/apis/{each['preferredVersion']['groupVersion']}" for each in groups)]
    return {
        item["metadata"]["uid"]: item["metadata"]["resourceVersion"]
        for root in roots
        for resource in running.api.get(root)["resources"]
        if "list" in resource["verbs"] and resource["name"] != "leases"
        for item in running.api.get(f"{root}/{resource['name']}")["items"]
    }


def conditions(running: Environment) -> set[str]:
    """The types of the conditions of the only JointInferenceService."""
    (job,) = running.api.get("/apis/edgeai.io/v1alpha1/jointinferenceservices")["items"]
    return {each["type"] for each in job["status"]["conditions"]}


def disk_writes(running: Environment) -> dict[str, tuple[int, int]]:
    """File -> (size, mtime in ns) of the ledger of the edge that has the worker."""
    directory = Path(running.state_dir) / "nodes" / demo.EDGE_NODE / "localcontroller"
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {str(f): (f.stat().st_size, f.stat().st_mtime_ns) for f in files}


def test_settled_system_writes_nothing(running: Environment, model_files: Path) -> None:
    with streaming(running, model_files, HEARTBEAT_SECONDS="1") as stream:
        stream.wait_for_exact_counts(counts_of(stream.result()))
        # A report of counts alone leads to a plan some seconds later, which adds this condition.
        eventually("the last plan", lambda: "CloudReachable" in conditions(running))
        seen: list[dict[str, str]] = []

        def check() -> bool:
            """The last write is some time ago."""
            seen.append(versions(running))
            return len(seen) > 10 and seen[-10] == seen[-1]

        eventually("the end of all writes", check, poll_s=0.2)
        before, files = versions(running), disk_writes(running)
        assert any(name.endswith("ledger.db") for name in files)
        time.sleep(QUIET_S)
        assert versions(running) == before
        assert disk_writes(running) == files
