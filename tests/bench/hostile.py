"""What an honest neighbour notices while one tenant or one node attacks.

    python -m tests.bench hostile
    python -m tests.bench.hostile SECONDS [ATTACK...]

A real control plane with its controller manager, a GlobalManager, the LocalController of the
neighbour's node, the neighbour's own load and each attacker are processes on one machine. The
attackers come one after the other, each for SECONDS, and first nobody.
"""

import json
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from edgeai.cli.api import Object
from globalmanager.kinds.edge.jointinferenceservice.workers import secret_name, worker_name
from tests.bench.plane import (
    connection,
    deployed,
    install,
    running_plane,
    send,
    wait_for_account,
    wait_for_calm,
)
from tests.bench.process import DEADLINE_S, answer_of, start
from tests.bench.samples import MODEL, path_of, service
from tests.bench.spread import spread
from tests.cluster.controlplane import ControlPlane
from tests.cluster.edge import Edge
from tests.cluster.samples import model
from tests.support.manifests import manifest
from tests.support.waiting import eventually

SECONDS: Final = 60.0  # of each attack
NEIGHBOUR: Final = "neighbour"  # the namespace and the node of the honest one
ATTACKER: Final = "attacker"  # likewise
TOKENS: Final = {name: f"secret-of-{name}" for name in (NEIGHBOUR, ATTACKER)}
WORKERS: Final = ("honest-0", "honest-1")  # services of the neighbour that report
LARGE_BYTES: Final = 1_300_000
LARGE_OBJECTS: Final = 11
TRAINERS: Final = 24  # of one job, on the attacker's node
SLOW_WORKER: Final = "slow"  # service of the attacker whose worker is on the neighbour's node
MANY_TASKS: Final = 12_400
FAT: Final = "fat"  # the namespace of large objects
FAT_REPLICAS: Final = 110
SHARED_MODEL: Final = "shared"
SHARERS: Final = 1000  # services of the attacker that name it
TIMES: Final = ("cr_to_edge_ms", "cr_to_watch_ms", "report_ms")


def measure(seconds: float = SECONDS, only: Sequence[str] = ()) -> dict[str, Any]:
    """Figures of docs/performance.md, "Beside attackers"."""
    with running_plane() as where, _Bench(*where).running() as bench:
        return bench.figures(seconds, only)


