"""`edgeai demo elastic-training`: the workers of a TrainingJob come and go while it trains.

The demo starts a local cluster with a GlobalManager and applies the TrainingJob of
elastic_training.yaml. While the demo shows the workers and the accuracy, it applies a ScaleOut,
kills a worker, and applies a ScaleIn that names a worker. The training goes on all the time.
"""

import os
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Group
from rich.text import Text

from edgeai.cli.api import Object
from edgeai.cli.environment import Environment
from edgeai.demo import stage
from edgeai.demo.distributed_training import data
from edgeai.demo.elastic_training.manifests import JOB, SCALE_IN, SCALE_OUT, Placement
from edgeai.demo.faults import pid_of
from edgeai.demo.manifests import resource
from edgeai.demo.stage import NAMESPACE, DemoFailed, Event, Look, Stage
from edgeai.faults.summary import phase_of

NAME: Final = "elastic-training"
LAUNCHER: Final = f"{NAME}-launcher"
VICTIM: Final = f"{NAME}-worker-3"
REMOVED: Final = f"{NAME}-worker-1"  # by scale_in.yaml
STEPS: Final = 1000
PAUSE_S: Final = 0.1  # after each step, slow enough for a user to watch, until the last change
STEPS_BETWEEN: Final = 20  # before the first change and between two


class Outcome(msgspec.Struct, frozen=True):
    workers_over_time: list[int]
    """How many workers took part, one after the other."""
    steps: int
    final_accuracy: float
    """Share of correct answers, 0 to 1, on images that no worker has trained with."""
    interruptions_survived: int
    """How many workers were lost without a word."""


def story(on: Stage) -> Outcome:
    on.console.print(
        "[bold]Elastic training[/]: workers come, one is killed and one "
        "leaves, and the training goes on"
    )
    running, _ = stage.start(on, data.write)
    placement = Placement(files=on.files, namespace=NAMESPACE, steps=STEPS, pause_seconds=PAUSE_S)
    objects = stage.apply(on, running, [resource(JOB, placement)])
    training = _Training(on, running, placement)
    object_ = stage.watch(on, running.api, objects, training.look)
    outcome = training.outcome(object_)
    on.detail(stage.as_the_api_holds_it(object_, without=("conditions",)))
    stage.end(on, running, objects)
    return outcome


class _Training:
    def __init__(self, on: Stage, running: Environment, placement: Placement) -> None:
        self._on = on
        self._running = running
        self._api = running.api
        self._placement = placement
        self._events: list[Event] = []
        self._changes = self._change()
        self._is_changed = False

    def look(self, object_: Object) -> Look:
        """The live view of the job. Makes the next change in its time. Raises: ApiError, OSError"""
        self._events = [*stage.events(self._api.log(NAMESPACE, LAUNCHER))]
        pods = stage.pods_of(self._api, object_)
        if not self._is_changed:
            self._is_changed = next(self._changes, True)
        return Look(
            self._view(object_, pods),
            progress=(object_.get("status"), self._events[-1:], [pod["status"] for pod in pods]),
        )

    def outcome(self, object_: Object) -> Outcome:
        """Raises: DemoFailed"""
        result = stage.result(self._api, object_, LAUNCHER)
        if not self._is_changed:
            raise DemoFailed("the training ended before all changes of its workers were made")
        return Outcome(
            workers_over_time=self._sizes(),
            steps=result["step"],
            final_accuracy=result["accuracy"],
            interruptions_survived=result["losses"],
        )

    def _change(self) -> Generator[bool, None, bool]:
        """Change the workers, one change after the other. Yields False until the next look."""
        yield from self._until_workers(2)
        self._apply(SCALE_OUT)
        yield from self._until_workers(4)
        os.kill(pid_of(self._api, VICTIM), signal.SIGKILL)
        self._on.tick(f"killed {VICTIM}")
        while VICTIM not in self._those("lost"):
            yield False
        yield from self._until_workers(4)
        self._apply(SCALE_IN)
        while REMOVED not in self._those("left"):
            yield False
        yield from self._until_workers(3)
        (self._on.files / "hurry").touch()
        return True

    def _until_workers(self, count: int) -> Generator[bool, None, None]:
        """Wait until this number of workers has taken STEPS_BETWEEN steps together."""
        first = None
        while True:
            last = self._last_progress()
            if last.get("workers") != count:
                first = None
            elif first is None:
                first = last["step"]
            elif last["step"] >= first + STEPS_BETWEEN:
                return
            yield False

    def _apply(self, template: Path) -> None:
        stage.apply(self._on, self._running, [resource(template, self._placement)])

    # ---- what the launcher tells ---------------------------------------------------------------

    def _last_progress(self) -> Event:
        progress = [event for event in self._events if event["event"] == "progress"]
        return progress[-1] if progress else {}

    def _those(self, event: str) -> set[str]:
        """The workers of whom the launcher tells this."""
        return {record["worker"] for record in self._events if record["event"] == event}

    def _sizes(self) -> list[int]:
        sizes: list[int] = []
        for event in self._events:
            if event["event"] == "progress" and sizes[-1:] != [event["workers"]]:
                sizes.append(event["workers"])
        return sizes

    # ---- the view ------------------------------------------------------------------------------

    def _view(self, object_: Object, pods: list[Object]) -> Group:
        last = self._last_progress()
        head = Text.assemble(
            ("TrainingJob: ", "cyan"),
            f"{phase_of(object_.get('status')):<10} workers {last.get('workers', '-')}"
            f"  step {last.get('step', '-')}  accuracy {last.get('accuracy', '-')}",
        )
        course = [event["accuracy"] for event in self._events if event["event"] == "progress"]
        sizes = " → ".join(map(str, self._sizes()))
        hosts = (object_.get("status") or {}).get("currentWorkers") or []

        def is_host(pod: Object) -> str:
            return "yes" if pod["metadata"]["name"] in hosts else ""

        table = stage.pods_table(pods, "IN THE LIST OF HOSTS", is_host)
        bars = Text(stage.bars(course[-60:]), style="green")
        return Group(head, bars, Text(f"workers over time: {sizes}"), table)
