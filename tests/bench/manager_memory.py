"""What a GlobalManager has resident without a session, and what its start takes: CRDs in place,
nothing to do. A real process, against the local cluster's API in this one.

Then what it has resident with many jobs and their pods, on a real control plane.
"""

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from tests.bench.plane import (
    AS_DEPLOYED,
    deployed,
    install,
    running_plane,
    send,
    wait_for_account,
)
from tests.bench.process import DEADLINE_S, answer_of
from tests.bench.training import job, path_of
from tests.cluster.controlplane import ControlPlane
from tests.globalmanager.cluster import LocalApi
from tests.support.manager import GlobalManager
from tests.support.waiting import eventually

UNCHANGED_S: Final = 3.0
CHANGE_KIB: Final = 64.0
JOBS: Final = 2000
REPLICAS: Final = 5  # each with a Service


def measure() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        at_start = asyncio.run(figures(Path(directory)))
    with running_plane() as where:
        return {**at_start, "with_jobs_mib": with_jobs_mib(*where)}


def with_jobs_mib(control_plane: ControlPlane, directory: Path) -> float:
    """Of a GlobalManager that finds the jobs, pods and Services when it starts."""
    install(control_plane)
    client, namespace = control_plane.client, "many"
    client.create_named("Namespace", namespace)
    wait_for_account(client, namespace)
    paths = {plural: path_of(plural, namespace) for plural in ("tfjobs", "pods")}
    jobs = [job(f"job-{number}", namespace, REPLICAS) for number in range(JOBS)]

    def are_all() -> bool:
        return len(client.list(paths["pods"])) == JOBS * REPLICAS

    with deployed(control_plane.kubeconfig, directory).running():
        answer_of(
            send(control_plane, directory, [("POST", paths["tfjobs"], each) for each in jobs])
        )
        eventually("all pods", are_all, timeout_s=DEADLINE_S, poll_s=5)
    with deployed(control_plane.kubeconfig, directory).running() as manager:
        return round(settled_kib(manager) / 1024, 1)


async def figures(directory: Path) -> dict[str, float]:
    """Args: directory: empty"""
    async with LocalApi(directory, is_installed=True) as cluster:
        manager = GlobalManager(
            kubeconfig=cluster.kubeconfig,
            system_namespace="default",
            directory=directory,
            environment=AS_DEPLOYED,
        )
        return await asyncio.to_thread(_figures, manager)


def _figures(manager: GlobalManager) -> dict[str, float]:
    with manager.running():
        pass  # the first start of an installation compiles it
    began_s = time.monotonic()
    with manager.running():
        ready_s = time.monotonic() - began_s
        return {
            "globalmanager_mib": round(settled_kib(manager) / 1024, 1),
            "start_to_ready_s": round(ready_s, 2),
        }


def settled_kib(manager: GlobalManager) -> float:
    """Its resident memory, once that has not changed for a while."""
    last, since_s = 0.0, time.monotonic()
    while time.monotonic() - since_s < UNCHANGED_S:
        now = manager.resident_kib()
        if abs(now - last) > CHANGE_KIB:
            last, since_s = now, time.monotonic()
        time.sleep(0.2)
    return last
