"""`make soak`: three replicas under churn and kills for SECONDS; prints one JSON object.

    python -m tests.soak [SECONDS]

A real API server with its controller manager; three GlobalManagers, of which one leads; edges with
ledgers in one process; two jobs a second made and deleted, whose workers report; a replica killed
every so often and started again. Exits with 1 where a bound is broken, which `broken` names.
"""

import asyncio
import base64
import contextlib
import json
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.bench.onlooker import api_session
from tests.bench.plane import AS_DEPLOYED
from tests.bench.samples import node_name, token_of
from tests.cluster import binaries
from tests.cluster.controlplane import ControlPlane
from tests.cluster.lines import Road
from tests.cluster.programs import Program
from tests.cluster.samples import create_models
from tests.soak.load import NAMESPACE, Load
from tests.soak.replicas import NAMES, Replicas
from tests.soak.samples import Samples
from tests.soak.verdict import broken
from tests.support.manager import SYSTEM_NAMESPACE, GlobalManager
from tests.support.ports import free_port

USUAL_S: Final = 1800.0
LEAST_S: Final = 240.0
EDGES: Final = 8
JOBS_PER_S: Final = 2.0
SAMPLE_S: Final = 5.0
COLLECTED_S: Final = 40.0  # the collector's longest pause is 30 s
# By default each controller makes 20 requests a second. To collect two jobs a second takes more, so
# objects, and with them the caches of all programs, would become more and more.
COLLECTS_IN_TIME: Final = ("--kube-api-qps=200", "--kube-api-burst=400")


def soak(seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="edgeai-soak-") as directory:
        control_plane = ControlPlane(
            binaries.obtain(), Path(directory), controller_flags=COLLECTS_IN_TIME
        )
        with control_plane.running():
            prepare(control_plane)
            with Road() as road, _managers(control_plane, Path(directory)) as managers:
                road.lead_to(*(each.edge_address for each in managers.values()))
                with _edges(Path(directory), road.port) as (edges, ports):
                    return asyncio.run(_soak(seconds, control_plane, managers, edges, ports))


def prepare(control_plane: ControlPlane) -> None:
    control_plane.prepare(*map(node_name, range(EDGES)))
    create_models(control_plane.client, NAMESPACE)


@contextlib.contextmanager
def _managers(control_plane: ControlPlane, directory: Path) -> Iterator[dict[str, GlobalManager]]:
    managers = {}
    for name in NAMES:
        managers[name] = GlobalManager(
            kubeconfig=control_plane.kubeconfig,
            directory=directory / name,
            tokens={node: token_of(node) for node in map(node_name, range(EDGES))},
            flags=("--replica-name", name, "--admissions-address-share", "1"),
            environment=AS_DEPLOYED,
        )
    try:
        for manager in managers.values():
            manager.start()
        yield managers
    finally:
        for manager in managers.values():
            manager.stop(signal.SIGKILL)


@contextlib.contextmanager
def _edges(directory: Path, port: int) -> Iterator[tuple[Program, list[int]]]:
    ports = [free_port() for _ in range(EDGES)]
    argv = [sys.executable, "-m", "tests.soak.edges", str(directory)]
    url = f"ws://127.0.0.1:{port}"
    edges = Program([*argv, url, *map(str, ports)], log=directory / "edges.log")
    edges.start()
    try:
        yield edges, ports
    finally:
        edges.stop()


async def _soak(
    seconds: float,
    control_plane: ControlPlane,
    managers: dict[str, GlobalManager],
    edges: Program,
    ports: list[int],
) -> dict[str, Any]:
    samples = Samples()
    replicas = Replicas(control_plane.client, SYSTEM_NAMESPACE, managers)
    secret = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/secrets/edgeai-worker-key"
    root_key = base64.b64decode(control_plane.client.get(secret)["data"]["key"])
    async with (
        api_session(control_plane.url, str(control_plane.ca), control_plane.token) as api,
        aiohttp.ClientSession() as workers,
    ):
        load = Load(api, workers, root_key=root_key, ports=ports)
        begin_s = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            taking = group.create_task(_sample(samples, replicas, edges, load))
            killing = group.create_task(replicas.kill_now_and_then(seconds))
            await load.run(seconds, per_s=JOBS_PER_S)
            for task in (taking, killing):
                task.cancel()
        await asyncio.sleep(COLLECTED_S)
        figures = {
            "seconds": seconds,
            "replicas": len(managers),
            "edges": EDGES,
            **load.counts.figures(),
            "children_left": await load.children_left(),
            "kills": replicas.kills,
            "takeover_s": replicas.takeovers_s,
            "second_half": samples.growth(begin_s + seconds / 2, begin_s + seconds),
        }
    return {**figures, "broken": broken(figures)}


async def _sample(samples: Samples, replicas: Replicas, edges: Program, load: Load) -> None:
    while True:
        for name, pid, sessions in await asyncio.to_thread(replicas.alive):
            with contextlib.suppress(OSError):
                samples.take(name, pid, sessions=sessions, objects=load.living)
        samples.take("edges", edges.pid, objects=load.living)
        await asyncio.sleep(SAMPLE_S)


def main() -> None:
    seconds = float(sys.argv[1]) if sys.argv[1:] else USUAL_S
    if seconds < LEAST_S:
        sys.exit(f"{seconds:g} seconds tell nothing; at least {LEAST_S:g}")
    try:
        figures = soak(seconds)
    except binaries.Unavailable as error:
        sys.exit(str(error))
    print(json.dumps(figures))
    sys.exit(1 if figures["broken"] else 0)


if __name__ == "__main__":
    main()
