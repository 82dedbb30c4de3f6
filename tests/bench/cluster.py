"""How the GlobalManager does on a real API server with many edges and many new objects.

Everything runs on one machine: etcd, the API server, its controller manager and scheduler, the
GlobalManager, and the load, each in processes of its own. The controller manager makes ReplicaSets
and pods of each Deployment that the GlobalManager creates; no kubelet runs the pods.
"""

import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tests.bench.certificates import Certificates
from tests.bench.manager_memory import settled_kib
from tests.bench.nodes import Fleet, fleet
from tests.bench.onlooker import watched
from tests.bench.plane import connection, deployed, prepare, running_plane
from tests.bench.process import DEADLINE_S, start
from tests.bench.samples import NAMESPACE, config_map, node_name, path_of
from tests.bench.spread import spread
from tests.cluster.controlplane import ControlPlane
from tests.support.manager import GlobalManager
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
    figures: dict[str, Any] = {"sessions": SESSIONS}
    # Both kinds of session are weighed while the API holds no object that they would be assigned.
    certificates = Certificates(directory / "certificates", map(node_name, range(SESSIONS)))
    with deployed(kubeconfig, directory, *certificates.flags).running() as manager:
        before_kib = settled_kib(manager)
        with fleet(manager, SESSIONS, *certificates.of_nodes) as nodes:
            figures["kib_per_mtls_session"] = _kib_per_session(manager, nodes, before_kib)
    with deployed(kubeconfig, directory, nodes=SESSIONS).running() as manager:
        before_kib = settled_kib(manager)
        with fleet(manager, SESSIONS) as nodes:
            figures["kib_per_plain_session"] = _kib_per_session(manager, nodes, before_kib)
            figures |= assignments(control_plane, nodes.assigned, directory)
            figures["made_meanwhile"] = _made(control_plane)
            figures |= _reports(control_plane, nodes, directory)
            figures["written_once_settled"] = written_once_settled(control_plane)
    return figures


def _kib_per_session(manager: GlobalManager, nodes: Fleet, before_kib: float) -> float:
    nodes.synced_at()
    return round((settled_kib(manager) - before_kib) / SESSIONS, 1)


# ---- from object to edge ------------------------------------------------------------------------


def assignments(
    control_plane: ControlPlane,
    assigned: Mapping[str, float],
    directory: Path,
    *,
    objects: int = OBJECTS,
    nodes: int = SESSIONS,
) -> dict[str, Any]:
    """Create objects, RATE a second, and say how soon their nodes have them.

    Args: assigned: uid -> time of its assignment; grows meanwhile
    """
    arguments = (*connection(control_plane, directory), objects, RATE, nodes)
    answers = directory / "created.json"
    with answers.open("w") as output:
        creator = start("creator", *arguments, stdout=output)
    bare_ms = list(_bare_requests(control_plane, creator))
    created: dict[str, list[float]] = json.loads(answers.read_text())
    eventually(
        "the assignment of every object",
        lambda: created.keys() <= assigned.keys(),
        timeout_s=DEADLINE_S,
    )
    to_edge = [(assigned[uid] - told) * 1000 for uid, (_, told, _) in created.items()]
    to_watch = [(seen - told) * 1000 for _, told, seen in created.values()]
    own = [(assigned[uid] - seen) * 1000 for uid, (_, _, seen) in created.items()]
    creation = [(told - asked) * 1000 for asked, told, _ in created.values()]
    return {
        "objects": objects,
        "lost": len(created.keys() - assigned.keys()),
        "created_per_s": RATE,
        "cr_to_edge_ms": spread(to_edge),
        "cr_to_watch_ms": spread(to_watch),
        "watch_to_edge_ms": spread(own),
        "cr_create_ms": spread(creation),
        "api_create_ms": spread(bare_ms),
    }


def _bare_requests(
    control_plane: ControlPlane, meanwhile: "subprocess.Popen[str]"
) -> Iterator[float]:
    """What one request that concerns nobody costs while the other process lives."""
    number = 0
    while meanwhile.poll() is None:
        started_s = time.monotonic()
        control_plane.client.create(config_map(number, NAMESPACE))
        yield (time.monotonic() - started_s) * 1000
        number += 1
        time.sleep(0.2)


def _made(control_plane: ControlPlane) -> dict[str, int]:
    """How many objects there are by now of those that the controller manager sees or makes."""
    paths = {
        "deployments": f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments",
        "replicasets": f"/apis/apps/v1/namespaces/{NAMESPACE}/replicasets",
        "pods": f"/api/v1/namespaces/{NAMESPACE}/pods",
    }
    return {name: len(control_plane.client.list(path)) for name, path in paths.items()}


# ---- from edge to object ------------------------------------------------------------------------


def _reports(control_plane: ControlPlane, nodes: Fleet, directory: Path) -> dict[str, Any]:
    """How long after the last report every last value stands in its object."""
    count = len(nodes.assigned)
    with watched(connection(control_plane, directory), jobs=path_of()) as onlooker:
        nodes.ask(
            reporting=REPORTS * REPORT_EVERY_S,
            every=REPORT_EVERY_S,
            of=count,
            ending=0,
            evenly=False,
        )
        reported = nodes.answer("began")["reported"].values()
        nodes.ask(acknowledged=True)
        acknowledged_s = nodes.answer("acknowledged")["acknowledged"]
        visible_s = max(onlooker.wait_for("jobs", f"count:{REPORTS - 1}", count).values())
    sent_s = max(times[-1] for times in reported)
    return {
        "reported_objects": count,
        "reports_each": REPORTS,
        "last_report_acked_s": round(acknowledged_s - sent_s, 2),
        "last_value_visible_s": round(visible_s - sent_s, 2),
    }


# ---- silence ------------------------------------------------------------------------------------


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
