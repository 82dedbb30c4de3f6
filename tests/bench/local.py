"""How long an assignment takes on the local cluster."""

import http.client
import json
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from edgeai.cli import environment, system
from edgeai.cli.api import path_of
from edgeai.cli.environment import Environment
from tests.bench.samples import service
from tests.bench.spread import spread
from tests.support.waiting import eventually

SAMPLES: Final = 200
EDGE_NODE: Final = "edge0"


class Edge:
    """What the LocalController says that its ledger holds: only what it has committed."""

    def __init__(self, running: Environment) -> None:
        address = running.cluster.nodes[EDGE_NODE]
        self._connection = http.client.HTTPConnection(address, system.STATUS_PORT, timeout=5)

    def has(self, uid: str) -> bool:
        self._connection.request("GET", "/api/v1/tasks")
        answer = json.load(self._connection.getresponse())
        return uid in {task["uid"] for task in answer["items"]}


def cr_to_edge_ms(running: Environment, edge: Edge, number: int) -> float:
    """From the API's answer until the assignment is durable on the edge."""
    wanted = service(number, "default", EDGE_NODE)
    uid = running.api.create(wanted)["metadata"]["uid"]
    began_s = time.perf_counter()
    eventually("the assignment", lambda: edge.has(uid), poll_s=0.0)
    taken_ms = (time.perf_counter() - began_s) * 1000
    running.api.delete(path_of(wanted))
    return taken_ms


def measure() -> dict[str, Any]:
    """Figures of docs/performance.md, "The local cluster"."""
    state_dir = Path(tempfile.mkdtemp(prefix="edgeai-bench-"))
    try:
        running = environment.up(state_dir)
        edge = Edge(running)
        return {"cr_to_edge_ms": spread([cr_to_edge_ms(running, edge, n) for n in range(SAMPLES)])}
    finally:
        environment.down(state_dir)