class _Bench:
    def __init__(self, control_plane: ControlPlane, directory: Path) -> None:
        self._control_plane = control_plane
        self._client = control_plane.client
        self._directory = directory
        self._connection = connection(control_plane, directory)
        self._manager = deployed(control_plane.kubeconfig, directory, tokens=TOKENS)
        self._edge = Edge(
            NEIGHBOUR,
            token=TOKENS[NEIGHBOUR],
            port=self._manager.edge_port,
            directory=directory,
        )

    @contextmanager
    def running(self) -> Iterator["_Bench"]:
        """With all that is there before the first attack."""
        self._prepare()
        try:
            self._manager.start()
            self._edge.start()
            eventually("the tasks of the workers", self._has_tasks)
            yield self
        finally:
            self._edge.stop()
            self._manager.stop()

    def figures(self, seconds: float, only: Sequence[str]) -> dict[str, Any]:
        attacks = self._attacks()
        return {"seconds": seconds} | {
            name: self._beside(attack, seconds)
            for name, attack in attacks.items()
            if not only or name in only
        }

    def _attacks(self) -> dict[str, tuple[str, Object] | None]:
        """Name of the section -> the attacker with its arguments; None: nobody attacks."""
        rest = {
            "port": self._manager.http_port,
            "path": f"/api/v1/namespaces/{ATTACKER}/jointinferenceservices",
        }
        node = {"url": f"ws://{self._manager.edge_address}", "token": TOKENS[ATTACKER]}
        token = self._control_plane.token
        api = {"connection": [*self._connection[:2], token]}
        tenant = {**api, "namespace": FAT}
        shared = f"{path_of(ATTACKER, 'models')}/{SHARED_MODEL}"
        honest = self._client.get(f"{path_of(NEIGHBOUR)}/{WORKERS[0]}")["metadata"]["uid"]
        return {
            "nobody": None,
            "lists not read": ("lists", {**rest, "stays": True}),
            "lists left": ("lists", {**rest, "stays": False}),
            "large reports": ("large-reports", node),
            "slow bodies": ("slow-bodies", {"url": self._worker_url(ATTACKER, SLOW_WORKER)}),
            "frames": ("frames", {**node, "foreign": honest}),
            "large Hellos": ("hellos", node),
            "shared Model": ("model-changes", {**api, "path": shared}),
            "many tasks": ("returns", node),
            # What these make stays, so they come last.
            "pods of nobody": ("pods-of-nobody", tenant),
            "fat jobs": ("fat-jobs", {**tenant, "replicas": FAT_REPLICAS}),
            "fat jobs within the limit": ("fat-jobs", {**tenant, "replicas": FAT_REPLICAS // 2}),
        }

    # ---- what is there ----

    def _prepare(self) -> None:
        install(self._control_plane)
        self._client.create_named("Namespace", NEIGHBOUR, ATTACKER, FAT)
        for name in (NEIGHBOUR, ATTACKER, FAT):
            wait_for_account(self._client, name)
        for name in (NEIGHBOUR, ATTACKER):
            self._client.create_named("Node", name)
            self._client.create(model(MODEL, name))
        for name in WORKERS:
            self._client.create(_named(service(0, NEIGHBOUR, NEIGHBOUR, model=MODEL), name))
        # The attacker's worker on the neighbour's node.
        slow = _named(service(0, ATTACKER, NEIGHBOUR, model=MODEL), SLOW_WORKER)
        self._client.create(slow)
        self._client.create(_federation(TRAINERS))
        for number in range(LARGE_OBJECTS):
            large = _named(service(0, ATTACKER, ATTACKER), f"large-{number}")
            container = {"name": "worker", "image": "none", "args": ["x" * LARGE_BYTES]}
            large["spec"]["edgeWorker"]["template"] = {"spec": {"containers": [container]}}
            self._client.create(large)

    def _has_tasks(self) -> bool:
        held = self._edge.tasks(NEIGHBOUR) | self._edge.tasks(ATTACKER)
        wanted = {*WORKERS, SLOW_WORKER}
        assert held == wanted, f"{sorted(held)}\n{self._edge.logs()}\n{self._manager.logs()}"
        return True

    def _make_many_tasks(self) -> None:
        """Tasks with long names for the attacker's node."""
        path = path_of(ATTACKER, "datasets")
        self._send(["POST", path, _dataset(n)] for n in range(MANY_TASKS))

    def _make_sharers(self) -> None:
        """Services that name one Model. They start nothing, because another Model is missing."""
        self._client.create(model(SHARED_MODEL, ATTACKER))
        self._send(["POST", path_of(ATTACKER), _sharer(n)] for n in range(SHARERS))

    def _delete_sharers(self) -> None:
        names = (_sharer(n)["metadata"]["name"] for n in range(SHARERS))
        self._send(["DELETE", f"{path_of(ATTACKER)}/{name}", {}] for name in names)

    def _send(self, requests: Iterable[Sequence[Any]]) -> None:
        """Send [method, path, body] each, and wait until the machine is calm."""
        answer_of(send(self._control_plane, self._directory, requests, concurrency=8))
        wait_for_calm(self._manager)

    # ---- one attack ----

    def _beside(self, attack: tuple[str, Object] | None, seconds: float) -> dict[str, Any]:
        """What the neighbour sees while this attack goes on."""
        process = None
        name = attack[0] if attack is not None else ""
        if name == "returns":
            self._make_many_tasks()
        if name == "model-changes":
            self._make_sharers()
        self._manager.forget_peak()
        if attack is not None:
            process = start("attackers", attack[0], seconds, json.dumps(attack[1]))
        seen = answer_of(self._neighbour(seconds))
        figures = {
            **{name: spread(seen.pop(name)) for name in TIMES},
            **seen,
            "manager_peak_mib": round(self._manager.peak_kib() / 1024, 1),
        }
        if process is not None:
            figures["attacker"] = answer_of(process)
        if attack is not None and attack[1].get("namespace") == FAT:
            self._restart_manager()  # else the next peak has what it keeps of these objects
        if name == "model-changes":
            self._delete_sharers()
        return figures

    def _restart_manager(self) -> None:
        self._manager.stop()
        self._manager.launch()
        # the API server takes a second of processor time for a list of large custom resources
        eventually("readiness", lambda: self._manager.readyz()[0], timeout_s=DEADLINE_S)
        eventually("the tasks of the workers", self._has_tasks)
        wait_for_calm(self._manager)

    def _neighbour(self, seconds: float) -> "subprocess.Popen[str]":
        urls = [self._worker_url(NEIGHBOUR, name) for name in WORKERS]
        where = (NEIGHBOUR, NEIGHBOUR, self._edge.status_url)
        return start("neighbour", *self._connection, *where, seconds, *urls)

    def _worker_url(self, namespace: str, name: str) -> str:
        """Of the worker API, with the secret that the worker's pod would get."""
        path = f"/api/v1/namespaces/{namespace}/secrets/{secret_name(name)}"
        (value,) = self._client.get(path)["data"].values()
        return self._edge.worker_url(worker_name(name, "edge"), secret=b64decode(value).decode())


def _dataset(number: int) -> Object:
    """A Dataset on the attacker's node whose name is as long as Kubernetes allows."""
    spec = {"url": "/data/a.csv", "format": "csv", "nodeName": ATTACKER}
    return manifest("edgeai.io/v1alpha1 Dataset", f"{number:0253}", ATTACKER, spec=spec)


def _sharer(number: int) -> Object:
    sharer = _named(service(0, ATTACKER, ATTACKER, model=SHARED_MODEL), f"sharer-{number}")
    sharer["spec"]["cloudWorker"]["model"]["name"] = "none"
    return sharer


def _federation(trainers: int) -> Object:
    """A federation whose trainers are all on the attacker's node. Its Datasets do not exist."""
    container = {"name": "worker", "image": "none"}
    template = {"spec": {"nodeName": ATTACKER, "containers": [container]}}
    workers = [{"dataset": {"name": f"none-{n}"}, "template": template} for n in range(trainers)]
    spec = {
        "aggregationWorker": {"model": {"name": MODEL}, "template": template},
        "trainingWorkers": workers,
    }
    return manifest("edgeai.io/v1alpha1 FederatedLearningJob", "greedy", ATTACKER, spec=spec)


def _named(object_: Object, name: str) -> Object:
    return {**object_, "metadata": {**object_["metadata"], "name": name}}


if __name__ == "__main__":
    seconds = float(sys.argv[1]) if sys.argv[1:] else SECONDS
    print(json.dumps(measure(seconds, sys.argv[2:]), indent=1))
