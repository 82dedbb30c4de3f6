"""What a GlobalManager has resident without a session, and what its start takes: CRDs in place,
nothing to do.

A real process, against the local cluster's API in this one.
"""

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from tests.bench.plane import AS_DEPLOYED
from tests.globalmanager.cluster import LocalApi
from tests.support.manager import GlobalManager

UNCHANGED_S: Final = 3.0
CHANGE_KIB: Final = 64.0


def measure() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        return asyncio.run(figures(Path(directory)))


async def figures(directory: Path) -> dict[str, float]:
    """Args: directory: empty"""
    async with LocalApi(directory) as cluster:
        await cluster.install_edgeai_crds()
        manager = GlobalManager(
            kubeconfig=cluster.kubeconfig,
            system_namespace="default",
            directory=directory,
            environment=AS_DEPLOYED,
        )
        return await asyncio.to_thread(_figures, manager)


def _figures(manager: GlobalManager) -> dict[str, float]:
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
