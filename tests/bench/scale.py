"""Many thousands of edges at one GlobalManager, on a real API server.

    python -m tests.bench scale
    python -m tests.bench.scale PLAIN MTLS BUSY STATUSES

etcd, the API server, its controller manager and scheduler, the GlobalManager and the load are
processes on one machine. PLAIN, MTLS and BUSY are numbers of sessions: idle ones without TLS and
with client certificates, and those of nodes that get jobs. STATUSES of the jobs are reported ten
times a second. 0 leaves a part out.
"""

import json
import signal
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

from tests.bench.certificates import Certificates
from tests.bench.cluster import assignments
from tests.bench.nodes import Fleet, weighed
from tests.bench.plane import deployed, prepare, running_plane, wait_for_calm
from tests.bench.samples import node_name
from tests.bench.statuses import status_write_ms
from tests.bench.statuses import statuses as statuses_of
from tests.cluster.controlplane import AUDITED, ControlPlane
from tests.support.manager import GlobalManager

PLAIN: Final = 10_000
MTLS: Final = 2_000
BUSY: Final = 2_000
STATUSES: Final = 1_000
# Twelve beats of each session, and one full garbage collection of the GlobalManager.
IDLE_S: Final = 180.0


def measure(
    plain: int = PLAIN, mtls: int = MTLS, busy: int = BUSY, statuses: int = STATUSES
) -> dict[str, Any]:
    """Figures of docs/performance.md, "Scale"."""
    with running_plane({AUDITED: "system:masters"}) as (control_plane, directory):
        prepare(control_plane, nodes=busy)
        bench = _Bench(control_plane, directory)
        figures: dict[str, Any] = {}
        if plain:
            figures["plain"] = bench.plain(plain)
        if mtls:
            figures["mtls"] = bench.mtls(mtls)
        if statuses:
            figures["status_write_ms"] = status_write_ms(control_plane, directory)
        if busy:
            figures |= bench.busy(busy, min(statuses, busy))
        return figures


class _Bench:
    def __init__(self, control_plane: ControlPlane, directory: Path) -> None:
        self._control_plane = control_plane
        self._directory = directory
        self._kubeconfig = directory / "manager-kubeconfig"
        control_plane.write_kubeconfig(self._kubeconfig, user=AUDITED)

    def _manager(self, count: int, *flags: str) -> AbstractContextManager[GlobalManager]:
        return deployed(self._kubeconfig, self._directory, *flags, nodes=count).running()

    def plain(self, count: int) -> dict[str, Any]:
        """Sessions without TLS: their memory, their idle cost, and how they come back."""
        with self._manager(count) as manager, weighed(manager, count) as (nodes, kib):
            return {
                "kib_per_session": kib,
                "idle_percent_of_a_core": _percent_of_a_core(manager),
                "synced_after_ready_s": _storm(manager, nodes),
            }

    def mtls(self, count: int) -> dict[str, Any]:
        certificates = Certificates(self._directory / "certificates", map(node_name, range(count)))
        with (
            self._manager(count, *certificates.flags) as manager,
            weighed(manager, count, *certificates.of_nodes) as (_, kib),
        ):
            return {"kib_per_session": kib}

    def busy(self, count: int, statuses: int) -> dict[str, Any]:
        """Jobs for the nodes, 50 a second, and then reports about some of them."""
        where = self._control_plane
        with self._manager(count) as manager, Fleet(manager, count) as nodes:
            nodes.synced_at()
            figures = {"jobs": assignments(where, nodes, self._directory, objects=count)}
            if statuses:
                wait_for_calm(manager)
                figures["statuses"] = statuses_of(where, nodes, self._directory, count=statuses)
            return figures


def _storm(manager: GlobalManager, nodes: Fleet) -> float:
    """The GlobalManager is killed and started again; all nodes dial as they would."""
    manager.stop(signal.SIGKILL)
    manager.start()
    ready_s = time.monotonic()
    return round(nodes.synced_at() - ready_s, 1)


def _percent_of_a_core(manager: GlobalManager) -> float:
    spent_s, since_s = manager.processor_s(), time.monotonic()
    time.sleep(IDLE_S)
    return round(100 * (manager.processor_s() - spent_s) / (time.monotonic() - since_s), 1)


if __name__ == "__main__":
    print(json.dumps(measure(*map(int, sys.argv[1:])), indent=1))
