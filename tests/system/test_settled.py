"""A settled system writes nothing: neither to the API nor to an edge's disk."""

import time
from pathlib import Path

from edgeai.api import wait_until
from edgeai.demo import joint_inference as demo
from edgeai.environment import Environment
from tests.system.digits import streaming

QUIET_S = 6.0  # several heartbeats of the worker and beats of the session


def newest_version(running: Environment) -> int:
    """resourceVersion of the newest write to the API, whatever was written."""
    listing = running.api.get("/api/v1/namespaces")
    return int(listing["metadata"]["resourceVersion"])


def disk_writes(running: Environment) -> dict[str, tuple[int, int]]:
    """File -> (size, mtime in ns) of the ledger of the edge that has the worker."""
    directory = Path(running.state_dir) / "nodes" / demo.EDGE_NODE / "localcontroller"
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {str(f): (f.stat().st_size, f.stat().st_mtime_ns) for f in files}


def test_settled_system_writes_nothing(running: Environment, model_files: Path) -> None:
    with streaming(running, model_files, HEARTBEAT_SECONDS="1") as stream:
        stream.wait_for_exact_counts(stream.result())
        seen: list[int] = []

        def settles() -> str:
            """The last write is some time ago."""
            seen.append(newest_version(running))
            return "" if len(seen) > 10 and seen[-10] == seen[-1] else "still writing"

        wait_until("the end of all writes", settles, timeout_s=20, poll_s=0.2)
        version, files = newest_version(running), disk_writes(running)
        assert files, "no ledger was found"
        time.sleep(QUIET_S)
        assert newest_version(running) == version
        assert disk_writes(running) == files
