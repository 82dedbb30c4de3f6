"""What a GlobalManager has resident without a session: CRDs in place, nothing to do.

A real process, against the local cluster's API in this one.
"""

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from tests.globalmanager.cluster import LocalApi
from tests.support.manager import GlobalManager

UNCHANGED_S: Final = 3.0
CHANGE_KIB: Final = 64.0


def measure() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        return {"globalmanager_mib": round(asyncio.run(resident_kib(Path(directory))) / 1024, 1)}


async def resident_kib(directory: Path) -> float:
    """Args: directory: empty"""
    async with LocalApi(directory) as cluster:
        await cluster.install_edgeai_crds()
        manager = GlobalManager(
            kubeconfig=cluster.kubeconfig, system_namespace="default", directory=directory
        )
        return await asyncio.to_thread(_resident_kib, manager)


def _resident_kib(manager: GlobalManager) -> float:
    with manager.running():
        return settled_kib(manager)


def settled_kib(manager: GlobalManager) -> float:
    """Its resident memory, once that has not changed for a while."""
    last, since_s = 0.0, time.monotonic()
    while time.monotonic() - since_s < UNCHANGED_S:
        now = manager.resident_kib()
        if abs(now - last) > CHANGE_KIB:
            last, since_s = now, time.monotonic()
        time.sleep(0.2)
    return last
