"""What the GlobalManager creates for jobs that come and go while the garbage collector is at work.

    python -m tests.bench churn
    python -m tests.bench.churn COUNT

A real control plane with its controller manager. Jobs are created and deleted at a fixed rate. The
line between GlobalManager and API server sees each creation and each answer that a job is gone.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any, Final

from tests.bench.plane import install, running_plane
from tests.bench.samples import NAMESPACE
from tests.cluster.churn import come_and_go, created_after_gone
from tests.cluster.controlplane import ControlPlane
from tests.cluster.lines import ApiLine
from tests.support.manager import GlobalManager

JOBS: Final = 2000
RATE: Final = 2.0  # created, and deleted, a second
LIFE_S: Final = 5.0
COLLECTED_S: Final = 60.0  # the collector's longest pause is 30 s


def measure(count: int = JOBS) -> dict[str, Any]:
    with running_plane() as (control_plane, directory):
        return _measure(control_plane, directory, count)


def _measure(control_plane: ControlPlane, directory: Path, count: int) -> dict[str, Any]:
    install(control_plane)
    control_plane.client.create_named("Node", "edge0")
    with ApiLine(control_plane.url, ca=control_plane.ca) as line:
        kubeconfig = line.write_kubeconfig(directory / "line", token=control_plane.token)
        manager = GlobalManager(kubeconfig=kubeconfig, directory=directory)
        with manager.running():
            jobs = come_and_go(
                control_plane.client, NAMESPACE, count=count, per_s=RATE, life_s=LIFE_S
            )
            time.sleep(COLLECTED_S)
            return {"objects_created_after_gone": len(created_after_gone(jobs, list(line.passed)))}


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]) if sys.argv[1:] else JOBS)))
