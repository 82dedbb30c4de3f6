"""Many thousands of edges at one GlobalManager, on a real API server.

    python -m tests.bench scale
    python -m tests.bench.scale PLAIN MTLS BUSY STATUSES

etcd, the API server, its controller manager and scheduler, the GlobalManager and the load are
processes on one machine. PLAIN, MTLS and BUSY are numbers of sessions: idle ones without TLS and
with client certificates, and those of nodes that get jobs. STATUSES of the jobs are reported ten
times a second. 0 leaves a part out.
"""

import json
import os
import platform
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from tests.bench.certificates import Certificates
from tests.bench.cluster import assignments
from tests.bench.manager_memory import settled_kib
from tests.bench.nodes import Fleet, fleet
from tests.bench.plane import deployed, prepare, running_plane, wait_for_calm
from tests.bench.samples import node_name, token_of
from tests.bench.status_cost import status_cost
from tests.bench.statuses import statuses as statuses_of
from tests.cluster.controlplane import AUDITED, ControlPlane
from tests.cluster.edge import Edge
from tests.support.manager import GlobalManager
from tests.support.waiting import eventually

PLAIN: Final = 10_000
MTLS: Final = 2_000
BUSY: Final = 2_000
STATUSES: Final = 1_000
# Two beats of each session. The GlobalManager's full garbage collection comes once in 3 minutes.
IDLE_S: Final = 30.0
IDLE_TIMES: Final = 6


def measure(
    plain: int = PLAIN, mtls: int = MTLS, busy: int = BUSY, statuses: int = STATUSES
) -> dict[str, Any]:
    """Figures of docs/performance.md, "Scale"."""
    with running_plane({AUDITED: "system:masters"}) as (control_plane, directory):
        prepare(control_plane, nodes=busy)
        bench = _Bench(control_plane, directory)
        figures: dict[str, Any] = {"machine": machine(control_plane)}
        if plain:
            figures["plain"] = bench.plain(plain)
        if mtls:
            figures["mtls"] = bench.mtls(mtls)
        if plain or mtls:
            figures["localcontroller"] = bench.localcontroller()
        if statuses:
            figures["status_cost"] = status_cost(control_plane)
        if busy:
            figures |= bench.busy(busy, min(statuses, busy))
        return figures


def machine(control_plane: ControlPlane) -> dict[str, Any]:
    memory = re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())
    assert memory is not None
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(int(memory.group(1)) / 2**20, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "kubernetes": control_plane.client.get("/version")["gitVersion"],
        "load_average": round(os.getloadavg()[0], 1),
    }


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
        with self._manager(count) as manager:
            before_kib = settled_kib(manager)
            alone = _percent_of_a_core(manager.processor_s)
            with fleet(manager, count) as nodes:
                figures = _idle(manager, nodes, before_kib)
                figures["idle_percent_without_sessions"] = alone
                return figures | self._storm(manager, nodes)

    def mtls(self, count: int) -> dict[str, Any]:
        certificates = Certificates(self._directory / "certificates", map(node_name, range(count)))
        with self._manager(count, *certificates.flags) as manager:
            before_kib = settled_kib(manager)
            with fleet(manager, count, *certificates.of_nodes) as nodes:
                return _idle(manager, nodes, before_kib)

    def localcontroller(self) -> dict[str, Any]:
        """A LocalController with a session and without tasks."""
        node, directory = node_name(0), self._directory / "localcontroller"
        with self._manager(1) as manager:
            port = manager.edge_port
            edge = Edge(node, token=token_of(node), port=port, directory=directory)
            with edge.running():
                eventually("a session", lambda: edge.link().get("connected"))
                return {
                    "idle_percent_of_a_core": _percent_of_a_core(edge.processor_s),
                    "resident_mib": round(edge.resident_kib() / 1024, 1),
                }

    def busy(self, count: int, statuses: int) -> dict[str, Any]:
        """Jobs for the nodes, 50 a second, and then reports about some of them."""
        with self._manager(count) as manager, fleet(manager, count) as nodes:
            nodes.synced_at()
            figures: dict[str, Any] = {
                "jobs": {
                    "sessions": count,
                    **assignments(
                        *(self._control_plane, nodes.assigned, self._directory),
                        objects=count,
                        nodes=count,
                    ),
                }
            }
            if statuses:
                wait_for_calm(manager)
                figures["statuses"] = statuses_of(
                    *(self._control_plane, manager, nodes, self._directory), count=statuses
                )
            return figures

    def _storm(self, manager: GlobalManager, nodes: Fleet) -> dict[str, Any]:
        """The GlobalManager is killed and started again; all nodes dial as they would."""
        nodes.forget()
        heard = len(self._control_plane.audit())
        manager.stop(signal.SIGKILL)
        launched_s = time.monotonic()
        manager.start()
        ready_s = time.monotonic()
        back_s = {f"{part} %": nodes.synced_at(nodes.count * part // 100) for part in (50, 90, 100)}
        asked = self._control_plane.audit()[heard:]
        lists = Counter(_selection(each) for each in asked if _is_first_page(each))
        return {
            "ready_after_kill_s": round(ready_s - launched_s, 1),
            "synced_after_ready_s": {k: round(at - ready_s, 1) for k, at in back_s.items()},
            "processor_s": round(manager.processor_s(), 1),
            "peak_mib": round(manager.peak_kib() / 1024, 1),
            "told": nodes.tally(),
            "lists": lists.total(),
            "listed_again": {selection: n for selection, n in lists.items() if n > 1},
            "failed_lists_and_watches": [
                line for line in manager.log_lines() if "list or watch failed" in line
            ],
        }


def _idle(manager: GlobalManager, nodes: Fleet, before_kib: float) -> dict[str, Any]:
    began_s = time.monotonic()
    opened_s = nodes.synced_at() - began_s
    resident_kib = settled_kib(manager)
    windows = [_percent_of_a_core(manager.processor_s) for _ in range(IDLE_TIMES)]
    return {
        "sessions": nodes.count,
        "opened_s": round(opened_s, 1),
        "kib_per_session": round((resident_kib - before_kib) / nodes.count, 1),
        "idle_percent_of_a_core": round(sum(windows) / len(windows), 1),
        "idle_percent_in_the_worst_30_s": max(windows),
    }


def _percent_of_a_core(processor_s: Callable[[], float]) -> float:
    spent_s, since_s = processor_s(), time.monotonic()
    time.sleep(IDLE_S)
    return round(100 * (processor_s() - spent_s) / (time.monotonic() - since_s), 1)


def _selection(event: dict[str, Any]) -> str:
    """What was listed: the path, and the selectors of the query."""
    url = urlsplit(event["requestURI"])
    selectors = {k: v for k, v in parse_qs(url.query).items() if k.endswith("Selector")}
    return f"{url.path} {selectors or ''}"


def _is_first_page(event: dict[str, Any]) -> bool:
    """Of a list that was answered: a type that the server lacks is asked for again and again."""
    return (
        event["verb"] == "list"
        and "continue=" not in event["requestURI"]
        and event["responseStatus"]["code"] == HTTPStatus.OK
    )


if __name__ == "__main__":
    print(json.dumps(measure(*map(int, sys.argv[1:])), indent=1))
