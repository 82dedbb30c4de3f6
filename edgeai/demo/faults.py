"""The faults of a demo's trainers. Each fault is a script that gets every new status of the job.

A script strikes when the job has reached a round. It ends when the CR has a later round from the
same trainer: then the trainer takes part again.
"""

import copy
import os
import signal
from collections.abc import Generator
from contextlib import ExitStack
from typing import Any, Final, Self

from common.errors import EdgeAIError
from edgeai import system
from edgeai.api import Api, Object
from edgeai.cutting_proxy import CuttingProxy
from edgeai.demo.stage import NAMESPACE
from edgeai.environment import Environment

MISSED_ROUNDS: Final = 3  # that a cut lasts
AGGREGATION_PORT: Final = 7363
LOOPBACK: Final = "127.0.0.1"

Status = dict[str, Any]
Script = Generator[str, Status, str]
"""Yields what has just become of the trainer, "" for nothing new; returns how it ended."""


class Fault:
    """Args: worker: name of the trainer that `script` is about"""

    def __init__(self, worker: str, script: Script) -> None:
        self.worker = worker
        self.state = next(script)
        self.is_recovered = False
        self._script = script

    def tell(self, status: Status) -> None:
        """Raises: ApiError, OSError"""
        try:
            self.state = self._script.send(status) or self.state
        except StopIteration as end:
            self.state = end.value or self.state
            self.is_recovered = True


def kill(api: Api, worker: str, *, at_round: int) -> Script:
    """SIGKILL to the trainer's process, as a node that runs out of memory does it."""
    status = yield ""
    while round_of(status) < at_round:
        status = yield ""
    os.kill(_pid(api, worker), signal.SIGKILL)
    struck = round_of(status)
    status = yield f"[red]killed in {struck}"
    while round_told_by(worker, status) <= struck:
        status = yield ""
    return f"[green]killed in {struck}, back"


def cut(line: "EdgeLine", worker: str, *, at_round: int) -> Script:
    """Nothing passes between an edge and the cloud until the others have gone on without it."""
    status = yield ""
    while round_of(status) < at_round:
        status = yield ""
    line.cut()
    struck = round_of(status)
    while round_of(status) < struck + MISSED_ROUNDS:
        status = yield f"[red]cut off in {struck}"
    line.mend()
    mended = round_of(status)
    while round_told_by(worker, status) <= mended:
        status = yield f"[yellow]cut off {struck} to {mended}, mended"
    return f"[green]cut off {struck} to {mended}, back"


def round_of(status: Status) -> int:
    """Of the job."""
    number: int = status.get("round", 0)
    return number


def round_told_by(worker: str, status: Status) -> int:
    """The last that the CR knows of it."""
    entry = (status.get("workers") or {}).get(worker) or {}
    number: int = (entry.get("taskInfo") or {}).get("currentRound", 0)
    return number


def _pid(api: Api, pod: str) -> int:
    """Of the local cluster's process that runs the pod's only container."""
    status = api.get(f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}")["status"]
    return int(status["containerStatuses"][0]["containerID"].removeprefix("process://"))


class EdgeLine:
    """The only line between one edge and the cloud: of its LocalController, and of its trainer.

    Args: aggregator: name of the Service that the trainer calls
    """

    def __init__(self, *, aggregator: str) -> None:
        self._running: Environment | None = None
        self._to_manager = self._proxy(system.NAMESPACE, system.GLOBALMANAGER, system.EDGE_PORT)
        self._to_aggregator = self._proxy(NAMESPACE, aggregator, AGGREGATION_PORT)
        self._proxies = (self._to_manager, self._to_aggregator)
        self._open = ExitStack()

    def __enter__(self) -> Self:
        for proxy in self._proxies:
            self._open.enter_context(proxy)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def lead_to_cloud_of(self, running: Environment) -> None:
        self._running = running

    def tuning(self, node: str) -> system.Tuning:
        """Settings by which the LocalController of `node` uses the line."""
        address = f"ws://{LOOPBACK}:{self._to_manager.port}"
        return system.Tuning(
            global_manager_of={node: address}, localcontroller_flags=("--reconnect-max-s", "2")
        )

    def lay_to(self, training_worker: Object) -> None:
        """Change a job's training worker so that it calls the aggregator through the line."""
        template = copy.deepcopy(training_worker["template"])  # others may share it
        container = template["spec"]["containers"][0]
        address = {"AGG_IP": LOOPBACK, "AGG_PORT": str(self._to_aggregator.port)}
        container["env"] += [{"name": name, "value": value} for name, value in address.items()]
        training_worker["template"] = template

    def cut(self) -> None:
        for proxy in self._proxies:
            proxy.cut("loudly")

    def mend(self) -> None:
        for proxy in self._proxies:
            proxy.mend()

    def _proxy(self, namespace: str, service: str, port: int) -> CuttingProxy:
        def target() -> tuple[str, int]:
            if self._running is None:
                raise ConnectionRefusedError(f"{service}: there is no cloud yet")
            try:
                found = self._running.api.get(f"/api/v1/namespaces/{namespace}/services/{service}")
            except EdgeAIError as error:  # the object is not there yet, or is gone
                raise ConnectionRefusedError(str(error)) from error
            return found["spec"]["clusterIP"], port

        return CuttingProxy(target)
