"""How long an assignment takes on the local cluster, beside a bare request to the same API."""

import http.client
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from edgeai.cli import environment, system
from edgeai.cli.api import collection_of, path_of
from edgeai.cli.environment import Environment
from tests.bench.samples import config_map, service
from tests.bench.spread import spread

SAMPLES: Final = 200
EDGE_NODE: Final = "edge0"
DEADLINE_S: Final = 10.0


def timed_ms(action: Callable[[], object]) -> float:
    started_s = time.perf_counter()
    action()
    return (time.perf_counter() - started_s) * 1000


class Edge:
    """What the LocalController says that its ledger holds: only what it has committed."""

    def __init__(self, running: Environment) -> None:
        address = running.cluster.nodes[EDGE_NODE]
        self._connection = http.client.HTTPConnection(address, system.STATUS_PORT, timeout=5)

    def wait_for(self, uid: str) -> None:
        deadline_s = time.monotonic() + DEADLINE_S
        while uid not in self._held():
            if time.monotonic() > deadline_s:
                raise SystemExit(f"no assignment of {uid} within {DEADLINE_S:g} s")

    def _held(self) -> set[str]:
        self._connection.request("GET", "/api/v1/tasks")
        answer = json.load(self._connection.getresponse())
        return {task["uid"] for task in answer["items"]}


def cr_to_edge_ms(running: Environment, edge: Edge, number: int) -> float:
    """From the API's answer until the assignment is durable on the edge."""
    wanted = service(number, "default", EDGE_NODE)
    created = running.api.create(collection_of(wanted), wanted)
    taken_ms = timed_ms(lambda: edge.wait_for(created["metadata"]["uid"]))
    running.api.delete(path_of(wanted))
    return taken_ms


def api_create_ms(running: Environment, number: int) -> float:
    wanted = config_map(number, "default")
    return timed_ms(lambda: running.api.create(collection_of(wanted), wanted))


def measure() -> dict[str, Any]:
    """Figures of docs/performance.md, "The local cluster"."""
    state_dir = Path(tempfile.mkdtemp(prefix="edgeai-bench-"))
    try:
        running = environment.up(state_dir)
        edge = Edge(running)
        # In turn, so that a noisy moment falls on both.
        pairs = [
            (cr_to_edge_ms(running, edge, number), api_create_ms(running, number))
            for number in range(SAMPLES)
        ]
    finally:
        environment.down(state_dir)
    to_edge, create = ([pair[side] for pair in pairs] for side in (0, 1))
    return {
        "samples": SAMPLES,
        "cr_to_edge_ms": spread(to_edge),
        "api_create_ms": spread(create),
        "cr_to_edge_per_api_create": round(
            statistics.median(to_edge) / statistics.median(create), 2
        ),
    }
