"""How the GlobalManager does on a real API server with many edges and many new objects.

Everything runs on one machine: etcd, the API server, its controller manager and scheduler, the
GlobalManager, and the load, each in processes of its own. The controller manager makes ReplicaSets
and pods of each Deployment that the GlobalManager creates; no kubelet runs the pods.
"""

import time
from pathlib import Path
from typing import Any, Final

from tests.bench.certificates import Certificates
from tests.bench.nodes import Fleet, weighed
from tests.bench.onlooker import Onlooker
from tests.bench.plane import connection, deployed, prepare, running_plane, send
from tests.bench.process import DEADLINE_S, answer_of
from tests.bench.samples import MODEL, NAMESPACE, node_name, path_of, service
from tests.bench.spread import spread
from tests.cluster.controlplane import ControlPlane
from tests.support.waiting import eventually

SESSIONS: Final = 500
OBJECTS: Final = 500
RATE: Final = 50  # objects created per second
REPORTS: Final = 5
REPORT_EVERY_S: Final = 1.0
SETTLE_S: Final = 10.0
WATCHED_S: Final = 20.0  # that a settled system is watched for a write


def measure() -> dict[str, Any]:
    """Figures of docs/performance.md, "A real API server"."""
    with running_plane() as (control_plane, directory):
        return _measure(control_plane, directory)


def _measure(control_plane: ControlPlane, directory: Path) -> dict[str, Any]:
    prepare(control_plane, nodes=SESSIONS)
    kubeconfig = control_plane.kubeconfig
    # Both kinds of session are weighed while the API holds no object that they would be assigned.
    certificates = Certificates(directory / "certificates", map(node_name, range(SESSIONS)))
    with (
        deployed(kubeconfig, directory, *certificates.flags).running() as manager,
        weighed(manager, SESSIONS, *certificates.of_nodes) as (_, mtls_kib),
    ):
        pass
    with (
        deployed(kubeconfig, directory, nodes=SESSIONS).running() as manager,
        weighed(manager, SESSIONS) as (nodes, plain_kib),
    ):
        return {
            "kib_per_mtls_session": mtls_kib,
            "kib_per_plain_session": plain_kib,
            **assignments(control_plane, nodes, directory, objects=OBJECTS),
            "last_value_visible_s": _last_value_visible_s(control_plane, nodes, directory),
            "written_once_settled": written_once_settled(control_plane),
        }


def assignments(
    control_plane: ControlPlane, nodes: Fleet, directory: Path, *, objects: int
) -> dict[str, Any]:
    """Create objects, RATE a second, and say how soon their nodes have them."""
    names = [node_name(number % nodes.count) for number in range(objects)]
    jobs = [service(n, NAMESPACE, node, model=MODEL) for n, node in enumerate(names)]
    requests = [("POST", path_of(), job) for job in jobs]
    created = answer_of(send(control_plane, directory, requests, rate=RATE))["answered"]
    eventually(
        "the assignment of every object",
        lambda: created.keys() <= nodes.assigned.keys(),
        timeout_s=DEADLINE_S,
    )
    to_edge_ms = [(nodes.assigned[uid] - told_s) * 1000 for uid, told_s in created.items()]
    return {"lost": objects - len(to_edge_ms), "cr_to_edge_ms": spread(to_edge_ms)}


def _last_value_visible_s(control_plane: ControlPlane, nodes: Fleet, directory: Path) -> float:
    """How long after the last report every last value stands in its object."""
    count = len(nodes.assigned)
    with Onlooker(connection(control_plane, directory), jobs=path_of()) as onlooker:
        reported = nodes.report(
            REPORTS * REPORT_EVERY_S, every_s=REPORT_EVERY_S, of=count, ending=0, evenly=False
        )["reported"]
        visible_s = max(onlooker.wait_for("jobs", f"count:{REPORTS - 1}", count).values())
    last_s: float = max(times[-1] for times in reported.values())
    return round(visible_s - last_s, 2)


def written_once_settled(control_plane: ControlPlane) -> list[str]:
    """Keys of the API server's registry; the Events, of which few a second are told, come first."""
    before = control_plane.registry()
    while True:
        time.sleep(SETTLE_S)
        now = control_plane.registry()
        if now == before:
            break
        before = now
    time.sleep(WATCHED_S)
    return sorted({key for key, _ in before.items() ^ control_plane.registry().items()})
