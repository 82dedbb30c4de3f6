"""The faults of a demo's trainers. Each fault is a script that gets every status of the job.

A script causes its fault when the job reaches a certain round. The script ends when the job's
status has a later round from the same trainer, because the trainer then takes part again.
"""

import copy
import os
import signal
from collections.abc import Generator
from contextlib import ExitStack
from typing import Any, Final, Self

from edgeai.cli import system
from edgeai.cli.api import Api, Object
from edgeai.cli.environment import Environment
from edgeai.demo.cutting_proxy import CuttingProxy
from edgeai.demo.stage import NAMESPACE
from edgeai.errors import EdgeAIError

MISSED_ROUNDS: Final = 3  # length of a cut
AGGREGATION_PORT: Final = 7363
LOOPBACK: Final = "127.0.0.1"

Status = dict[str, Any]
Script = Generator[str, Status, str]
"""A generator that gets each status of the job. It yields the new state of the trainer, or "" if
the state is the same as before. At the end it returns the last state of the trainer."""


class Fault:
    """Args: script: causes the fault and follows the trainer until it takes part again"""

    def __init__(self, worker: str, script: Script) -> None:
        self.worker = worker
        self.state = next(script)
        self.is_recovered = False
        self._script = script

    def tell(self, status: Status) -> None:
        """Pass a status of the job to the script. Raises: ApiError, OSError"""
        try:
            self.state = self._script.send(status) or self.state
        except StopIteration as end:
            self.state = end.value or self.state
            self.is_recovered = True


def kill(api: Api, worker: str, *, at_round: int) -> Script:
    """Send SIGKILL to the trainer's process, as a node that runs out of memory does."""
    status = yield ""
    while round_of(status) < at_round:
        status = yield ""
    os.kill(pid_of(api, worker), signal.SIGKILL)
    round_ = round_of(status)
    status = yield f"[red]killed in {round_}"
    while round_told_by(worker, status) <= round_:
        status = yield ""
    return f"[green]killed in {round_}, back"


def cut(line: "EdgeLine", worker: str, *, at_round: int) -> Script:
    """Cut the network, until the other trainers have finished MISSED_ROUNDS further rounds."""
    status = yield ""
    while round_of(status) < at_round:
        status = yield ""
    line.cut()
    round_ = round_of(status)
    while round_of(status) < round_ + MISSED_ROUNDS:
        status = yield f"[red]cut off in {round_}"
    line.mend()
    mended = round_of(status)
    while round_told_by(worker, status) <= mended:
        status = yield f"[yellow]cut off {round_} to {mended}, mended"
    return f"[green]cut off {round_} to {mended}, back"


def round_of(status: Status) -> int:
    number: int = status.get("round", 0)
    return number


def round_told_by(worker: str, status: Status) -> int:
    """The latest round of the trainer `worker` in the job's status."""
    entry = (status.get("workers") or {}).get(worker) or {}
    number: int = (entry.get("taskInfo") or {}).get("currentRound", 0)
    return number


def pid_of(api: Api, pod: str) -> int:
    """The pid of the process that runs the pod's only container in the local cluster."""
    status = api.get(f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}")["status"]
    return int(status["containerStatuses"][0]["containerID"].removeprefix("process://"))


class EdgeLine:
    """All connections between one edge and the cloud: a proxy for its LocalController, and one for
    its trainer.

    Args: aggregator: name of the Service that the trainer calls; "": the edge has no trainer
    """

    def __init__(self, *, aggregator: str = "") -> None:
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

    def tuning(self, node: str, *flags: str) -> system.Tuning:
        """The LocalController of `node` connects through the proxy. Args: flags: of all of them"""
        address = f"{LOOPBACK}:{self._to_manager.port}"
        return system.Tuning(
            global_manager_of={node: address},
            localcontroller_flags=("--reconnect-max-s", "2", *flags),
        )

    def lay_to(self, training_worker: Object) -> None:
        """Change a job's training worker so that it calls the aggregator through the proxy."""
        # Other training workers may share this template.
        template = copy.deepcopy(training_worker["template"])
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
                resource = self._running.api.get(
                    f"/api/v1/namespaces/{namespace}/services/{service}"
                )
            except EdgeAIError as error:  # the Service does not exist yet, or is gone
                raise ConnectionRefusedError(str(error)) from error
            return resource["spec"]["clusterIP"], port

        return CuttingProxy(target)
