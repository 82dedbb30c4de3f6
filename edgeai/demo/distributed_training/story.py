"""`edgeai demo distributed-training`: a PyTorchJob trains one network in three processes.

The demo starts a local cluster with a GlobalManager and applies the PyTorchJob of
distributed_training.yaml. While the demo shows the loss and the replicas, it kills one worker.
Then all replicas restart together and continue from the last checkpoint.

PyTorch is not part of edgeai. The demo runs the job with another Python that has PyTorch.
"""

import os
import signal
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console, Group
from rich.text import Text

from edgeai.cli import runtimes
from edgeai.cli.api import Api, Object
from edgeai.cli.options import Output
from edgeai.demo import stage
from edgeai.demo.distributed_training import data
from edgeai.demo.distributed_training.manifests import JOB, Placement
from edgeai.demo.faults import pid_of
from edgeai.demo.manifests import resource
from edgeai.demo.stage import NAMESPACE, Look, Stage
from edgeai.errors import EdgeAIError
from edgeai.faults.summary import phase_of

MASTER: Final = "digits-master-0"
VICTIM: Final = "digits-worker-1"
KILL_AFTER: Final = 6  # epochs
PAUSE_S: Final = 0.4  # after each epoch, slow enough for a user to watch


class Outcome(msgspec.Struct, frozen=True):
    world_size: int
    """Number of processes."""
    steps: int
    accuracy: float
    """Share of correct answers, 0 to 1, on images that no process has trained with."""
    restarts: int
    """Number of times that all replicas restarted together."""
    seconds: float
    """From the creation of the job to its end."""


def run(output: Output, *, verbose: bool, python: Path | None) -> int:
    """Args: python: has PyTorch. None: one in the user's cache, with PyTorch installed if need be

    Raises: EdgeAIError when there is no PyTorch and it cannot be installed
    """
    interpreter = _checked(python) if python is not None else _installed(stage.console_for(output))
    return stage.perform(partial(_story, python=interpreter), output, verbose=verbose)


def _checked(python: Path) -> Path:
    """The absolute path of a Python that has PyTorch. Raises: EdgeAIError"""
    path = python.absolute()
    try:
        process = subprocess.run(
            [path, "-c", "import numpy, torch"], capture_output=True, check=False
        )
        problem = process.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    except OSError as error:
        process, problem = None, str(error)
    if process is None or process.returncode:
        raise EdgeAIError(f"--python {path}: cannot import torch and numpy: {problem}")
    return path


def _installed(console: Console) -> Path:
    """The Python of the runtime pytorch. Raises: EdgeAIError"""
    pytorch = runtimes.runtime("pytorch")
    if pytorch.is_installed():
        return pytorch.python
    console.print(
        "The demo needs PyTorch, which is not part of edgeai. Where no Python of this machine has"
        f" it, it is installed, once, into {pytorch.cache}, or as root from Debian: 200 MB to"
        " download, 1 GB on disk.",
        soft_wrap=True,
    )
    try:
        with console.status("looking for PyTorch, or installing it"):
            return pytorch.install()
    except runtimes.RuntimeUnavailable as error:
        raise EdgeAIError(
            f"{error}\nOr name a Python that has PyTorch and NumPy:"
            " edgeai demo distributed-training --python PATH"
        ) from error


def _story(on: Stage, *, python: Path) -> Outcome:
    on.console.print(
        "[bold]Distributed training[/]: a master and two workers train one "
        "network with PyTorch, and one worker is killed"
    )
    running, _ = stage.start(on, data.write)
    placement = Placement(files=on.files, python=python, namespace=NAMESPACE, pause_seconds=PAUSE_S)
    created_s = time.monotonic()
    objects = stage.apply(on, running, [resource(JOB, placement)])
    training = _Training(running.api)
    object_ = stage.watch(on, running.api, objects, training.look)
    seconds = time.monotonic() - created_s
    result = stage.result(running.api, object_, MASTER)
    on.detail(stage.as_the_api_holds_it(object_, without=("conditions",)))
    stage.end(on, running, objects)
    return Outcome(
        world_size=result["world_size"],
        steps=result["step"],
        accuracy=result["accuracy"],
        restarts=object_["status"].get("jobRestarts", 0),
        seconds=round(seconds, 1),
    )


class _Training:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._losses: dict[int, float] = {}  # epoch -> loss
        self._last: stage.Event = {}  # last event of the script
        self._is_killed = False

    def look(self, object_: Object) -> Look:
        """The live view of the job. Kills the victim in its time. Raises: ApiError, OSError"""
        for event in stage.events(self._api.log(NAMESPACE, MASTER)):  # a new log at each restart
            self._last = event
            if "loss" in event:
                self._losses[event["epoch"]] = event["loss"]
        pods = stage.pods_of(self._api, object_)
        if len(self._losses) >= KILL_AFTER and not self._is_killed:
            os.kill(pid_of(self._api, VICTIM), signal.SIGKILL)
            self._is_killed = True
        return Look(
            self._view(object_, pods),
            progress=(object_.get("status"), self._last, [pod["status"] for pod in pods]),
        )

    def _view(self, object_: Object, pods: list[Object]) -> Group:
        losses = [self._losses[epoch] for epoch in sorted(self._losses)]
        head = Text.assemble(
            ("PyTorchJob: ", "cyan"),
            f"{phase_of(object_.get('status')):<10} processes {self._last.get('world_size', '-')}"
            f"  step {self._last.get('step', '-')}  loss {next(reversed(losses), '-')}",
        )
        course = [loss / max(losses) for loss in losses]
        note = Text(f"{VICTIM} was killed" if self._is_killed else "", style="red")
        table = stage.pods_table(pods, "ATTEMPT", _attempt)
        return Group(head, Text(stage.bars(course), style="green"), note, table)


def _attempt(pod: Object) -> str:
    return str((pod["metadata"].get("annotations") or {}).get("edgeai.io/attempt", "0"))
